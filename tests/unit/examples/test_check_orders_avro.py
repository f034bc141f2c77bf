"""The check of `orders-avro` reports a wrong, missing or double row, a wrong dead letter, and a wrong schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.checks import CheckResult
from examples.checks.registered import LakeContent, Row
from examples.orders_avro.check import FIRST_TYPES, SECOND_TYPES, TABLE, compare
from unit.examples.registered_lines import letter, lineage, recorded, with_rows, with_types
from unit.examples.sent_lines import write_sent

ONE, TWO = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
OLD = {"amount": "1.50", "address": {"city": "a"}, "quantity": 1}
NEW = {
    "amount": "2.00",
    "address": {"city": "a", "country": "FR"},
    "quantity": 2**40,
    "coupon": None,
}
SENT = (
    recorded(0, 1, {"table": TABLE, "row": OLD}, order_id=1),
    recorded(1, 1, {"table": TABLE, "row": OLD}, end="aborted", order_id=2),
    recorded(2, 1, {"kind": "truncated", "field": "items"}, order_id=3),
    recorded(3, 2, {"table": TABLE, "row": NEW}, order_id=4),
    recorded(4, 2, {"kind": "schema_id", "field": None}, order_id=5),
    recorded(5, 3, {"table": TABLE, "row": NEW}, order_id=6),  # not run yet
)
OLD_ROW = {
    **OLD,
    "amount": Decimal("1.50"),
    "address": {"city": "a", "country": None},
    "coupon": None,
    "order_id": 1,
    **lineage(0, 1),
}
NEW_ROW = {**NEW, "amount": Decimal("2.00"), "order_id": 4, **lineage(3, 2)}
LETTERS = [letter(2, 1, "truncated", "items"), letter(4, 2, "schema_id")]
GOOD = LakeContent(
    rows={TABLE: [OLD_ROW, NEW_ROW]},
    dead=LETTERS,
    types={TABLE: [FIRST_TYPES, SECOND_TYPES]},
    commits={TABLE: 3},
)


def checked(path: Path, content: LakeContent, **options: Any) -> CheckResult:
    options = {"days": [ONE, TWO], "replaced": 1, "evolved": True} | options
    return compare(content, write_sent(path / "sent", *SENT), **options)


def without_new(row: Mapping[str, Any]) -> Row:
    """Return the row as the table has it before its schema changes."""
    return {n: v for n, v in row.items() if n != "coupon"} | {"address": {"city": "a"}}


def test_rows_dead_letters_and_schemas_as_they_were_sent_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, GOOD)
    assert result.passed, list(result.lines())
    assert result.rows == 2


def test_before_the_second_schema_the_table_has_only_the_first(tmp_path: Path) -> None:
    first = LakeContent(
        rows={TABLE: [without_new(OLD_ROW)]},
        dead=LETTERS[:1],
        types={TABLE: [FIRST_TYPES]},
        commits={TABLE: 1},
    )
    assert checked(tmp_path, first, days=[ONE], replaced=0, evolved=False).passed
    assert not checked(tmp_path, GOOD, days=[ONE], replaced=0, evolved=False).passed
    assert not checked(tmp_path, first, days=[ONE, TWO], evolved=True).passed


Damage = Callable[[LakeContent], LakeContent]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (lambda c: with_rows(c, TABLE, OLD_ROW, NEW_ROW, NEW_ROW), "once"),
        (lambda c: replace(c, dead=[*LETTERS, letter(0, 1, "magic")]), "once"),
        (lambda c: with_rows(c, TABLE, OLD_ROW), "all, and equal"),
        (
            lambda c: with_rows(c, TABLE, OLD_ROW, NEW_ROW, {**OLD_ROW, "_offset": 1}),
            "all, and equal",
        ),
        (lambda c: with_rows(c, TABLE, OLD_ROW, {**NEW_ROW, "quantity": 0}), "all, and equal"),
        (lambda c: with_rows(c, TABLE, OLD_ROW, {**NEW_ROW, "order_id": 9}), "all, and equal"),
        (lambda c: with_rows(c, TABLE, without_new(OLD_ROW), NEW_ROW), "all, and equal"),
        (
            lambda c: with_rows(c, TABLE, OLD_ROW, {**NEW_ROW, "amount": Decimal("2.0")}),
            "all, and equal",
        ),
        (
            lambda c: with_rows(c, TABLE, OLD_ROW, {**NEW_ROW, "_timestamp": ONE}),
            "all, and equal",
        ),
        (
            lambda c: replace(c, rows={**c.rows, "more": [{**OLD_ROW, "_offset": 9}]}),
            "all, and equal",
        ),
        (lambda c: replace(c, dead=LETTERS[:1]), "dead letters"),
        (lambda c: replace(c, dead=[LETTERS[0], letter(4, 2, "magic")]), "dead letters"),
        (lambda c: replace(c, dead=[LETTERS[0], letter(4, 2, "schema_id", "x")]), "dead letters"),
        (lambda c: replace(c, dead=[LETTERS[0], {**LETTERS[1], "value": b""}]), "dead letters"),
        (lambda c: with_types(c, TABLE, FIRST_TYPES), "schemas"),
        (lambda c: with_types(c, TABLE, SECOND_TYPES), "schemas"),
        (lambda c: with_types(c, TABLE, FIRST_TYPES, SECOND_TYPES, FIRST_TYPES), "schemas"),
        (
            lambda c: with_types(c, TABLE, FIRST_TYPES, {**SECOND_TYPES, "quantity": "int"}),
            "schemas",
        ),
        (lambda c: replace(c, commits={TABLE: 2}), "commits"),
        (lambda c: replace(c, commits={TABLE: 4}), "commits"),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, check: str) -> None:
    result = checked(tmp_path, damage(GOOD))
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


def test_an_empty_lake_fails(tmp_path: Path) -> None:
    assert not checked(tmp_path, LakeContent(rows={}, dead=[], types={}, commits={})).passed
