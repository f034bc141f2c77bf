"""Avro: rows equal to those of fastavro, a reason for each record that is not valid, and no crash for any bytes."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.avro.kernel import DEPTH_MAX, EMPTY_MAX
from tallystick.engine.decode.avro.reader import AvroReader
from tallystick.engine.decode.avro.rows import avro_decoder
from tallystick.engine.decode.avro.schema import avro_schema
from tallystick.engine.decode.decoder import Decoded
from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.source import Wanted
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column
from tallystick.pipeline.schema_formats import Avro


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def zigzag(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def big(number: int) -> bytes:
    """Return a decimal's unscaled number as Avro has it, with its length."""
    body = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    return zigzag(len(body)) + body


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def decode(schema: Any, columns: list[Column], *values: bytes | None, **options: Any) -> Decoded:
    declared = Avro(columns, schema=json.dumps(schema), **options).planned(())
    return avro_decoder(declared, ()).decode(batch(list(values)))


def kinds(decoded: Decoded) -> list[str]:
    return [str(reason).split(" (byte")[0] for reason in decoded.reasons]


# --- random schemas, compared with fastavro --------------------------------------------------------------------------

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw an Avro schema and the strategy of its values."""
    choice = draw(st.integers(0, 4 if depth else 0))
    name = f"n{draw(st.uuids()).hex}"
    if choice == 0:
        kind = draw(st.sampled_from([*_PRIMITIVES, "enum", "fixed"]))
        if kind == "enum":
            symbols = ["A", "B", "C"]
            return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
        return kind, _PRIMITIVES[kind]
    if choice == 1:
        parts = [draw(schemas(depth - 1)) for _ in range(draw(st.integers(1, 4)))]
        schema = record(*((f"f{n}", part) for n, (part, _) in enumerate(parts)), name=name)
        return schema, st.fixed_dictionaries({f"f{n}": v for n, (_, v) in enumerate(parts)})
    inner, values = draw(schemas(depth - 1))
    if choice == 2:
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if choice == 3:
        return {"type": "map", "values": inner}, st.dictionaries(
            st.text(max_size=4), values, max_size=4
        )
    if isinstance(inner, list) or inner == "null":
        return inner, values
    nullable = [inner, "null"] if draw(st.booleans()) else ["null", inner]
    return nullable, st.none() | values


def everything(schema: Any) -> Wanted:
    """Return that all of a schema is read."""
    found = Wanted()
    if isinstance(schema, list):
        (only,) = [part for part in schema if part != "null"]
        return everything(only)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        for part in schema["fields"]:
            found.fields[part["name"]] = everything(part["type"])
    elif kind in ("array", "map"):
        found.inside = everything(schema["items" if kind == "array" else "values"])
    else:
        found.whole = True
    return found


def plain(value: Any) -> Any:
    """Return a value of pyarrow as fastavro has it: maps as dicts."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(entry, tuple) for entry in value):
            return {key: plain(inner) for key, inner in value}
        return [plain(inner) for inner in value]
    return value


def without_empty(value: Any) -> Any:
    """Return a value in which an empty map is an empty list, because pyarrow shows both as a list."""
    if isinstance(value, dict):
        return {name: without_empty(inner) for name, inner in value.items()} or []
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_records_are_read_as_fastavro_reads_them(data: st.DataObject) -> None:
    inner, values = data.draw(schemas())
    schema = record(("v", inner), ("last", "int"), name="top")
    rows = data.draw(
        st.lists(st.fixed_dictionaries({"v": values, "last": st.integers(0, 9)}), max_size=5)
    )
    bodies = [encoded(schema, row) for row in rows]
    reader = AvroReader(json.dumps(schema), everything(schema))
    found = reader.read(pa.array(bodies, pa.binary()))
    assert not found.dead
    assert found.rows.type == reader.schema
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    expected = [fastavro.schemaless_reader(io.BytesIO(body), parsed, None) for body in bodies]
    assert without_empty(plain(found.rows.to_pylist())) == without_empty(expected)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_is_passed_over_does_not_move_what_is_read(data: st.DataObject) -> None:
    parts = [data.draw(schemas()) for _ in range(3)]
    schema = record(
        ("a", parts[0][0]),
        ("read", "long"),
        ("b", parts[1][0]),
        ("end", "string"),
        ("c", parts[2][0]),
    )
    rows = [
        {"read": n, "end": str(n)}
        | {name: data.draw(values) for name, (_, values) in zip("abc", parts, strict=True)}
        for n in range(3)
    ]
    decoded = decode(
        schema,
        [Column("read", "long"), Column("end", "string")],
        *(encoded(schema, r) for r in rows),
    )
    assert decoded.rows.to_pylist() == [{"read": n, "end": str(n)} for n in range(3)]


