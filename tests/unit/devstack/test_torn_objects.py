"""Objects that a killed S3 server left half written are removed before the next server reads its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tallystick_devstack.s3 import repair_torn_objects


def put(folder: Path, key: str, body: str, *, etag: str | None, torn: bool = False) -> Path:
    path = folder / "000000000000" / "lake" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    os.utime(path, ns=(1_000, 3_000 if torn else 1_000))
    if etag is not None:
        meta = path.with_name(path.name + ".meta.json")
        meta.write_text(json.dumps({"etag": etag}))
        os.utime(meta, ns=(1_000, 2_000))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_complete_objects_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "root.json", "{}", etag="a")
    put(tmp_path, "users.tmp", "an object whose key ends like that", etag="b")
    before = names(tmp_path)
    repair_torn_objects(tmp_path)
    assert names(tmp_path) == before


def test_a_body_newer_than_its_description_loses_the_description(tmp_path: Path) -> None:
    put(tmp_path, "root.json", "new", etag="of the old body", torn=True)
    repair_torn_objects(tmp_path)
    assert names(tmp_path) == {"root.json"}


def test_half_written_files_and_lone_descriptions_are_removed(tmp_path: Path) -> None:
    body = put(tmp_path, "root.json", "{}", etag="a")
    body.with_name("root.json.tmp").write_text("ha")
    body.with_name("root.json.meta.json.tmp").write_text("ha")
    body.with_name("gone.meta.json").write_text("{}")
    repair_torn_objects(tmp_path)
    assert names(tmp_path) == {"root.json", "root.json.meta.json"}
