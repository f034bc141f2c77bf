"""The judge of `upsert` is awake: whatever is wrong with the table, it says FAIL and names it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.checks import Ruling, ruling
from examples.upsert.check import judge
from unit.examples.sent_lines import line, write_sent

FIRST, SECOND, THIRD = (datetime(2013, 1, number, tzinfo=UTC) for number in (1, 2, 3))
Rows = list[tuple[Any, ...]]


def payment(offset: int, day: int, name: str, status: str, *, end: str = "committed") -> Any:
    """A record of one cent."""
    happened = f"2013-01-{day:02}T01:00:00Z"
    words = {"txn_id": name, "account": "a", "cents": 1, "status": status, "happened": happened}
    return line(offset, day, 1, end=end, **words)


def row(name: str, status: str, day: int) -> tuple[Any, ...]:
    return (name, "a", 1, status, datetime(2013, 1, day, 1, tzinfo=UTC))


GOOD = [
    row("cancelled later", "authorised", 1),  # the second day's row left with its new job
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


def judged(rows: Rows, sent: Path) -> Ruling:
    keep = {FIRST: True, SECOND: False, THIRD: True}
    return ruling(lambda: judge(rows, sent, keep_cancelled=keep, replaced=SECOND))


def test_a_good_table_passes(sent: Path) -> None:
    found = judged(GOOD, sent)
    assert found.passed, list(found.lines())
    assert found.rows == 3


DAMAGES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "a row twice": (lambda rows: [*rows, rows[0]], "4 rows, 3 ids"),
    "a row is missing": (lambda rows: rows[1:], "cancelled later: the table has None"),
    "a row too many": (lambda rows: [*rows, row("x", "settled", 1)], "x: the table has"),
    "a row of an earlier day": (
        lambda rows: [rows[0], row("settled", "authorised", 1), rows[2]],
        "settled: the table has",
    ),
    "a row that left is still there": (
        lambda rows: [row("cancelled later", "cancelled", 2), *rows[1:]],
        "none shows what an earlier day said",
    ),
    "an aborted record's row": (
        lambda rows: [rows[0], row("settled", "cancelled", 2), rows[2]],
        "settled: the table has",
    ),
    "nothing": (lambda rows: [], "the table has None"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named(name: str, sent: Path) -> None:
    damage, said = DAMAGES[name]
    found = judged(damage(list(GOOD)), sent)
    assert not found.passed
    assert said in " ".join(" ".join(found.lines()).split())