_FUZZED = record(
    ("id", "long"),
    ("u", ["null", "string", "long", {"type": "array", "items": "int"}]),
    ("m", {"type": "map", "values": {"type": "array", "items": ["null", "double"]}}),
    ("n", ["null", "r"]),
    ("d", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}),
    ("e", {"type": "enum", "name": "e", "symbols": ["A", "B"]}),
    ("x", {"type": "fixed", "name": "x", "size": 2}),
)
_FUZZED_COLUMNS = [
    Column("id", "long"),
    Column("s", "string", required=False, source="u.string"),
    Column("l", "list<optional int>", required=False, source="u.array"),
    Column("m", "map<string, list<optional double>>"),
    Column("next", "long", required=False, source="n.n.id"),
    Column("d", "decimal(20,3)"),
    Column("e", "string"),
    Column("x", "fixed[2]"),
]
_GOOD = encoded(
    _FUZZED,
    {
        "id": 7,
        "u": "text",
        "m": {"k": [1.5, None]},
        "n": {"id": 8, "u": [1, 2], "m": {}, "n": None, "d": Decimal("1.5"), "e": "A", "x": b"ab"},
        "d": Decimal("-0.125"),
        "e": "B",
        "x": b"cd",
    },
)


@settings(max_examples=500, deadline=None)
@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, len(_GOOD)), st.integers(0, 9), st.binary(max_size=9))
)
def test_any_bytes_are_a_row_or_a_dead_letter_with_a_reason(change: Any) -> None:
    body = change
    if isinstance(change, tuple):
        at, removed, inserted = change
        body = _GOOD[:at] + inserted + _GOOD[at + removed :]
    decoded = decode(_FUZZED, _FUZZED_COLUMNS, _GOOD, body, _GOOD)
    # The records around it are read in any case.
    assert {0, 2} <= set(decoded.kept.tolist())
    assert len(decoded.kept) + len(decoded.dead) == 3
    parsed = fastavro.parse_schema(json.loads(json.dumps(_FUZZED)))
    source = io.BytesIO(body)
    if 1 in decoded.kept:
        expected: Any = fastavro.schemaless_reader(source, parsed, None)
        assert source.read() == b""
        row = decoded.rows.to_pylist()[1]
        assert (row["id"], row["e"], row["x"]) == (expected["id"], expected["e"], expected["x"])
        assert row["d"] == expected["d"]
        assert dict(row["m"]) == expected["m"]


# --- types -----------------------------------------------------------------------------------------------------------

