"""The check of `cleanup`, on a folder: reports a leftover, a missing note and a wrong row."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.checks import Finding
from examples.checks.sent import part
from examples.cleanup.check import check_folder

DAY = datetime(2013, 1, 1, tzinfo=UTC)
ROWS = {("UA", "2013-01-01"): 3, ("B6", "2013-01-01"): 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a correct folder."""
    (tmp_path / ".tallystick").mkdir()
    for name in ("lock", "owner.json", f"{part(DAY)}.published"):
        (tmp_path / ".tallystick" / name).touch()
    lines = [{"carrier": c, "day": d, "flights": n} for (c, d), n in ROWS.items()]
    (tmp_path / f"{part(DAY)}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


def bad(folder: Path) -> set[str]:
    """Return the checks that do not hold."""
    findings: list[Finding] = list(check_folder(folder, [DAY], ROWS))
    assert len(findings) == 2
    return {f.check for f in findings if not f.holds}


def hidden(ending: str) -> Callable[[Path], object]:
    """Return a damage: a leftover in the hidden folder."""
    return lambda folder: (folder / ".tallystick" / f"{part(DAY)}.{'0' * 32}.{ending}").touch()


def append(text: str) -> Callable[[Path], object]:
    """Return a damage: a line more in the file."""
    file = f"{part(DAY)}.jsonl"
    return lambda folder: (folder / file).write_text((folder / file).read_text() + text)


def test_a_correct_folder_passes(folder: Path) -> None:
    assert bad(folder) == set()


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (hidden("prepared"), "hidden names"),
        (hidden(f"{'1' * 32}.writing"), "hidden names"),
        (
            lambda folder: (folder / ".tallystick" / f"{part(DAY)}.published").unlink(),
            "hidden names",
        ),
        (append('{"carrier": "DL", "day": "2013-01-01", "flights": 1}\n'), "the files"),
        (append('{"carrier": "UA", "day": "2013-01-01", "flights": 3}\n'), "the files"),
        (lambda folder: (folder / f"{part(DAY)}.jsonl").write_text(""), "the files"),
    ],
)
def test_the_check_names_the_damage(
    folder: Path, damage: Callable[[Path], object], check: str
) -> None:
    damage(folder)
    assert bad(folder) == {check}
