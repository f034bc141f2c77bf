"""Nested columns that a job returns: values stay the same in the declared types, and what does not fit is refused."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.engine.conform import as_declared, fits
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column
from tallystick.tables.schema import arrow_field, type_name

NUMBER = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
UTC_US = pa.timestamp("us", "UTC")


def declared(kind: str, values: pa.Array, *, required: bool = False) -> pa.ChunkedArray:
    field = arrow_field(Column("c", kind, required))
    chunks = [values.slice(0, 1), values.slice(1)]
    found = as_declared(pa.chunked_array(chunks, values.type), field, "table t")
    assert found.type == field.type
    # The writer refuses nulls below a required field, also if the struct around it is null.
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([found], schema=pa.schema([field])), sink)
    assert pq.read_table(sink).column(0).to_pylist() == found.to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "given", "values"),
    [
        ("list<string>", pa.list_(pa.large_string()), [["a"], None, []]),
        ("list<optional long>", pa.large_list(pa.int16()), [[1, None], [], None]),
        ("list<long>", pa.list_(pa.int32(), 2), [[1, 2], [3, 4]]),
        (
            "struct<a: long, b: optional string>",
            pa.struct([("b", pa.string()), ("a", pa.int8())]),
            [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}],
        ),
        (
            "map<string, list<double>>",
            pa.map_(pa.string(), pa.list_(pa.float32())),
            [[("a", [0.5])], None, [], [("b", [])]],
        ),
        (
            "struct<s: struct<l: list<struct<n: int>>>>",
            pa.struct([("s", pa.struct([("l", pa.list_(pa.struct([("n", pa.int32())])))]))]),
            [{"s": {"l": [{"n": 1}]}}, None, {"s": {"l": []}}],
        ),
        ("list<optional timestamptz>", pa.list_(pa.timestamp("s", "UTC")), [[None, None], None]),
        ("list<optional int>", pa.null(), [None, None]),
        ("struct<a: optional list<int>>", pa.struct([("a", pa.null())]), [{"a": None}, None]),
    ],
)
def test_values_stay_the_same_in_the_declared_type(
    kind: str, given: Any, values: list[Any]
) -> None:
    found = declared(kind, pa.array(values, given))
    assert found.to_pylist() == values


@pytest.mark.parametrize("given", [pa.uuid(), pa.binary(16), pa.string(), pa.large_string()])
def test_a_uuid_may_be_bytes_or_text(given: pa.DataType) -> None:
    value = str(NUMBER) if pa.types.is_string(given) or pa.types.is_large_string(given) else None
    found = declared("uuid", pa.array([value or NUMBER.bytes, None, None], given))
    assert found.to_pylist() == [NUMBER, None, None]
    inside = pa.ListArray.from_arrays([0, 1, 2], pa.array([value or NUMBER.bytes] * 2, given))
    assert declared("list<uuid>", inside).to_pylist() == [[NUMBER]] * 2


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (
            "list<int>",
            pa.array([[1, None], None]),
            "column 'c': expected list<int>, found list<optional long>",
        ),
        (
            "list<long>",
            pa.array([[1, None], None]),
            "column 'c', its elements, which are required: expected no nulls, found 1",
        ),
        (
            "struct<a: long>",
            pa.array([{"a": None}, None, {"a": 1}]),
            "field 'a', which is required: expected no nulls, found 1",
        ),
        (
            "struct<a: long, b: int>",
            pa.array([{"a": 1}]),
            "expected struct<a: long, b: int>, found struct<a: optional long>",
        ),
        (
            "map<string, long>",
            pa.array([[("a", None)], []], pa.map_(pa.string(), pa.int64())),
            "field 'value', which is required: expected no nulls, found 1",
        ),
        (
            "list<timestamptz>",
            pa.array([[300_000_000_000_000_000]] * 2).cast(pa.list_(UTC_US)),
            "its elements: 300000000000000000 microseconds since 1970 lies outside the years",
        ),
        (
            "map<string, long>",
            pa.array(
                [[("a", 1)], [("b", 1), ("a", 2), ("b", 3)]], pa.map_(pa.string(), pa.int64())
            ),
            "expected each key of a map once, found a key twice",
        ),
        (
            "map<uuid, long>",
            pa.array([[], [(str(NUMBER), 1), (str(NUMBER), 2)]], pa.map_(pa.string(), pa.int64())),
            "expected each key of a map once, found a key twice",
        ),
        ("fixed[2]", pa.array([b"abc", None]), "column 'c': "),
        ("uuid", pa.array(["x", None]), "expected a UUID, found 'x'"),
        ("list<uuid>", pa.array([["x"], None]), "expected a UUID, found 'x'"),
        ("time", pa.array([1, None], pa.time64("ns")), "would lose data"),
        ("list<int>", pa.array(["x", None]), "expected list<int>, found string"),
        ("map<string, int>", pa.array([{"a": 1}, None]), "expected map<string, int>, found struct"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    kind: str, values: pa.Array, problem: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        declared(kind, values)
    assert problem in refused.value.message


@pytest.mark.parametrize("given", [pa.binary(), pa.large_binary(), pa.binary(2)])
def test_bytes_of_the_length_are_a_fixed_value(given: pa.DataType) -> None:
    """Spark has one type for bytes of any length."""
    assert declared("fixed[2]", pa.array([b"ab", None], given)).to_pylist() == [b"ab", None]


def test_two_maps_may_have_the_same_key() -> None:
    values = pa.array([[("a", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64()))
    assert declared("map<string, long>", values).to_pylist() == [[("a", 1)], [("a", 2)]]


def test_what_is_below_a_null_is_not_checked() -> None:
    """Arrow keeps some value below a null struct or list: it has no meaning, so it may be anything."""
    far = pa.array([300_000_000_000_000_000, 0]).cast(UTC_US)
    mask = pa.array([True, False])
    struct = pa.StructArray.from_arrays([far], ["t"], mask=mask)
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    assert declared("struct<t: timestamptz>", struct).to_pylist() == [None, {"t": moment}]
    offsets = pa.array([0, 1, 2], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, far, mask=mask)
    assert declared("list<timestamptz>", lists).to_pylist() == [None, [moment]]
    entries = [pa.array(["a", "b"]), far]
    maps = pa.MapArray.from_arrays(offsets, *entries, mask=mask)
    assert declared("map<string, timestamptz>", maps).to_pylist() == [None, [("b", moment)]]


def test_slices_are_read_from_their_beginning() -> None:
    values = [[("x", [9])], [("a", [1, 2])], None, [("b", [])]]
    typed = pa.array(values, pa.map_(pa.string(), pa.list_(pa.int64())))
    found = declared("map<string, list<long>>", typed.slice(1))
    assert found.to_pylist() == [[("a", [1, 2])], None, [("b", [])]]


def test_types_are_named_as_a_column_declares_them() -> None:
    kind = pa.struct([pa.field("a", pa.list_(pa.field("item", pa.int64(), nullable=False)))])
    assert type_name(kind) == "struct<a: optional list<long>>"
    assert type_name(pa.list_(pa.uint8())) == "list<item: uint8>"
    assert fits(kind, arrow_field(Column("c", "struct<a: list<long>>")).type)