_MICROS = 1_577_934_245_123_456
TYPES: list[tuple[Any, bytes, str, Any]] = [
    ("int", zigzag(-5), "long", -5),
    ("int", zigzag(5), "double", 5.0),
    ("long", zigzag(2**53), "double", 2.0**53),
    ("long", zigzag(7), "int", 7),
    ("long", zigzag(1250), "decimal(9,2)", Decimal("1250.00")),
    ("float", struct.pack("<f", 1.5), "double", 1.5),
    ("double", struct.pack("<d", 0.5), "float", 0.5),
    ("string", zigzag(2) + b"hi", "string", "hi"),
    ("string", zigzag(10) + b"2020-01-02", "date", "2020-01-02"),
    ("string", zigzag(4) + b"1.25", "decimal(9,2)", Decimal("1.25")),
    ("bytes", zigzag(2) + b"\x00\xff", "binary", b"\x00\xff"),
    ("bytes", zigzag(2) + b"\x00\xff", "fixed[2]", b"\x00\xff"),
    ({"type": "int", "logicalType": "date"}, zigzag(18_263), "date", "2020-01-02"),
    ({"type": "int", "logicalType": "time-millis"}, zigzag(1_500), "time", "00:00:01.500000"),
    ({"type": "long", "logicalType": "time-micros"}, zigzag(7), "time", "00:00:00.000007"),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        zigzag(_MICROS // 1000),
        "timestamptz",
        _MICROS // 1000 * 1000,
    ),
    ({"type": "long", "logicalType": "timestamp-micros"}, zigzag(_MICROS), "timestamptz", _MICROS),
    (
        {"type": "long", "logicalType": "timestamp-nanos"},
        zigzag(_MICROS * 1000),
        "timestamptz",
        _MICROS,
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        zigzag(_MICROS),
        "timestamp",
        _MICROS,
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        zigzag(36) + b"00000000-0000-0000-0000-000000000001",
        "uuid",
        UUID(int=1),
    ),
    (
        {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        bytes(15) + b"\x01",
        "uuid",
        UUID(int=1),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        zigzag(1) + b"\xff",
        "decimal(9,2)",
        Decimal("-0.01"),
    ),
    (
        {"type": "fixed", "name": "d", "size": 18, "logicalType": "decimal", "precision": 38},
        b"\xff" * 18,
        "decimal(38,0)",
        Decimal(-1),
    ),
    # A logical type that does not fit its type, or that nothing defines, is ignored.
    ({"type": "string", "logicalType": "timestamp-millis"}, zigzag(1) + b"x", "string", "x"),
    ({"type": "long", "logicalType": "seconds"}, zigzag(3), "long", 3),
]


@pytest.mark.parametrize(("kind", "body", "column", "expected"), TYPES, ids=str)
def test_each_type_is_read_into_each_column_that_holds_it(
    kind: Any, body: bytes, column: str, expected: Any
) -> None:
    decoded = decode(record(("v", kind)), [Column("v", column)], body)
    assert not decoded.reasons
    cell = decoded.rows.column("v")[0]
    found = cell.value if pa.types.is_timestamp(cell.type) else cell.as_py()
    assert str(found) == expected if column in ("date", "time") else found == expected


MISFITS: list[tuple[Any, bytes, str, str]] = [
    ("long", zigzag(2**31), "int", "range: field v: 2147483648 does not fit an int"),
    (
        "long",
        zigzag(2**53 + 1),
        "double",
        "inexact: field v: 9007199254740993 cannot be a double unrounded",
    ),
    (
        "double",
        struct.pack("<d", 0.1),
        "float",
        "inexact: field v: 0.1 cannot be a float unrounded",
    ),
    ("bytes", zigzag(2) + b"ab", "fixed[3]", "range: field v: 0x6162 has not 3 bytes"),
    ("string", zigzag(2) + b"\xff\xfe", "string", "utf8: field v: the string is not UTF-8"),
    ("string", zigzag(3) + b"abc", "date", 'time: field v: "abc" is not a date like 2013-01-31'),
    (
        {"type": "int", "logicalType": "date"},
        zigzag(3_000_000),
        "date",
        "range: field v: 3000000 days lies outside the years 1 to 9999",
    ),
    (
        {"type": "int", "logicalType": "time-millis"},
        zigzag(-1),
        "time",
        "range: field v: -1000 microseconds is no time of day",
    ),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        zigzag(2**62),
        "timestamptz",
        f"range: field v: {2**62} ms lies outside the years 1 to 9999",
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        zigzag(-(2**63)),
        "timestamptz",
        f"range: field v: {-(2**63)} us lies outside the years 1 to 9999",
    ),
    (
        {"type": "long", "logicalType": "timestamp-nanos"},
        zigzag(1001),
        "timestamptz",
        "inexact: field v: 1001 ns is finer than a microsecond",
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        zigzag(2) + b"\x7f\xff",
        "decimal(4,2)",
        "range: field v: 327.67 does not fit a decimal(4,2)",
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        zigzag(17) + b"\x01" * 17,
        "decimal(9,2)",
        "range: field v: the decimal has more than 38 digits",
    ),
    (["null", "long"], zigzag(0), "long", "null: field v: required and null"),
]


