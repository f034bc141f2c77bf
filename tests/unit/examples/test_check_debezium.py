"""The check of `debezium` reports a change that is missing, twice there, moved or other than what was executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult
from examples.checks.values import plain
from examples.debezium.check import compare, replay

Row = dict[str, Any]
AT = datetime(2013, 1, 1, tzinfo=UTC)


def order(customer: str, cents: int, **more: Any) -> Row:
    """Return the row of an order."""
    amount = Decimal(cents).scaleb(-2)
    return {"customer": customer, "amount": amount, "placed": AT, "shipped": None} | more


ANNE, ZOE, NEW = order("Anne", 150), order("Zoë", -1), order("Anne", 200, note="late")
EXECUTED: list[tuple[str, int | None, Row | None, Row | None]] = [
    ("r", 1, None, ANNE),
    ("r", 2, None, ZOE),
    ("t", None, None, None),
    ("c", 3, None, ZOE),
    ("c", 4, None, ANNE),
    ("u", 4, ANNE, NEW),
    ("d", 3, ZOE, None),
]
TABLE = [{"id": 4, **NEW}]


def change(offset: int, op: str, key: int | None, state: Row | None, before: Row | None) -> Row:
    """Return a row of the lake."""
    nothing: Row = dict.fromkeys(("customer", "amount", "placed", "shipped", "note"))
    return {
        "_offset": offset,
        "op": op,
        "id": key,
        "lsn": None if op == "tombstone" else 100 + offset,
        "before": before and nothing | before,
        **nothing,
        **(state or {}),
    }


GOOD = [
    # The snapshot is in the order of the scan.
    change(0, "r", 2, ZOE, None),
    change(1, "r", 1, ANNE, None),
    change(2, "t", None, None, None),
    change(3, "c", 3, ZOE, None),
    change(4, "c", 4, ANNE, None),
    change(5, "u", 4, NEW, ANNE),
    change(6, "d", 3, ZOE, ZOE),
    change(7, "tombstone", 3, None, None),
]


def checked(
    folder: Path, rows: Sequence[Row], table: Sequence[Row] = TABLE, letters: Sequence[Row] = ()
) -> CheckResult:
    """Return the result of the check for these rows of the lake."""
    executed = folder / "executed"
    lines = [
        {"op": op, "id": key, "before": plain(before), "after": plain(after)}
        for op, key, before, after in EXECUTED
    ]
    executed.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return compare(lambda: rows, lambda: letters, executed, table=table)


def bad(result: CheckResult) -> set[str]:
    """Return the checks that do not hold."""
    return {one.check for one in result.findings if not one.holds}


def test_the_changes_that_were_executed_pass_in_any_order_of_the_files(tmp_path: Path) -> None:
    result = checked(tmp_path, GOOD[::-1])
    assert result.passed, list(result.lines())
    assert result.rows == len(GOOD)


def moved(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with new offsets, from 0."""
    return [row | {"_offset": at} for at, row in enumerate(rows)]


Damage = Callable[[list[Row]], list[Row]]


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        (lambda rows: [*rows, rows[5]], {"once", "changes"}),
        (lambda rows: rows[:5] + rows[6:], {"once", "changes", "replay"}),
        (lambda rows: rows[:-1], {"changes"}),
        (lambda rows: moved(rows[:2] + rows[3:]), {"changes", "replay"}),
        (
            lambda rows: [*rows[:5], rows[5] | {"amount": Decimal(3)}, *rows[6:]],
            {"changes", "replay"},
        ),
        (lambda rows: [*rows[:5], rows[5] | {"before": None}, *rows[6:]], {"changes"}),
        (lambda rows: [*rows[:3], rows[3] | {"op": "r"}, *rows[4:]], {"changes"}),
        (lambda rows: [*rows[:5], rows[5] | {"note": None}, *rows[6:]], {"changes", "replay"}),
        (lambda rows: [rows[0] | {"lsn": 105}, *rows[1:]], {"positions"}),
        (lambda rows: [rows[0] | {"id": 9}, *rows[1:]], {"changes"}),
        (lambda rows: moved([*rows[:6], rows[7], rows[6]]), {"changes"}),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, checks: set[str]) -> None:
    assert bad(checked(tmp_path, damage(list(GOOD)))) == checks


def test_another_state_of_the_table_and_a_dead_letter_are_reported(tmp_path: Path) -> None:
    assert bad(checked(tmp_path, GOOD, table=[])) == {"replay"}
    assert bad(checked(tmp_path, GOOD, letters=[{"reason": "op: unknown"}])) == {"dead letters"}


def test_a_replay_applies_changes_in_their_order() -> None:
    assert list(replay(GOOD[:2])) == [2, 1]
    assert replay(GOOD[:3]) == {}
    assert list(replay(GOOD[:5])) == [3, 4]
    assert list(replay(GOOD)) == [4]
