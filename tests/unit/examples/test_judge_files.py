"""The judge of `files` is awake: whatever is wrong with the folder, it says FAIL and names it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.checks import Ruling, ruling
from examples.checks.sent import part
from examples.files.check import judge
from unit.examples.sent_lines import line, write_sent

DAY = datetime(2013, 1, 1, tzinfo=UTC)
NAME = f"{part(DAY)}.jsonl"
Damage = Callable[[Path], object]


def flight(number: int, delay: int | None) -> dict[str, Any]:
    """What a flight's record says beside its departure."""
    return {"carrier": "UA", "flight": number, "origin": "JFK", "dest": "IAH", "dep_delay": delay}


def row(number: int, delay: int | None, *, late: bool, hour: int) -> dict[str, Any]:
    """The row that is to come out of it; its offset is its number."""
    where = {"_topic": "t", "_kafka_partition": 0, "_offset": number, "_timestamp": "2013"}
    departure = f"2013-01-01T{hour:02}:00:00Z"
    return {**flight(number, delay), "departure": departure, "late": late, **where}


ROWS = [row(0, 20, late=True, hour=5), row(2, None, late=False, hour=6)]
TEXT = "".join(json.dumps(one) + "\n" for one in ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as it should be, its CSV and its producer's list."""
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        lines = ["carrier,flight,origin,time_hour", "UA,0,JFK,2013-01-01T05:00:00Z"]
        lines += ["UA,2,JFK,2013-01-01T06:00:00Z", "UA,9,JFK,2013-02-01T06:00:00Z"]
        archive.writestr("flights.csv", "\n".join(lines) + "\n")
    write_sent(
        tmp_path / "sent",
        line(0, 1, 5, **flight(0, 20)),
        line(1, 1, 5, end="aborted", **flight(0, 20)),
        line(2, 1, 6, end="committed", **flight(2, None)),
    )
    out = tmp_path / "out"
    (out / ".tallystick").mkdir(parents=True)
    (out / NAME).write_text(TEXT)
    return out


def judged(out: Path, *seen: str) -> Ruling:
    """What the judge says of it."""
    return ruling(
        lambda: judge(
            out,
            out.parent / "sent",
            out.parent / "flights.csv.zip",
            late_minutes={DAY: 15},
            seen={NAME: seen or (TEXT.replace("20", "0"), TEXT)},
        )
    )


def test_a_good_folder_passes(folder: Path) -> None:
    found = judged(folder)
    assert found.passed, list(found.lines())
    assert found.rows == 2


def rewrite(*rows: dict[str, Any]) -> Damage:
    """Put these rows into the file."""
    return lambda out: (out / NAME).write_text("".join(json.dumps(one) + "\n" for one in rows))


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (rewrite(ROWS[0]), "all, and equal"),
        (rewrite(*ROWS, ROWS[0]), "once"),
        (rewrite(ROWS[0], {**ROWS[1], "late": True}), "all, and equal"),
        (rewrite(*ROWS, row(1, 20, late=True, hour=5)), "all, and equal"),
        (rewrite(*ROWS, row(1, 20, late=True, hour=5)), "the CSV"),
        (lambda out: (out / NAME).write_text(TEXT[:-5]), "readable"),
        (lambda out: (out / NAME).unlink(), "one file a day"),
        (lambda out: (out / "half.jsonl").write_text(""), "one file a day"),
    ],
)
def test_damage_is_named(folder: Path, damage: Damage, check: str) -> None:
    damage(folder)
    found = judged(folder)
    assert not found.passed
    assert check in {one.check for one in found.findings if not one.holds}


@pytest.mark.parametrize(
    "seen",
    [
        (TEXT, ""),  # an empty file for a moment
        (TEXT, TEXT[:-9], TEXT),
        (TEXT,),  # nothing was replaced, so nothing was shown
    ],
)
def test_a_reader_that_saw_a_half_is_named(folder: Path, seen: tuple[str, ...]) -> None:
    found = judged(folder, *seen)
    assert not found.passed
    assert {one.check for one in found.findings if not one.holds} <= {"atomic", "readable"}