@pytest.mark.parametrize(("kind", "body", "column", "reason"), MISFITS, ids=str)
def test_a_value_that_the_column_cannot_hold_is_a_dead_letter(
    kind: Any, body: bytes, column: str, reason: str
) -> None:
    good_kind = kind if isinstance(kind, list) else ["null", kind]
    decoded = decode(
        record(("v", good_kind)),
        [Column("v", column, required=isinstance(kind, list))],
        body if isinstance(kind, list) else zigzag(1) + body,
        zigzag(1) + zigzag(1) if isinstance(kind, list) else zigzag(0),
    )
    assert [str(r) for r in decoded.reasons] == [reason]
    assert decoded.kept.tolist() == [1]


@pytest.mark.parametrize("column", ["float", "double"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -0.0])
def test_nan_and_infinity_are_values(column: str, number: float) -> None:
    decoded = decode(record(("v", "double")), [Column("v", column)], struct.pack("<d", number))
    assert str(decoded.rows.column("v")[0].as_py()) == str(number)


def test_a_union_of_several_types_is_a_struct_with_a_field_per_type() -> None:
    event = record(("id", "long"), name="shop.Created")
    schema = record(("v", ["null", "string", "long", event]))
    columns = [
        Column("text", "string", required=False, source="v.string"),
        Column(
            "all",
            "struct<long: optional long, Created: optional struct<id: long>>",
            required=False,
            source="v",
        ),
    ]
    decoded = decode(
        schema, columns, *(encoded(schema, {"v": v}) for v in (None, "a", 5, {"id": 6}))
    )
    assert decoded.rows.to_pylist() == [
        {"text": None, "all": None},
        {"text": "a", "all": {"long": None, "Created": None}},
        {"text": None, "all": {"long": 5, "Created": None}},
        {"text": None, "all": {"long": None, "Created": {"id": 6}}},
    ]


def test_a_topic_of_several_record_types_has_a_struct_per_type() -> None:
    schema = [record(("id", "long"), name="A"), record(("name", "string"), name="B")]
    columns = [
        Column("id", "long", required=False, source="A.id"),
        Column("name", "string", required=False, source="B.name"),
    ]
    decoded = decode(schema, columns, zigzag(0) + zigzag(4), zigzag(1) + zigzag(1) + b"x")
    assert decoded.rows.to_pylist() == [{"id": 4, "name": None}, {"id": None, "name": "x"}]


@pytest.mark.parametrize("schema", ["long", ["null", "long"]], ids=str)
def test_a_value_whose_schema_is_no_record_is_the_field_value(schema: Any) -> None:
    body = zigzag(9) if schema == "long" else zigzag(1) + zigzag(9)
    assert decode(schema, [Column("id", "long", source="value")], body).rows.to_pylist() == [
        {"id": 9}
    ]


def test_paths_lead_into_lists_maps_and_nullable_records() -> None:
    schema = record(
        ("items", {"type": "array", "items": record(("sku", "string"), name="i")}),
        ("attrs", {"type": "map", "values": "long"}),
        ("dev", ["null", record(("os", "string"), name="d")]),
    )
    columns = [
        Column("second", "string", required=False, source="items[1].sku"),
        Column("a", "long", required=False, source="attrs.a"),
        Column("os", "string", required=False, source="dev.os"),
    ]
    rows = [
        {"items": [{"sku": "x"}, {"sku": "y"}], "attrs": {"b": 1, "a": 2}, "dev": {"os": "o"}},
        {"items": [{"sku": "x"}], "attrs": {"b": 1}, "dev": None},
    ]
    decoded = decode(schema, columns, *(encoded(schema, row) for row in rows))
    assert decoded.rows.to_pylist() == [
        {"second": "y", "a": 2, "os": "o"},
        {"second": None, "a": None, "os": None},
    ]


