"""The types of Debezium that are not those of a column: decimals in base64, and dates in days."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from support.change_events import base64_of, body, decode_events, event, reasons
from tallystick.pipeline import Column, Debezium


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("decimal(9,2)", base64_of(1999, 2), Decimal("19.99")),
        ("decimal(9,2)", base64_of(-1, 1), Decimal("-0.01")),
        ("decimal(9,2)", base64_of(1999, 40), Decimal("19.99")),
        ("decimal(9,2)", base64_of(-1, 40), Decimal("-0.01")),
        ("decimal(9,2)", base64_of(999_999_999, 4), Decimal("9999999.99")),
        ("decimal(38,0)", base64_of(10**38 - 1, 16), Decimal(10**38 - 1)),
        ("decimal(38,0)", base64_of(1 - 10**38, 16), Decimal(1 - 10**38)),
        # Four digits are also valid base64: of three bytes.
        ("decimal(9,2)", "1234", Decimal(0xD76DF8 - (1 << 24)) / 100),
        ("decimal(9,2)", base64_of(10**9, 4), "range: field after.x: 10000000.00 does not fit"),
        (
            "decimal(38,0)",
            base64_of(10**38, 16),
            "range: field after.x: expected a number of at most 38",
        ),
        (
            "decimal(38,0)",
            base64_of(-(10**38), 16),
            "range: field after.x: expected a number of at",
        ),
        (
            "decimal(38,0)",
            base64_of(1 << 127, 17),
            "range: field after.x: expected a number of at most",
        ),
        (
            "decimal(9,2)",
            "",
            "range: field after.x: expected a number of at most 38 digits, found 0 bytes",
        ),
        ("decimal(9,2)", "19.99", 'type: field after.x: "19.99" is not base64'),
        ("decimal(9,2)", 19.99, "type: field after.x: 19.99 is not a binary"),
    ],
)
def test_a_decimal_in_base64(kind: str, text: Any, expected: Any) -> None:
    debezium = Debezium([Column("x", kind)], ts=None, decimals="base64")
    outcomes(debezium, text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19.99", Decimal("19.99")),
        (19.99, Decimal("19.99")),
        ("B88=", 'type: field after.x: "B88=" is not a decimal(9,2)'),
        ("NaN", 'type: field after.x: "NaN" is not a decimal(9,2)'),
        ({"scale": 1, "value": "Dw=="}, "type: field after.x: an object is not a decimal(9,2)"),
    ],
)
def test_a_decimal_as_a_number(text: Any, expected: Any) -> None:
    debezium = Debezium([Column("x", "decimal(9,2)")], ts=None, decimals="number")
    outcomes(debezium, text, expected)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, date(1970, 1, 1)),
        (-719162, date(1, 1, 1)),
        (2932896, date(9999, 12, 31)),
        (-719163, "range: field after.x: -719163 days lies outside the years 1 to 9999"),
        (2932897, "range: field after.x: 2932897 days lies outside the years 1 to 9999"),
        (1 << 40, "range: field after.x: 1099511627776 does not fit an int"),
        (0.5, "inexact: field after.x: 0.5 is not a whole number"),
        ("2026-03-01", 'type: field after.x: "2026-03-01" is not an int'),
    ],
)
def test_a_date_in_days(days: Any, expected: Any) -> None:
    outcomes(Debezium([Column("x", "date", parse="epoch_days")], ts=None), days, expected)


def outcomes(debezium: Debezium, value: Any, expected: Any) -> None:
    """Check the outcome of a value in a row after and before the change."""
    found = decode_events(
        debezium, body(event("c", None, {"x": value})), body(event("d", {"x": value}, None))
    )
    if isinstance(expected, str):
        after, before = reasons(found)
        assert after.startswith(expected)
        assert before == after.replace("after.x", "before.x")
    else:
        assert found.rows.column("x").to_pylist() == [expected, expected]


def test_a_column_of_the_event_has_the_rules_of_its_type() -> None:
    columns = [
        Column("day", "date", source="source.day", parse="epoch_days"),
        # Only the columns of the row are decimals of Kafka Connect.
        Column("rate", "decimal(3,1)", source="source.rate"),
    ]
    debezium = Debezium([Column("x", "int")], ts=None, decimals="base64", event=columns)
    sources = [{"day": 20_513, "rate": 1.5}, {"day": 1 << 30, "rate": 1.5}]
    found = decode_events(
        debezium, *(body(event("c", None, {"x": 1}, source=source)) for source in sources)
    )
    (row,) = found.rows.to_pylist()
    assert row == {"x": 1, "op": "c", "day": date(2026, 3, 1), "rate": Decimal("1.5")}
    assert reasons(found) == [
        "range: field source.day: 1073741824 days lies outside the years 1 to 9999"
    ]
