"""The program of the schema registry: it is fetched whole, and only the tested file is unpacked."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tallystick.errors import SettingsError
from tallystick_devstack import registry
from tallystick_devstack.logins import RegistryLogin, keep_registry_login
from tallystick_devstack.registry import SchemaRegistryServer, fetch_registry, unpack


def packed(folder: Path, name: str = "lib/a.jar") -> tuple[Path, str]:
    """Return the path of an archive with one file, and its checksum."""
    path = folder / "packed.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_tested_file_is_unpacked(tmp_path: Path) -> None:
    path, sha256 = packed(tmp_path)
    unpack(path, tmp_path / "new", what="it", sha256=sha256)
    assert (tmp_path / "new" / "lib" / "a.jar").read_bytes() == b"x"


def test_another_file_is_refused_with_both_checksums(tmp_path: Path) -> None:
    path, sha256 = packed(tmp_path)
    with pytest.raises(SettingsError, match=f"expected SHA-256 8bc6751c.*found {sha256}"):
        unpack(path, tmp_path / "new", what="it")
    with pytest.raises(SettingsError, match="ended without its archive"):
        unpack(tmp_path / "none", tmp_path / "new", what="it")
    assert not (tmp_path / "new").exists()


def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    path, sha256 = packed(tmp_path, "../outside")
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(path, tmp_path / "new", what="it", sha256=sha256)
    assert not (tmp_path / "outside").exists()


def test_a_failed_download_leaves_its_log_and_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no route to host; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SettingsError, match=r"Apicurio Registry [\s\S]*no route to host") as caught:
        fetch_registry(tmp_path / "cache" / "registry")
    (log,) = (tmp_path / "cache").iterdir()
    assert str(log) in caught.value.hint


def test_a_program_that_exists_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_retrieve", lambda *_: pytest.fail("it exists"))
    assert fetch_registry(tmp_path) == tmp_path
    login = RegistryLogin(password="p")
    assert not SchemaRegistryServer(tmp_path / "s", tmp_path, login=login).program_missing
    assert SchemaRegistryServer(tmp_path / "s", tmp_path / "none", login=login).program_missing


def test_the_password_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    login = keep_registry_login(tmp_path / "registry")
    assert keep_registry_login(tmp_path / "registry") == login
    assert len(login.password) >= 32
    assert login.password not in repr(login)
    (path,) = (tmp_path / "registry").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    assert keep_registry_login(tmp_path / "other") != login