# --- hostile input ---------------------------------------------------------------------------------------------------

_LINKED = record(("v", "int"), ("next", ["null", "r"]))


def linked(depth: int) -> bytes:
    return (zigzag(1) + zigzag(1)) * depth + zigzag(1) + zigzag(0)


HOSTILE: list[tuple[Any, bytes, str]] = [
    (
        "string",
        zigzag(1 << 40) + b"x",
        "truncated: field v: the value runs past the end of the record",
    ),
    ("bytes", zigzag(-1), "length: field v: the length is negative"),
    ("long", b"\xff" * 10, "varint: field v: the number has more bits than its type"),
    ("int", zigzag(1 << 40), "varint: field v: the number has more bits than its type"),
    ("boolean", b"\x02", "boolean: field v: the byte is neither 0 nor 1"),
    (["null", "long"], zigzag(2), "union: field v: the union has no such branch"),
    (
        {"type": "enum", "name": "e", "symbols": ["A"]},
        zigzag(1),
        "enum: field v: the enum has no such symbol",
    ),
    ("double", b"\x00" * 7, "truncated: field v: the value runs past the end of the record"),
    ("long", zigzag(1) + b"\x00", "trailing: the record has more bytes than its schema describes"),
    # Elements without bytes: their number is all that a record needs to hold any amount of them.
    (
        {"type": "array", "items": "null"},
        zigzag(1 << 60) + zigzag(0),
        f"size: field v: the record has more than {ELEMENTS_MAX} elements",
    ),
    (
        {"type": "array", "items": record(name="empty")},
        zigzag(ELEMENTS_MAX + 1) + zigzag(0),
        f"size: field v: the record has more than {ELEMENTS_MAX} elements",
    ),
    (
        {"type": "array", "items": "long"},
        zigzag(-1) + zigzag(1 << 50),
        "truncated: field v: the value runs past the end of the record",
    ),
    (
        {"type": "array", "items": "long"},
        zigzag(-(1 << 63)) + zigzag(0),
        f"size: field v: the record has more than {ELEMENTS_MAX} elements",
    ),
    (
        {"type": "array", "items": "long"},
        zigzag(-1) + zigzag(2) + zigzag(5) + zigzag(0),
        "length: field v: the block has another size than it states",
    ),
    (
        {"type": "map", "values": "long"},
        zigzag(1) + zigzag(1 << 40),
        "truncated: field v: the value runs past the end of the record",
    ),
]


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "passed over"])
@pytest.mark.parametrize(("kind", "body", "reason"), HOSTILE, ids=str)
def test_hostile_values_are_dead_letters(
    kind: Any, body: bytes, reason: str, *, is_read: bool
) -> None:
    schema = record(("first", "int"), ("v", kind))
    fields = Wanted()
    fields.field("first").whole = True
    if is_read:
        fields.fields["v"] = everything(kind)
    found = AvroReader(json.dumps(schema), fields).read(pa.array([zigzag(1) + body], pa.binary()))
    expected = reason if is_read or "array" not in str(kind) else reason.replace("[]", "")
    assert [str(r).split(" (byte")[0] for r in found.dead.values()] == [expected]


def test_a_recursive_record_is_read_as_deep_as_the_columns_go_and_passed_over_below() -> None:
    columns = [Column("v", "int"), Column("third", "int", required=False, source="next.next.v")]
    decoded = decode(
        _LINKED, columns, linked(0), linked(3), linked(DEPTH_MAX - 1), linked(DEPTH_MAX + 5)
    )
    assert decoded.rows.column("third").to_pylist() == [None, 1, 1]
    assert kinds(decoded) == [f"depth: field r.next: nested deeper than {DEPTH_MAX}"]


