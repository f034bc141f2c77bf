"""The check of `upsert` fails for any damage of the table, and names it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult, run_check
from examples.upsert.check import compare
from unit.examples.sent_lines import line, write_sent

FIRST, SECOND, THIRD = (datetime(2013, 1, number, tzinfo=UTC) for number in (1, 2, 3))
Rows = list[tuple[Any, ...]]


def payment(offset: int, day: int, name: str, status: str, *, end: str = "committed") -> Any:
    """Return the producer's record of a payment of one cent."""
    happened = f"2013-01-{day:02}T01:00:00Z"
    document = {"txn_id": name, "account": "a", "cents": 1, "status": status, "happened": happened}
    return line(offset, day, 1, end=end, **document)


def row(name: str, status: str, day: int) -> tuple[Any, ...]:
    return (name, "a", 1, status, datetime(2013, 1, day, 1, tzinfo=UTC))


GOOD = [
    row("cancelled later", "authorised", 1),  # the new job removed the second day's row
    row("settled", "settled", 2),
    row("third", "authorised", 3),
]


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    return write_sent(
        tmp_path / "sent",
        payment(0, 1, "cancelled later", "authorised"),
        payment(1, 1, "settled", "authorised"),
        payment(2, 2, "cancelled later", "cancelled"),
        payment(3, 2, "settled", "authorised"),
        payment(4, 2, "settled", "settled"),
        payment(5, 2, "settled", "cancelled", end="aborted"),
        payment(6, 3, "third", "authorised"),
    )


def checked(rows: Rows, sent: Path) -> CheckResult:
    keep = {FIRST: True, SECOND: False, THIRD: True}
    return run_check(lambda: compare(rows, sent, keep_cancelled=keep, replaced=SECOND))


def test_a_correct_table_passes(sent: Path) -> None:
    result = checked(GOOD, sent)
    assert result.passed, list(result.lines())
    assert result.rows == 3


DAMAGES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "a row twice": (lambda rows: [*rows, rows[0]], "4 rows, 3 ids"),
    "a row is missing": (lambda rows: rows[1:], "found None"),
    "an unexpected row": (lambda rows: [*rows, row("x", "settled", 1)], "x: expected None"),
    "a row of an earlier day": (
        lambda rows: [rows[0], row("settled", "authorised", 1), rows[2]],
        "settled: expected",
    ),
    "a removed row is still there": (
        lambda rows: [row("cancelled later", "cancelled", 2), *rows[1:]],
        "expected the rows of earlier days, found others",
    ),
    "an aborted record's row": (
        lambda rows: [rows[0], row("settled", "cancelled", 2), rows[2]],
        "settled: expected",
    ),
    "an empty table": (lambda rows: [], "found None"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_check_names_the_damage(name: str, sent: Path) -> None:
    damage, text = DAMAGES[name]
    result = checked(damage(list(GOOD)), sent)
    assert not result.passed
    assert text in " ".join(" ".join(result.lines()).split())
