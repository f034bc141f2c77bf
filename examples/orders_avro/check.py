"""The check of the example `orders-avro`: rows, dead letters and schemas that PyIceberg reads, against what was sent."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from examples.checks import CheckResult
from examples.checks.registered import (
    LakeContent,
    Row,
    compare_commits,
    compare_records,
    compare_types,
)
from examples.checks.sent import by_day, read_sent

TABLE = "orders"
FIRST_TYPES = {
    "shop": "string",
    "order_id": "long",
    "customer": "string",
    "quantity": "int",
    "address": "struct",
    "address.street": "string",
    "address.city": "string",
    "amount": "decimal(9, 2)",
    "placed": "timestamptz",
    "status": "string",
    "items": "list",
    "items.sku": "string",
    "items.price": "decimal(7, 2)",
}
SECOND_TYPES = {
    **FIRST_TYPES,
    "quantity": "long",
    "address.country": "optional string",
    "coupon": "optional string",
}


def compare(
    content: LakeContent, sent: Path, *, days: Collection[datetime], replaced: int, evolved: bool
) -> CheckResult:
    """Compare the lake with what was sent on these days.

    `replaced`: how many of them were replaced; `evolved`: records of the second schema were committed.
    """
    by = by_day(read_sent(sent))
    records = [record for day in days for record in by[day]]
    expected = [FIRST_TYPES, SECOND_TYPES] if evolved else [FIRST_TYPES]
    return CheckResult(
        rows=sum(map(len, content.rows.values())),
        findings=[
            *compare_records(content, records, complete=_complete if evolved else None),
            compare_types(content, TABLE, expected),
            compare_commits(content, {TABLE: len(days) + replaced}),
        ],
    )


def _complete(row: Row) -> Row:
    """Return the row with the fields that only the second schema has."""
    return {**row, "coupon": row.get("coupon"), "address": {"country": None, **row["address"]}}