def test_a_schema_whose_types_contain_each_other_many_times_makes_a_small_program() -> None:
    inner: Any = "long"
    for level in range(30):
        inner = record(
            *(
                (f"f{n}", inner if n == 0 else f"t{level - 1}" if level else "long")
                for n in range(8)
            ),
            name=f"t{level}",
        )
    schema = record(("deep", inner), ("v", "long"))
    reader = AvroReader(json.dumps(schema), everything(record(("v", "long"))))
    found = reader.read(pa.array([b""], pa.binary()))
    assert [r.kind for r in found.dead.values()] == ["truncated"]


BAD_SCHEMAS: list[tuple[Any, str]] = [
    ("nothing", "expected the name of a type, found 'nothing', which is not declared"),
    ({"type": "record", "name": "r"}, "expected the fields of r, found None"),
    (record(("a", "long"), ("a", "long")), "expected each field of r once, found 'a' twice"),
    (record(("a", record(name="r"))), "expected each name once, found 'r' twice"),
    ({"type": "enum", "name": "e", "symbols": []}, "expected 1 to 10000 different symbols of e"),
    (
        {"type": "fixed", "name": "f", "size": 1 << 40},
        f"expected 1 to {1 << 20} bytes of f, found {1 << 40}",
    ),
    (["long", "long"], "expected a union of different types, found ['long', 'long']"),
    (["null", ["long"]], "expected no union directly in a union, found one"),
    ({"type": "array"}, "expected a type, found None"),
    (5, "expected a type, found 5"),
]


@pytest.mark.parametrize(("schema", "problem"), BAD_SCHEMAS, ids=str)
def test_an_invalid_schema_is_refused_with_the_place(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        avro_schema(json.dumps(schema))
    assert problem in refused.value.message


def test_a_schema_nested_without_end_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="nested at most 64 deep"):
        avro_schema('{"type":"array","items":' * 500 + '"long"' + "}" * 500)


def test_references_are_names_of_other_schemas() -> None:
    address = record(("city", "string"), name="shop.Address")
    order = {**record(("to", "Address"), name="Order"), "namespace": "shop"}
    reader = AvroReader(
        json.dumps(order), everything(record(("to", address))), [json.dumps(address)]
    )
    assert reader.schema == pa.struct([("to", pa.struct([("city", pa.string())]))])


