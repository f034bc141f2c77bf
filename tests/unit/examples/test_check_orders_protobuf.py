"""The check of `orders-protobuf` reports wrong rows and dead letters, and an order with both arms of the oneof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.checks import CheckResult
from examples.checks.registered import LakeContent
from examples.orders_protobuf.check import compare
from unit.examples.registered_lines import letter, lineage, recorded, with_rows
from unit.examples.sent_lines import write_sent

ONE = datetime(2013, 1, 1, tzinfo=UTC)
CARD = {"card_network": "", "voucher": None, "points": {"a": 1, "b": 2}, "lines": []}
VOUCHER = {"card_network": None, "voucher": "v", "points": [], "lines": [{"sku": "s"}]}
NEITHER = {"card_network": None, "voucher": None, "points": [], "lines": []}
REFUND = {"reason": ""}
SENT = (
    *(
        recorded(offset, 1, {"table": "orders", "row": row})
        for offset, row in enumerate((CARD, VOUCHER, NEITHER))
    ),
    recorded(3, 1, {"table": "refunds", "row": REFUND}),
    recorded(4, 1, {"table": "orders", "row": CARD}, end="aborted"),
    recorded(5, 1, {"kind": "message", "field": None}),
)
ORDERS = [
    # PyArrow returns a map as a list of pairs.
    {**CARD, "points": [("b", 2), ("a", 1)], **lineage(0, 1)},
    {**VOUCHER, **lineage(1, 1)},
    {**NEITHER, **lineage(2, 1)},
]
REFUNDS = [{**REFUND, **lineage(3, 1)}]
GOOD = LakeContent(
    rows={"orders": ORDERS, "refunds": REFUNDS},
    dead=[letter(5, 1, "message")],
    types={},
    commits={"orders": 1, "refunds": 1},
)


def checked(path: Path, content: LakeContent) -> CheckResult:
    return compare(content, write_sent(path / "sent", *SENT), days=[ONE])


def test_orders_and_refunds_as_they_were_sent_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, GOOD)
    assert result.passed, list(result.lines())
    assert result.rows == 4


Damage = Callable[[LakeContent], LakeContent]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (lambda c: with_rows(c, "refunds", *REFUNDS, ORDERS[0]), "once"),
        (lambda c: with_rows(c, "refunds"), "all, and equal"),
        (
            lambda c: replace(c, rows={"orders": [*ORDERS, {**NEITHER, **lineage(3, 1)}]}),
            "all, and equal",
        ),
        (lambda c: with_rows(c, "refunds", {**REFUNDS[0], "reason": None}), "all, and equal"),
        (
            lambda c: with_rows(c, "orders", {**ORDERS[0], "points": [("a", 1)]}, *ORDERS[1:]),
            "all, and equal",
        ),
        (
            lambda c: with_rows(c, "orders", {**ORDERS[0], "card_network": None}, *ORDERS[1:]),
            "oneof",
        ),
        (lambda c: with_rows(c, "orders", *ORDERS[:2], {**ORDERS[2], "voucher": ""}), "oneof"),
        (
            lambda c: with_rows(c, "orders", *ORDERS, {**ORDERS[0], "voucher": "v", "_offset": 9}),
            "oneof",
        ),
        (lambda c: replace(c, dead=[]), "dead letters"),
        (lambda c: replace(c, dead=[letter(5, 1, "schema_id")]), "dead letters"),
        (lambda c: replace(c, commits={"orders": 2, "refunds": 1}), "commits"),
        (lambda c: replace(c, commits={"orders": 1}), "commits"),
    ],
)
def test_the_check_names_the_damage(tmp_path: Path, damage: Damage, check: str) -> None:
    result = checked(tmp_path, damage(GOOD))
    assert not result.passed
    assert check in {f.check for f in result.findings if not f.holds}


def test_an_empty_lake_fails(tmp_path: Path) -> None:
    assert not checked(tmp_path, LakeContent(rows={}, dead=[], types={}, commits={})).passed
