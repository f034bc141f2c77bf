"""Every rule of decoding JSON values, one case per line: the row or the reason, by the kernels and the exact rules."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.decode.decoder import REASON_CHARS_MAX, Reason
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json

AT = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


def decode(column: Column, *values: bytes | None, tombstones: Any = "dead") -> Any:
    return JsonDecoder(Json([column], tombstones=tombstones)).decode_values(
        pa.array(values, pa.binary())
    )


def outcome(column: Column, value: bytes | None) -> Any:
    """Decode one value. Returns the value of the column, or the reason as a text after `!`."""
    decoded = decode(column, value)
    if decoded.reasons:
        assert decoded.rows.num_rows == 0
        return f"!{decoded.reasons[0]}"
    return decoded.rows.column(column.name)[0].as_py()


def field(kind: str, parse: str | None = None) -> Column:
    return Column("x", kind, parse=parse)


# Errors of the grammar have the messages of Python's json module, which has more of them since 3.13.
TRAILING = (
    (
        "Illegal trailing comma before end of object at character 6",
        "Illegal trailing comma before end of array at character 13",
    )
    if sys.version_info >= (3, 13)
    else (
        "Expecting property name enclosed in double quotes at character 7",
        "Expecting value at character 14",
    )
)
GRAMMAR = [
    (b'{"x":1}', 1),
    (b' \t\r\n{ "x" : 1 , "y" : [ ] } \n', 1),
    (b'{"y":{"x":2,"z":[{},[],[[1,"]}"]],{"a":null}]},"x":1}', 1),
    (b'{"\\u0078":1}', 1),
    (b'{"x":1,"y":1,"y":2}', 1),
    (b'{"y":"\\ud800","x":1}', 1),
    (b'{"y":1e999,"x":1}', 1),
    (None, "!tombstone: the value is null"),
    (b"", "!json: Expecting value at character 0"),
    (b"  ", "!json: Expecting value at character 2"),
    (b"x", "!json: Expecting value at character 0"),
    (b'{"x":1', "!json: Expecting ',' delimiter at character 6"),
    (b'{"x":1}}', "!json: Extra data at character 7"),
    (b'{"x":1} x', "!json: Extra data at character 8"),
    (b'{"x":1}{"x":1}', "!json: Extra data at character 7"),
    (b'{"x":1,}', f"!json: {TRAILING[0]}"),
    (b'{"x":1,"y":[1,]}', f"!json: {TRAILING[1]}"),
    (b'{"x":1,"y":[1 2]}', "!json: Expecting ',' delimiter at character 14"),
    (b'{"x":1,"y":{"a"}}', "!json: Expecting ':' delimiter at character 15"),
    (b'{"x":1,"y":[}', "!json: Expecting value at character 12"),
    (b"{'x':1}", "!json: Expecting property name enclosed in double quotes at character 1"),
    (b'{"x":01}', "!json: Expecting ',' delimiter at character 6"),
    (b'{"x":+1}', "!json: Expecting value at character 5"),
    (b'{"x":.5}', "!json: Expecting value at character 5"),
    (b'{"x":1.}', "!json: Expecting ',' delimiter at character 6"),
    (b'{"x":1e}', "!json: Expecting ',' delimiter at character 6"),
    (b'{"x":-}', "!json: Expecting value at character 5"),
    (b'{"x":0x1}', "!json: Expecting ',' delimiter at character 6"),
    (b'{"x":NaN}', "!json: NaN is not JSON"),
    (b'{"x":1,"y":-Infinity}', "!json: -Infinity is not JSON"),
    (b'{"x":nul}', "!json: Expecting value at character 5"),
    (b'{"x":True}', "!json: Expecting value at character 5"),
    (b'{"x":1,"y":"a\tb"}', "!json: Invalid control character at at character 13"),
    (b'{"x":1,"y":"\\x"}', "!json: Invalid \\escape at character 12"),
    (b'{"x":1,"y":"\\u12g4"}', "!json: Invalid \\uXXXX escape at character 13"),
    (b'{"x":1,"y":"', "!json: Unterminated string starting at at character 11"),
    (b'{"x":1}//', "!json: Extra data at character 7"),
    (b"\xef\xbb\xbf{}", "!json: Expecting value at character 0"),
    (b'{"x":1,"y":"\xff"}', "!utf8: byte 12 is not UTF-8"),
    (b'{"x":1,"y":"\xc0\x80"}', "!utf8: byte 12 is not UTF-8"),
    (b'{"x":1,"y":"\xed\xa0\x80"}', "!utf8: byte 12 is not UTF-8"),
    (b'{"x":1,"y":"\xf4\x90\x80\x80"}', "!utf8: byte 12 is not UTF-8"),
    (b'{"x":1,"y":"\xe2\x82', "!utf8: byte 12 is not UTF-8"),
    (b"[1]", "!object: expected an object, found an array"),
    (b'"{}"', '!object: expected an object, found "{}"'),
    (b"7", "!object: expected an object, found 7"),
    (b"null", "!object: expected an object, found null"),
    (b"true", "!object: expected an object, found true"),
    (b'{"x":1,"x":1}', "!duplicate: field x: occurs twice"),
    (b'{"x":1,"\\u0078":2}', "!duplicate: field x: occurs twice"),
    (b"{}", "!missing: field x: required and missing"),
    (b'{"X":1}', "!missing: field x: required and missing"),
    (b'{"x":null}', "!null: field x: required and null"),
    (b'{"x":1,"y":' + b"[" * 63 + b"]" * 63 + b"}", 1),
    (b'{"x":1,"y":' + b"[" * 64 + b"]" * 64 + b"}", "!depth: nested deeper than 64"),
    (b"[" * 100_000, "!depth: nested deeper than 64"),
    (b'{"x":1,"y":"' + b"[" * 100 + b'"}', 1),
]


@pytest.mark.parametrize(("value", "expected"), GRAMMAR, ids=lambda v: repr(v)[:60])
def test_each_object_has_its_row_or_reason(value: bytes | None, expected: Any) -> None:
    assert outcome(field("long"), value) == expected


VALUES = [
    ("int", None, b"2147483647", 2147483647),
    ("int", None, b"-2147483648", -2147483648),
    ("int", None, b"2147483648", "!range: field x: 2147483648 does not fit an int"),
    ("int", None, b"-0", 0),
    ("int", None, b"1.0", 1),
    ("int", None, b"1e3", 1000),
    ("int", None, b"1500e-2", 15),
    ("int", None, b"1.5", "!inexact: field x: 1.5 is not a whole number"),
    ("int", None, b"1e-1", "!inexact: field x: 1e-1 is not a whole number"),
    ("int", None, b"1e-400000", "!inexact: field x: 1e-400000 is not a whole number"),
    ("int", None, b"1e400000", "!range: field x: 1e400000 is out of range"),
    (
        "int",
        None,
        b"1e99999999999999999999",
        "!range: field x: 1e99999999999999999999 has an exponent out of range",
    ),
    ("int", None, b"0e99", 0),
    ("int", None, b'"1"', '!type: field x: "1" is not an int'),
    ("int", None, b"true", "!type: field x: true is not an int"),
    ("int", None, b"[1]", "!type: field x: an array is not an int"),
    ("int", None, b"{}", "!type: field x: an object is not an int"),
    ("int", None, b"9" * 500, "!range: field x: " + "9" * 37 + "... has 500 characters"),
    ("long", None, b"9223372036854775807", 2**63 - 1),
    ("long", None, b"-9223372036854775808", -(2**63)),
    (
        "long",
        None,
        b"9223372036854775808",
        "!range: field x: 9223372036854775808 does not fit a long",
    ),
    ("long", None, b"9223372036854775800.0", 9223372036854775800),
    ("double", None, b"0.1", 0.1),
    ("double", None, b"-0.0", -0.0),
    ("double", None, b"123456789012345678901234567890", 1.2345678901234568e29),
    ("double", None, b"0.30000000000000004", 0.30000000000000004),
    ("double", None, b"5e-324", 5e-324),
    ("double", None, b"1e-400", 0.0),
    ("double", None, b"1.7976931348623157e308", 1.7976931348623157e308),
    ("double", None, b"1e309", "!range: field x: 1e309 does not fit a double"),
    ("double", None, b'"0.1"', '!type: field x: "0.1" is not a double'),
    ("double", None, b"false", "!type: field x: false is not a double"),
    ("float", None, b"0.5", 0.5),
    ("float", None, b"0.1", 0.10000000149011612),
    ("float", None, b"3.4028235e38", 3.4028234663852886e38),
    # The nearest double of each is halfway between two floats, or beyond the largest: the remaining digits decide.
    ("float", None, b"1.000000059604644776", 1.0000001192092896),
    ("float", None, b"1.000000059604644775390625", 1.0),
    ("float", None, b"1.00000005960464477", 1.0),
    ("float", None, b"-1.000000178813934325", -1.0000001192092896),
    ("float", None, b"16777217.000000000001", 16777218.0),
    ("float", None, b"16777217", 16777216.0),
    ("float", None, b"7.00649232162408535461864791645e-46", 1.401298464324817e-45),
    ("float", None, b"7.00649232162408535461864791644e-46", 0.0),
    ("float", None, b"3.40282356779733661637539395458142568447e38", 3.4028234663852886e38),
    (
        "float",
        None,
        b"3.40282356779733661637539395458142568448e38",
        "!range: field x: 3.40282356779733661637539395458142568... does not fit a float",
    ),
    ("float", None, b"3.5e38", "!range: field x: 3.5e38 does not fit a float"),
    ("decimal(9,2)", None, b"1.5", Decimal("1.50")),
    ("decimal(9,2)", None, b"1.500", Decimal("1.50")),
    ("decimal(9,2)", None, b'"1.50"', Decimal("1.50")),
    ("decimal(9,2)", None, b"-1e2", Decimal("-100.00")),
    (
        "decimal(9,2)",
        None,
        b"0.30000000000000004",
        "!inexact: field x: 0.30000000000000004 has more than 2 decimals",
    ),
    ("decimal(9,2)", None, b"1234567.89", Decimal("1234567.89")),
    (
        "decimal(9,2)",
        None,
        b"12345678.9",
        "!range: field x: 12345678.9 does not fit a decimal(9,2)",
    ),
    ("decimal(9,2)", None, b'"1,50"', '!type: field x: "1,50" is not a decimal(9,2)'),
    ("decimal(9,2)", None, b'" 1"', '!type: field x: " 1" is not a decimal(9,2)'),
    ("decimal(9,2)", None, b'"007"', '!type: field x: "007" is not a decimal(9,2)'),
    ("decimal(9,2)", None, b'"1."', '!type: field x: "1." is not a decimal(9,2)'),
    ("decimal(9,2)", None, b'""', '!type: field x: "" is not a decimal(9,2)'),
    ("decimal(9,2)", None, b'"NaN"', '!type: field x: "NaN" is not a decimal(9,2)'),
    ("decimal(9,2)", None, b"true", "!type: field x: true is not a decimal(9,2)"),
    ("decimal(38,0)", None, b"9" * 38, Decimal("9" * 38)),
    (
        "decimal(38,0)",
        None,
        b"1" + b"0" * 38,
        f"!range: field x: 1{'0' * 38} does not fit a decimal(38,0)",
    ),
    ("decimal(38,38)", None, b"0." + b"1" * 38, Decimal("0." + "1" * 38)),
    (
        "decimal(18,2)",
        None,
        b"92233720368547758.08",
        "!range: field x: 92233720368547758.08 does not fit a decimal(18,2)",
    ),
    ("boolean", None, b"true", True),
    ("boolean", None, b"false", False),
    ("boolean", None, b"1", "!type: field x: 1 is not a boolean"),
    ("boolean", None, b'"true"', '!type: field x: "true" is not a boolean'),
    ("string", None, b'""', ""),
    ("string", None, b'"a\\u0000b"', "a\0b"),
    ("string", None, b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    ("string", None, b'"\\u00e9\\u20ac\\ud83d\\ude00"', "é€😀"),
    ("string", None, "é€😀".join('""').encode(), "é€😀"),
    ("string", None, b'"\\ud83d"', "!unicode: field x: half of a surrogate pair"),
    ("string", None, b'"\\ude00\\ud83d"', "!unicode: field x: half of a surrogate pair"),
    ("string", None, b'"\\ud83d\\u0041"', "!unicode: field x: half of a surrogate pair"),
    ("string", None, b'"' + b"a" * 1_000_000 + b'"', "a" * 1_000_000),
    ("string", None, b"1", "!type: field x: 1 is not a string"),
    ("string", None, b"{}", "!type: field x: an object is not a string"),
    ("binary", None, b'"aGk="', b"hi"),
    ("binary", None, b'""', b""),
    ("binary", None, b'"\\/\\/8="', b"\xff\xff"),
    ("binary", None, b'"AA=="', b"\0"),
    ("binary", None, b'"AB=="', '!type: field x: "AB==" is not base64'),
    ("binary", None, b'"aGl="', '!type: field x: "aGl=" is not base64'),
    ("binary", None, b'"aGk"', '!type: field x: "aGk" is not base64'),
    ("binary", None, b'"a Gk="', '!type: field x: "a Gk=" is not base64'),
    ("binary", None, b'"\xc3\xa9"', '!type: field x: "\\u00e9" is not base64'),
    ("binary", None, b"1", "!type: field x: 1 is not a binary"),
    ("date", None, b'"2013-02-28"', date(2013, 2, 28)),
    ("date", None, b'"2012-02-29"', date(2012, 2, 29)),
    ("date", None, b'"1900-02-29"', '!time: field x: "1900-02-29" is not a day of the calendar'),
    ("date", None, b'"0001-01-01"', date(1, 1, 1)),
    ("date", None, b'"0000-01-01"', '!time: field x: "0000-01-01" is not a day of the calendar'),
    ("date", None, b'"2013-2-8"', '!time: field x: "2013-2-8" is not a date like 2013-01-31'),
    (
        "date",
        None,
        b'"2013-02-28T00:00:00Z"',
        '!time: field x: "2013-02-28T00:00:00Z" is not a date like 2013-01-31',
    ),
    ("date", None, b"15706", "!type: field x: 15706 is not a date"),
    ("date", "epoch_ms", b"1356998400000", date(2013, 1, 1)),
    (
        "date",
        "epoch_ms",
        b"1356998400001",
        "!inexact: field x: 1356998400001 has a time of day, which a date cannot hold",
    ),
    ("date", "%d.%m.%Y", b'"31.12.2013"', date(2013, 12, 31)),
    ("timestamptz", None, b'"2013-01-01T05:15:00Z"', AT),
    ("timestamptz", None, b'"2013-01-01 05:15:00Z"', AT),
    ("timestamptz", None, b'"2013-01-01T05:15Z"', AT),
    ("timestamptz", None, b'"2013-01-01T00:15:00-05:00"', AT),
    ("timestamptz", None, b'"2013-01-01T06:45:00+0130"', AT),
    ("timestamptz", None, b'"2013-01-01T06:15:00+01"', AT),
    ("timestamptz", None, b'"2013-01-01T05:15:00.123456Z"', AT.replace(microsecond=123456)),
    ("timestamptz", None, b'"2013-01-01T05:15:00.120000000Z"', AT.replace(microsecond=120000)),
    (
        "timestamptz",
        None,
        b'"1969-12-31T23:59:59.999999Z"',
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    (
        "timestamptz",
        None,
        b'"2013-01-01T05:15:00.1234567Z"',
        '!inexact: field x: "2013-01-01T05:15:00.1234567Z" is finer than a microsecond',
    ),
    (
        "timestamptz",
        None,
        b'"2013-01-01T05:15:00"',
        '!time: field x: "2013-01-01T05:15:00" has no offset from UTC',
    ),
    (
        "timestamptz",
        None,
        b'"2013-01-01T24:00:00Z"',
        '!time: field x: "2013-01-01T24:00:00Z" has an invalid time of day',
    ),
    (
        "timestamptz",
        None,
        b'"2013-01-01T05:15:60Z"',
        '!time: field x: "2013-01-01T05:15:60Z" has an invalid time of day',
    ),
    (
        "timestamptz",
        None,
        b'"0001-01-01T00:00:00+01:00"',
        '!range: field x: "0001-01-01T00:00:00+01:00" lies outside the years 1 to 9999',
    ),
    (
        "timestamptz",
        None,
        b'"noon"',
        '!time: field x: "noon" is not an ISO 8601 time like 2013-01-31T05:15:00Z',
    ),
    ("timestamptz", None, b"1357017300", "!type: field x: 1357017300 is not a timestamptz"),
    ("timestamptz", "epoch_s", b"1357017300", AT),
    ("timestamptz", "epoch_s", b"1357017300.5", AT.replace(microsecond=500_000)),
    ("timestamptz", "epoch_s", b"1.3570173e9", AT),
    ("timestamptz", "epoch_ms", b"1357017300000", AT),
    ("timestamptz", "epoch_us", b"1357017300000000", AT),
    ("timestamptz", "epoch_us", b"0.5", "!inexact: field x: 0.5 is finer than a microsecond"),
    ("date", "epoch_days", b"15706", date(2013, 1, 1)),
    ("date", "epoch_days", b"1.5706e4", date(2013, 1, 1)),
    ("date", "epoch_days", b"0e999999999", date(1970, 1, 1)),
    ("date", "epoch_days", b"-719162", date(1, 1, 1)),
    ("date", "epoch_days", b"2932896", date(9999, 12, 31)),
    ("date", "epoch_days", b"-719163", "!range: field x: -719163 lies outside the years 1 to 9999"),
    ("date", "epoch_days", b"2932897", "!range: field x: 2932897 lies outside the years 1 to 9999"),
    (
        "date",
        "epoch_days",
        b"1e999999",
        "!range: field x: 1e999999 lies outside the years 1 to 9999",
    ),
    (
        "date",
        "epoch_days",
        b"0.5",
        "!inexact: field x: 0.5 has a time of day, which a date cannot hold",
    ),
    (
        "date",
        "epoch_days",
        b"1e-999999",
        "!inexact: field x: 1e-999999 has a time of day, which a date cannot hold",
    ),
    ("date", "epoch_days", b'"15706"', '!type: field x: "15706" is not a date'),
    (
        "timestamptz",
        "epoch_ms",
        b"1e-2000000",
        "!inexact: field x: 1e-2000000 is finer than a microsecond",
    ),
    (
        "timestamptz",
        "epoch_ms",
        b"1000.0000000000000000000000000",
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    ),
    (
        "timestamptz",
        "epoch_ms",
        b"1000.0010000000000000000000000000000000000",
        datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
    ),
    (
        "timestamptz",
        "epoch_ms",
        b"1000.0000000000000000000000001",
        "!inexact: field x: 1000.0000000000000000000000001 is finer than a microsecond",
    ),
    (
        "timestamptz",
        "epoch_ms",
        b"0.000000000000000000000000000000",
        datetime(1970, 1, 1, tzinfo=UTC),
    ),
    ("timestamptz", "epoch_ms", b"1e18", "!range: field x: 1e18 lies outside the years 1 to 9999"),
    (
        "timestamptz",
        "epoch_ms",
        b'"1357017300000"',
        '!type: field x: "1357017300000" is not a timestamptz',
    ),
    ("timestamptz", "%Y%m%d %H%M%z", b'"20130101 0015-0500"', AT),
    ("timestamptz", "%Y%m%d %H%MZ", b'"20130101 0515Z"', AT),
    ("timestamptz", "%Y%m%dZ", b'"2013"', "!time: field x: \"2013\" does not match '%Y%m%dZ'"),
    ("timestamp", None, b'"2013-01-01T05:15:00"', AT.replace(tzinfo=None)),
    (
        "timestamp",
        None,
        b'"2013-01-01T05:15:00Z"',
        '!time: field x: "2013-01-01T05:15:00Z" has an offset, which a timestamp cannot hold',
    ),
]


@pytest.mark.parametrize(
    ("kind", "parse", "value", "expected"),
    VALUES,
    ids=lambda v: repr(v)[:40] if isinstance(v, bytes) else None,
)
def test_each_value_has_its_row_or_reason(
    kind: str, parse: str | None, value: bytes, expected: Any
) -> None:
    column = field(kind, parse)
    # The kernels do not read escaped names: the second value is decoded by the exact rules only.
    for name in (b'"x"', b'"\\u0078"'):
        found = outcome(column, b"{" + name + b":" + value + b"}")
        assert found == expected
        assert str(found) == str(expected)  # -0.0 is not 0.0


def test_optional_fields_may_be_missing_or_null() -> None:
    decoded = decode(
        Column("x", "int", required=False), b"{}", b'{"x":null}', b'{"x":7}', b'{"x":"7"}'
    )
    assert decoded.rows.column("x").to_pylist() == [None, None, 7]
    assert decoded.reasons == (Reason(kind="type", field="x", detail='"7" is not an int'),)


def test_tombstones_become_rows_of_nulls_if_they_are_kept() -> None:
    decoded = decode(Column("x", "int", required=False), None, b'{"x":1}', tombstones="keep")
    assert decoded.rows.column("x").to_pylist() == [None, 1]
    assert decoded.kept.tolist() == [0, 1]


def test_rows_keep_their_order_although_decoded_in_different_ways() -> None:
    # The second is decoded by the exact rules only (an escaped name), the third is dead.
    decoded = decode(field("int"), b'{"x":0}', b'{"\\u0078":1}', b"{", b'{"x":3}')
    assert decoded.rows.column("x").to_pylist() == [0, 1, 3]
    assert decoded.kept.tolist() == [0, 1, 3]
    assert decoded.dead.tolist() == [2]


MIXED = [
    Column("x", "int", required=False),
    Column("b", "boolean", required=False),
    Column("s", "struct<t: string, l: list<optional string>>", required=False),
]
ESCAPED, WRONG, CUT = b'{"\\u0078":7,"s":{"t":"e","l":[]}}', b'{"x":"u1"}', b'{"x":'


@pytest.mark.parametrize("tombstones", ["dead", "keep"])
@pytest.mark.parametrize(
    "others",
    [
        {0: ESCAPED},
        {0: WRONG},
        {1023: ESCAPED},
        {1023: WRONG},
        {5: ESCAPED, 6: ESCAPED, 7: WRONG},
        {5: WRONG, 6: WRONG, 7: None, 1023: CUT},
        {0: ESCAPED, 1: CUT, 2: WRONG, 500: ESCAPED, 501: None, 1022: WRONG, 1023: ESCAPED},
        {at: (ESCAPED, WRONG, CUT, None)[at % 4] for at in range(0, 1024, 5)},
        dict.fromkeys(range(1024), ESCAPED),
        dict.fromkeys(range(1024), WRONG),
    ],
    ids=lambda others: f"{len(others)}-{min(others)}",
)
def test_a_batch_has_the_rows_and_reasons_of_its_records_by_themselves(
    others: dict[int, bytes | None], tombstones: Any
) -> None:
    values: list[bytes | None] = [
        b'{"x":%d,"b":%s,"s":{"t":"%d","l":["a",null]}}' % (at, (b"true", b"null")[at % 2], at)
        for at in range(1024)
    ]
    for at, value in others.items():
        values[at] = value
    decoder = JsonDecoder(Json(MIXED, tombstones=tombstones))
    # The batch is a part of a larger array, and its values have other bytes before them.
    framed = [None if value is None else b"12345" + value for value in values]
    whole = pa.array([b"before", *framed, b"after"], pa.binary())
    found = decoder.decode_values(whole[1:-1], prefix=5)
    apart = [decoder.decode_values(pa.array([value], pa.binary())) for value in values]
    assert found.rows.to_pylist() == [row for one in apart for row in one.rows.to_pylist()]
    assert found.rows.schema == decoder.schema
    assert found.kept.tolist() == [at for at, one in enumerate(apart) if not one.reasons]
    assert found.dead.tolist() == [at for at, one in enumerate(apart) if one.reasons]
    assert found.reasons == tuple(reason for one in apart for reason in one.reasons)


@pytest.mark.parametrize(
    "text", ["", "  ", "\n {", '{"x":', '{"x":1}  2', ' {"x":1}\n}', "\ufeff{}", '{"y":[1,]}', "-"]
)
def test_errors_of_the_grammar_are_those_of_the_json_module(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.JSONDecoder().decode(text)
    expected = f"!json: {caught.value.msg} at character {caught.value.pos}"
    assert outcome(field("int"), text.encode()) == expected


@pytest.mark.parametrize("number", [0, 7, -7, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**19])
def test_integers_of_any_length_are_exact(number: int) -> None:
    kept = -(2**63) <= number < 2**63
    expected = number if kept else f"!range: field x: {number} does not fit a long"
    # The kernels do not read escaped names.
    for name in ("x", "\\u0078"):
        assert outcome(field("long"), f'{{"{name}":{number}}}'.encode()) == expected


def test_two_columns_can_read_one_field() -> None:
    columns = [Column("a", "int", source="n"), Column("b", "decimal(4,1)", source="n")]
    decoded = JsonDecoder(Json(columns)).decode_values(pa.array([b'{"n":1}'], pa.binary()))
    assert decoded.rows.to_pylist() == [{"a": 1, "b": Decimal("1.0")}]


def test_a_value_of_64_mib_is_a_dead_letter() -> None:
    value = b'{"x":1,"y":"' + b"a" * (64 << 20) + b'"}'
    assert (
        outcome(field("int"), value)
        == f"!size: the value has {len(value)} bytes, more than {VALUE_BYTES_MAX}"
    )


def test_a_reason_is_short_for_any_value_and_name() -> None:
    column = Column("x", "int", source="n" * 5000)
    reason = outcome(column, b'{"' + b"n" * 5000 + b'":"' + "é".encode() * 9000 + b'"}')
    assert reason.startswith("!type: field nnn")
    assert len(reason) <= REASON_CHARS_MAX + 1


def test_a_slice_of_a_batch_is_decoded_with_its_own_positions() -> None:
    whole = pa.array([b'{"x":1}', None, b'{"x":3}', b'{"x":4}'], pa.binary())
    decoded = JsonDecoder(Json([field("int")])).decode_values(whole[1:3])
    assert decoded.rows.column("x").to_pylist() == [3]
    assert decoded.dead.tolist() == [0]


def test_an_empty_batch_decodes_to_no_rows() -> None:
    decoded = JsonDecoder(Json([field("int")])).decode_values(pa.array([], pa.binary()))
    assert decoded.rows.num_rows == 0
    assert decoded.rows.schema.names == ["x"]