# --- columns that do not fit a schema, and tombstones ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (Column("v", "string"), "type: field v: expected string, found long"),
        (Column("w", "long"), "missing: field w: required, and not in the schema"),
        (
            Column("x", "long", source="v.x"),
            "type: field v.x: expected a struct with the field 'x', found long",
        ),
        (Column("v", "list<long>"), "type: field v: expected list<long>, found long"),
    ],
)
def test_a_column_that_does_not_fit_the_schema_is_refused_before_any_record(
    column: Column, problem: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        decode(record(("v", "long")), [column], b"")
    assert problem in refused.value.message


def test_an_optional_column_that_the_schema_lacks_is_null() -> None:
    columns = [Column("v", "long"), Column("new", "list<string>", required=False)]
    decoded = decode(record(("v", "long")), columns, zigzag(3))
    assert decoded.rows.to_pylist() == [{"v": 3, "new": None}]


@pytest.mark.parametrize("tombstones", ["dead", "keep"])
def test_a_tombstone_is_a_dead_letter_or_a_row_of_nulls(tombstones: str) -> None:
    columns = [Column("v", "long", required=False)]
    decoded = decode(
        record(("v", "long")), columns, zigzag(1), None, zigzag(2), tombstones=tombstones
    )
    rows = [row["v"] for row in decoded.rows.to_pylist()]
    if tombstones == "keep":
        assert (rows, decoded.kept.tolist()) == ([1, None, 2], [0, 1, 2])
    else:
        assert (rows, kinds(decoded)) == ([1, 2], ["tombstone: the value is null"])


# --- what depends on the value alone, and not on its batch ------------------------------------------------------------

LIMITS: list[tuple[Any, bytes, str, str]] = [
    # Arrow's cast multiplies by 10**30, and does not notice that 128 bits overflow.
    (
        "long",
        zigzag(340282367),
        "decimal(38,30)",
        "range: field v: 340282367 does not fit a decimal(38,30)",
    ),
    (
        decimal(38, 2),
        big(3902823669209384634633746074317682114),
        "decimal(38,4)",
        "range: field v: 39028236692093846346337460743176821.14 does not fit a decimal(38,4)",
    ),
    (
        decimal(38, 0),
        big(10**38),
        "decimal(38,0)",
        "range: field v: the decimal has more than 38 digits",
    ),
    (
        decimal(38, 0),
        big(-(10**38)),
        "decimal(38,0)",
        "range: field v: the decimal has more than 38 digits",
    ),
    (
        decimal(38, 0),
        big(-(2**127)),
        "decimal(38,0)",
        "range: field v: the decimal has more than 38 digits",
    ),
    (decimal(9, 2), big(125), "decimal(9,1)", "inexact: field v: 1.25 has more than 1 decimals"),
    (
        decimal(38, 2),
        big(10**37),
        "decimal(9,1)",
        "range: field v: 100000000000000000000000000000000000.00 does not fit a decimal(9,1)",
    ),
    ("int", zigzag(2**31 - 1), "float", "inexact: field v: 2147483647 cannot be a float unrounded"),
    (
        "long",
        zigzag(2**63 - 1),
        "double",
        "inexact: field v: 9223372036854775807 cannot be a double unrounded",
    ),
    (
        {"type": "map", "values": "int"},
        zigzag(2) + (zigzag(1) + b"k" + zigzag(1)) * 2 + zigzag(0),
        "map<string, int>",
        "duplicate: field v: a key occurs twice",
    ),
    (
        {"type": "map", "values": "int"},
        zigzag(1) + zigzag(1) + b"\xff" + zigzag(1) + zigzag(0),
        "map<int, int>",
        "utf8: field v: the string is not UTF-8",
    ),
]
EXACT: list[tuple[Any, bytes, str, Any]] = [
    (decimal(38, 0), big(10**38 - 1), "decimal(38,0)", Decimal(10**38 - 1)),
    (decimal(38, 0), big(-(10**38) + 1), "decimal(38,0)", Decimal(-(10**38) + 1)),
    (decimal(9, 2), big(-150), "decimal(9,1)", Decimal("-1.5")),
    ("long", zigzag(-(10**7)), "decimal(38,30)", Decimal(-(10**7))),
    ("long", zigzag(-(2**63)), "double", -(2.0**63)),
    ("int", zigzag(-(2**31)), "float", -(2.0**31)),
]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a batch"])
@pytest.mark.parametrize(("kind", "body", "column", "reason"), LIMITS, ids=str)
def test_a_value_at_a_limit_has_the_same_reason_alone_and_in_a_batch(
    kind: Any, body: bytes, column: str, reason: str, *, alone: bool
) -> None:
    schema = record(("v", ["null", kind]))
    values = [zigzag(1) + body] if alone else [zigzag(1) + body, zigzag(0), zigzag(1) + body]
    decoded = decode(schema, [Column("v", column, required=False)], *values)
    assert [str(r) for r in decoded.reasons] == [reason] * (1 if alone else 2)


@pytest.mark.parametrize(("kind", "body", "column", "expected"), EXACT, ids=str)
def test_a_value_at_a_limit_that_fits_is_exact(
    kind: Any, body: bytes, column: str, expected: Any
) -> None:
    decoded = decode(record(("v", kind)), [Column("v", column)], body)
    assert decoded.rows.column("v").to_pylist() == [expected], decoded.reasons
    decoded.rows.validate(full=True)


@pytest.mark.parametrize("required", [True, False])
def test_a_null_record_of_which_no_field_is_read_is_null(*, required: bool) -> None:
    schema = record(("device", ["null", record(("model", "string"), name="d")]))
    column = Column("device", "struct<os: optional string>", required=required)
    decoded = decode(schema, [column], zigzag(0), zigzag(1) + zigzag(1) + b"m")
    rows = [row["device"] for row in decoded.rows.to_pylist()]
    assert rows == ([{"os": None}] if required else [None, {"os": None}])
    assert kinds(decoded) == (["null: field device: required and null"] if required else [])


def test_a_path_into_a_map_refuses_a_key_that_is_there_twice() -> None:
    schema = record(("m", {"type": "map", "values": "int"}))
    entry = zigzag(1) + b"k"
    decoded = decode(
        schema,
        [Column("v", "int", required=False, source="m.k")],
        zigzag(2) + entry + zigzag(1) + entry + zigzag(2) + zigzag(0),
        zigzag(1) + entry + zigzag(3) + zigzag(0),
    )
    assert decoded.rows.to_pylist() == [{"v": 3}]
    assert kinds(decoded) == ["duplicate: field m.k: a key occurs twice"]


@pytest.mark.parametrize("column", ["fixed[16]", "uuid", "fixed[19]"])
def test_a_fixed_of_another_width_never_fits_and_is_refused_before_any_record(column: str) -> None:
    kind = {"type": "fixed", "name": "f", "size": 20}
    with pytest.raises(InvalidPipeline, match=r"type: field v: expected .*, found fixed\[20\]"):
        decode(record(("v", kind)), [Column("v", column)], bytes(20))


def test_a_list_of_records_with_a_uuid_may_have_no_element_in_a_batch() -> None:
    item = record(("u", {"type": "string", "logicalType": "uuid"}), name="i")
    schema = record(("l", ["null", {"type": "array", "items": item}]))
    columns = [Column("l", "list<struct<u: uuid>>", required=False)]
    assert decode(schema, columns, zigzag(0)).rows.to_pylist() == [{"l": None}]
    required = decode(schema, [Column("l", "list<struct<u: uuid>>")], zigzag(0), b"")
    assert [r.kind for r in required.reasons] == ["null", "truncated"]


@pytest.mark.parametrize("columns", ["list<optional fixed[65536]>", "list<optional binary>"])
def test_memory_is_limited_by_what_values_take_and_not_by_the_bytes_of_a_record(
    columns: str,
) -> None:
    kind = {"type": "array", "items": ["null", {"type": "fixed", "name": "f", "size": 65536}]}
    nulls = zigzag(100_000) + zigzag(0) * 100_000 + zigzag(0)
    decoded = decode(
        record(("v", kind)), [Column("v", columns)], nulls, zigzag(1) + zigzag(0) + zigzag(0)
    )
    assert [r.kind for r in decoded.reasons] == ["size"]
    assert decoded.rows.to_pylist() == [{"v": [None]}]


def test_elements_without_bytes_are_limited_since_they_cost_time() -> None:
    empty = record(*((f"f{n}", "null") for n in range(200)), name="empty")
    schema = record(("v", {"type": "array", "items": empty}), ("n", "int"))

    def body(count: int) -> bytes:
        return zigzag(count) + zigzag(0) + zigzag(7)

    decoded = decode(
        schema, [Column("n", "int")], body(EMPTY_MAX), body(EMPTY_MAX + 1), body(900_000)
    )
    assert decoded.rows.to_pylist() == [{"n": 7}]
    assert set(kinds(decoded)) == {
        f"size: field v: the record has more than {EMPTY_MAX} elements without bytes"
    }


def test_a_field_of_only_null_is_null_in_a_column_of_any_type() -> None:
    schema = record(("a", "null"), ("b", ["null"]))
    columns = [
        Column("a", "list<struct<x: int>>", required=False),
        Column("b", "map<string, int>", required=False),
    ]
    assert decode(schema, columns, zigzag(0)).rows.to_pylist() == [{"a": None, "b": None}]


def test_a_namespace_of_null_is_none() -> None:
    avro_schema(json.dumps({**record(("a", "long")), "namespace": None}))
