"""The check of `files` fails for any damage of the folder, and names it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult, run_check
from examples.checks.sent import part
from examples.files.check import compare
from unit.examples.sent_lines import line, write_sent

DAY = datetime(2013, 1, 1, tzinfo=UTC)
NAME = f"{part(DAY)}.jsonl"
Damage = Callable[[Path], object]


def flight(number: int, delay: int | None) -> dict[str, Any]:
    """Return the fields of a flight without its departure."""
    return {"carrier": "UA", "flight": number, "origin": "JFK", "dest": "IAH", "dep_delay": delay}


def row(number: int, delay: int | None, *, late: bool, hour: int) -> dict[str, Any]:
    """Return the expected row of a flight; its offset is its number."""
    lineage = {"_topic": "t", "_kafka_partition": 0, "_offset": number, "_timestamp": "2013"}
    departure = f"2013-01-01T{hour:02}:00:00Z"
    return {**flight(number, delay), "departure": departure, "late": late, **lineage}


ROWS = [row(0, 20, late=True, hour=5), row(2, None, late=False, hour=6)]
TEXT = "".join(json.dumps(r) + "\n" for r in ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a correct folder, with the CSV and the producer's record next to it."""
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


def checked(out: Path, *texts: str) -> CheckResult:
    """Return the result of the check."""
    return run_check(
        lambda: compare(
            out,
            out.parent / "sent",
            out.parent / "flights.csv.zip",
            late_minutes={DAY: 15},
            texts_read={NAME: texts or (TEXT.replace("20", "0"), TEXT)},
        )
    )


def test_a_correct_folder_passes(folder: Path) -> None:
    result = checked(folder)
    assert result.passed, list(result.lines())
    assert result.rows == 2


def rewrite(*rows: dict[str, Any]) -> Damage:
    """Return a damage: a file with these rows."""
    return lambda out: (out / NAME).write_text("".join(json.dumps(r) + "\n" for r in rows))


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
def test_the_check_names_the_damage(folder: Path, damage: Damage, check: str) -> None:
    damage(folder)
    result = checked(folder)
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


@pytest.mark.parametrize(
    "texts",
    [
        (TEXT, ""),  # the file was empty for a moment
        (TEXT, TEXT[:-9], TEXT),
        (TEXT,),  # the file was not replaced while the reader read it
    ],
)
def test_a_reader_that_reads_a_partial_file_is_reported(
    folder: Path, texts: tuple[str, ...]
) -> None:
    result = checked(folder, *texts)
    assert not result.passed
    assert {f.check for f in result.findings if not f.holds} <= {"atomic", "readable"}
