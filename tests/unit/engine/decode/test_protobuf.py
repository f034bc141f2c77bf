"""The Protobuf reader: the types and nullability of its arrays, what it reads, and the reasons of dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from tallystick.engine.decode import halves
from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.protobuf.descriptors import message_type
from tallystick.engine.decode.protobuf.parse import DEPTH_MAX
from tallystick.engine.decode.protobuf.reader import ProtobufReader
from tallystick.engine.decode.source import SourceRows, Wanted, wanted
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column
from unit.engine.decode.protobuf_oracle import (
    chunk,
    compiled,
    everything,
    runtime_class,
    tag,
    varint,
)

TESTS = Path(__file__).parents[3]
EVERYTHING, OLD = compiled("everything.proto"), compiled("old.proto")
EDITION = compiled("edition.proto")


def reader_of(message: str, *columns: Column, depth: int = 3) -> ProtobufReader:
    """Return a reader of some columns, or of all fields down to `depth`."""
    descriptors = next(
        found
        for prefix, found in (("old.", OLD), ("edition.", EDITION), ("", EVERYTHING))
        if message.startswith(prefix)
    )
    name = f"tests.{message}"
    fields = wanted(columns) if columns else everything(message_type(descriptors, name), depth)
    return ProtobufReader(descriptors, name, fields)


def read(reader: ProtobufReader, *values: bytes) -> SourceRows:
    found = reader.read(pa.array(values, pa.binary()))
    found.rows.validate(full=True)
    assert found.rows.type == reader.schema
    return found


def row(message: str, value: bytes, *columns: Column) -> dict[str, Any]:
    """Return the row of one value, which must have one."""
    found = read(reader_of(message, *columns), value)
    assert not found.dead
    only: dict[str, Any] = found.rows.to_pylist(maps_as_pydicts="strict")[0]
    return only


def reason(message: str, value: bytes, *columns: Column) -> tuple[str, str | None, str]:
    """Return the kind, field and detail of the only reason, and check that the records around it are rows."""
    reader = reader_of(message, *columns)
    found = read(reader, b"", value, b"")
    assert list(found.dead) == [1]
    only = found.dead[1]
    return only.kind, only.field, only.detail


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("message", "field", "kind", "nullable"),
    [
        ("Scalars", "i32", "int32", False),
        ("Scalars", "i64", "int64", False),
        ("Scalars", "u32", "uint32", False),
        ("Scalars", "u64", "uint64", False),
        ("Scalars", "s32", "int32", False),
        ("Scalars", "s64", "int64", False),
        ("Scalars", "f32", "uint32", False),
        ("Scalars", "f64", "uint64", False),
        ("Scalars", "sf32", "int32", False),
        ("Scalars", "sf64", "int64", False),
        ("Scalars", "single", "float", False),
        ("Scalars", "pair", "double", False),
        ("Scalars", "flag", "bool", False),
        ("Scalars", "text", "string", False),
        ("Scalars", "data", "binary", False),
        ("Scalars", "color", "string", False),
        ("Optionals", "i32", "int32", True),
        ("Optionals", "two", "string", True),
        ("Choices", "number", "int32", True),
        ("Choices", "between", "int32", False),
        ("Lists", "i32", "list<element: int32 not null>", False),
        ("Lists", "words", "list<element: string not null>", False),
        ("Maps", "s32", "map<int32, bool ('s32')>", False),
        ("Known", "at", "timestamp[us, tz=UTC]", True),
        ("Known", "lasts", "struct<seconds: int64 not null, nanos: int32 not null>", True),
        ("Known", "u64", "uint64", True),
        ("Known", "data", "binary", True),
        ("Everything", "empty", "struct<>", True),
        ("old.Old", "id", "int64", False),
        ("old.Old", "plain", "int32", True),
        ("old.Old", "number", "int32", False),
        ("old.Old", "size", "string", True),
        ("old.Old", "other", "string", False),
        ("old.Old", "chosen_size", "string", True),
        ("edition.Edition", "explicit", "int32", True),
        ("edition.Edition", "implicit", "int32", False),
        ("edition.Edition", "required", "int32", False),
        ("edition.Edition", "number", "int32", False),
    ],
)
def test_a_field_has_the_type_of_its_values_and_is_null_if_it_can_be_absent(
    message: str, field: str, kind: str, nullable: bool
) -> None:
    found = reader_of(message).schema.field(field)
    assert found.nullable is nullable
    if pa.types.is_map(found.type):
        assert found.type == pa.map_(
            pa.field("key", pa.int32(), nullable=False),
            pa.field("value", pa.bool_(), nullable=False),
        )
    else:
        assert str(found.type) == kind


def test_an_empty_message_has_default_values_or_nulls() -> None:
    assert row("Optionals", b"") == dict.fromkeys(
        ("i32", "u64", "s32", "pair", "flag", "text", "data", "two", "scalars")
    )
    scalars = row("Scalars", b"")
    assert (scalars["text"], scalars["data"], scalars["flag"]) == ("", b"", False)
    assert (scalars["color"], scalars["u64"], scalars["single"]) == ("COLOR_UNKNOWN", 0, 0.0)
    assert row("Known", b"")["text"] is None
    assert row("Maps", b"")["i32"] == {}


def test_proto2_fields_have_their_declared_default() -> None:
    found = row("old.Old", tag(1, 0) + varint(9))
    expected = {
        **{"id": 9, "plain": None, "number": -5, "text": "é", "data": b"\x01\xff", "flag": True},
        **{"pair": float("inf"), "large": 2**64 - 1, "size": None, "other": "LARGE"},
        **{"inner": None, "single": None, "many": [], "chosen_size": None, "by_name": {}},
    }
    assert {name: found[name] for name in expected} == expected
    assert found["real"] == pytest.approx(0.1)
    inner = row("old.Old", tag(1, 0) + b"\0" + chunk(15, tag(1, 0) + b"\1"))["inner"]
    assert inner == {"id": 1, "name": "none", "numbers": []}


def test_no_records_have_no_rows() -> None:
    found = read(reader_of("Everything"))
    assert len(found.rows) == 0
    assert not found.dead


def test_a_part_of_an_array_is_read() -> None:
    values = pa.array([b"\xff", tag(15, 0) + b"\1", tag(15, 0) + b"\2", b"\xff"], pa.binary())
    found = reader_of("Everything", Column("id", "long")).read(values.slice(1, 2))
    assert found.rows.to_pylist() == [{"id": 1}, {"id": 2}]


# ---------------------------------------------------------------- what is read

ID = Column("id", "long")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([ID], "struct<id: int64 not null>"),
        ([ID, Column("absent", "string")], "struct<id: int64 not null>"),
        (
            [Column("text", "string", source="scalars.text")],
            "struct<scalars: struct<text: string not null>>",
        ),
        (
            [Column("n", "int", source="everything.everything.lists.i32[2]")],
            "struct<everything: struct<everything: struct<lists: struct<i32: list<element: int32 not null> not null>>>>",
        ),
        (
            [Column("s", "struct<absent: optional string>", source="everything")],
            "struct<everything: struct<id: int64 not null>>",
        ),
        ([Column("everything", "string")], "struct<everything: struct<id: int64 not null>>"),
        (
            [Column("items", "string", source="lists.at")],
            "struct<lists: struct<at: list<element: timestamp[us, tz=UTC] not null> not null>>",
        ),
        (
            [Column("x", "string", source="lists.lists.at")],
            # The elements are read whole: their fields that are neither messages nor repeated, of which there are none.
            "struct<lists: struct<lists: list<element: struct<> not null> not null>>",
        ),
        ([Column("x", "string", source="id.deeper")], "struct<id: int64 not null>"),
    ],
)
def test_only_the_fields_that_columns_read_are_in_the_schema(
    columns: list[Column], expected: str
) -> None:
    assert str(reader_of("Everything", *columns).schema) == expected


def test_one_entry_of_a_map_is_read_with_the_others() -> None:
    column = Column("x", "long", source="maps.wrapped.some")
    entries = chunk(13, chunk(1, b"some") + chunk(2, tag(1, 0) + b"\7"))
    assert row("Everything", chunk(4, entries), column) == {"maps": {"wrapped": {"some": 7}}}
    struct = Column("l", "struct<i32: list<int>>", source="maps.text.some")
    found = row("Everything", chunk(4, chunk(12, chunk(1, b"some") + chunk(2, b""))), struct)
    assert found == {"maps": {"text": {"some": {"i32": []}}}}


def test_fields_that_are_not_read_are_not_looked_into() -> None:
    """A message, text or enum in them may be anything; their length must fit."""
    broken = chunk(1, b"\xff\xff") + chunk(3, b"\x07") + tag(15, 0) + b"\5"
    assert row("Everything", broken, ID) == {"id": 5}
    assert reason("Everything", tag(1, 2) + b"\5abc", ID)[0] == "truncated"
    assert row("old.Old", b"", Column("plain", "int")) == {"plain": None}, "required, but not read"


# ---------------------------------------------------------------- repeated, merged, replaced


def test_a_message_that_occurs_twice_is_merged() -> None:
    first = chunk(3, chunk(1, b"\1\2") + chunk(11, chunk(14, b"a")))
    second = chunk(3, tag(1, 0) + b"\3" + chunk(11, tag(1, 0) + b"\x04"))
    lists = row("Everything", first + tag(15, 0) + b"\1" + second)["lists"]
    assert lists["i32"] == [1, 2, 3]
    assert [(s["text"], s["i32"]) for s in lists["scalars"]] == [("a", 0), ("", 4)]
    twice = chunk(9, chunk(14, b"a") + tag(1, 0) + b"\1") + chunk(9, tag(1, 0) + b"\2")
    scalars = row("Optionals", twice)["scalars"]
    assert (scalars["text"], scalars["i32"]) == ("a", 2)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([tag(1, 0) + b"\1"], {"number": 1}),
        ([tag(1, 0) + b"\1", chunk(2, b"a")], {"text": "a"}),
        ([chunk(2, b"a"), tag(1, 0) + b"\0"], {"number": 0}),
        ([chunk(3, tag(1, 0) + b"\1"), chunk(3, tag(1, 0) + b"\2")], {"lists": [1, 2]}),
        (
            [chunk(3, chunk(1, b"\1\2")), tag(1, 0) + b"\5", chunk(3, tag(1, 0) + b"\3")],
            {"lists": [3]},
        ),
        ([chunk(3, tag(1, 0) + b"\1"), chunk(4, b"")], {"choices": True}),
        ([tag(1, 0) + b"\1", tag(2, 0) + b"\1"], {"number": 1}),  # not the wire type of field 2
        ([], {}),
    ],
)
def test_the_last_member_of_a_oneof_replaces_the_others(
    parts: list[bytes], expected: dict[str, Any]
) -> None:
    # Records before and after have elements of the same lists, which must stay with their records.
    around = chunk(3, chunk(1, b"\x07\x08\x09"))
    found = read(reader_of("Choices", depth=1), around, b"".join(parts), around)
    rows = found.rows.to_pylist()
    assert not found.dead
    members = {name: rows[1][name] for name in ("number", "text", "lists", "choices", "at")}
    if members["lists"] is not None:
        members["lists"] = members["lists"]["i32"]
    if members["choices"] is not None:
        members["choices"] = True
    assert {name: value for name, value in members.items() if value is not None} == expected
    assert [rows[i]["lists"]["i32"] for i in (0, 2)] == [[7, 8, 9]] * 2


@pytest.mark.parametrize("member", ["text", "lists", "choices", "at"])
def test_a_member_of_a_oneof_that_is_not_read_replaces_one_that_is(member: str) -> None:
    number = {"text": 2, "lists": 3, "choices": 4, "at": 5}[member]
    value = tag(1, 0) + b"\1" + chunk(number, b"\xff" if member != "text" else b"a")
    assert row("Choices", value, Column("number", "int")) == {"number": None}
    assert row(
        "old.Old", chunk(20, b"a") + tag(21, 3) + tag(21, 4), Column("chosen_text", "string")
    ) == {"chosen_text": None}


@pytest.mark.parametrize("count", [2, 16, 17, 3000])
def test_a_key_that_occurs_twice_has_its_last_value(count: int) -> None:
    entries = [(i % 7, i) for i in range(count)]
    content = b"".join(
        chunk(9, tag(1, 5) + k.to_bytes(4, "little") + tag(2, 0) + varint(2 * v))
        for k, v in entries
    )
    texts = b"".join(
        chunk(13, chunk(1, b"k%d" % k) + chunk(2, tag(1, 0) + varint(v))) for k, v in entries
    )
    other = chunk(13, chunk(1, b"k1") + chunk(2, tag(1, 0) + b"\1"))
    found = read(reader_of("Maps"), other, content + texts, other)
    rows = found.rows.to_pylist(maps_as_pydicts="strict")
    assert not found.dead
    assert rows[1]["sf32"] == dict(entries)
    assert rows[1]["wrapped"] == {f"k{k}": v for k, v in entries}
    assert rows[0]["wrapped"] == rows[2]["wrapped"] == {"k1": 1}


def test_an_entry_of_a_map_may_lack_its_key_or_value_and_have_unknown_fields() -> None:
    value = (
        chunk(1, b"")
        + chunk(1, tag(1, 0) + b"\1")
        + chunk(1, tag(3, 0) + b"\1" + chunk(2, b"b") + tag(1, 0) + b"\2")
    )
    assert row("Maps", value)["i32"] == {0: "", 1: "", 2: "b"}
    assert row("Maps", chunk(13, chunk(1, b"a")))["wrapped"] == {"a": 0}
    assert row("Maps", chunk(6, b""))["s64"] == {0: "NONE"}


def test_a_replaced_entry_of_a_map_is_no_reason() -> None:
    bad, good = chunk(6, tag(1, 0) + b"\2" + tag(2, 0) + b"\x09"), chunk(6, tag(1, 0) + b"\2")
    assert row("Maps", bad + good)["s64"] == {1: "NONE"}
    assert reason("Maps", good + bad)[:2] == ("enum", "s64[]")


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (tag(12, 0) + b"\1" + tag(12, 0) + b"\2" + tag(12, 0) + b"\3", ["SMALL", "LARGE"]),
        (chunk(12, b"\3\2\3"), ["LARGE", "LARGE"]),
        (chunk(12, b"\2"), []),
    ],
)
def test_an_unknown_number_of_a_closed_enum_is_no_value(value: bytes, sizes: list[str]) -> None:
    found = row("old.Old", tag(1, 0) + b"\1" + value)
    assert found["sizes"] == sizes
    known_then_unknown = tag(1, 0) + b"\1" + tag(10, 0) + b"\3" + tag(10, 0) + b"\2"
    assert row("old.Old", known_then_unknown)["size"] == "LARGE"
    choice = tag(1, 0) + b"\1" + chunk(20, b"a") + tag(19, 0) + b"\x02"
    assert row("old.Old", choice)["chosen_text"] == "a"
    entries = chunk(14, chunk(1, b"a") + tag(2, 0) + b"\1") + chunk(
        14, chunk(1, b"b") + tag(2, 0) + b"\x09"
    )
    assert row("old.Old", tag(1, 0) + b"\1" + entries)["by_name"] == {"b": "HIGH"}


def test_groups_are_read_like_messages() -> None:
    single = tag(17, 3) + tag(1, 0) + b"\1" + tag(2, 3) + chunk(1, b"x") + tag(2, 4) + tag(17, 4)
    many = tag(18, 3) + chunk(2, b"y") + tag(18, 4)
    found = row("old.Old", tag(1, 0) + b"\1" + single + many * 2)
    assert found["single"] == {"a": 1, "deeper": {"b": "x"}}
    assert found["many"] == [{"a": None, "b": ["y"]}] * 2
    part = tag(7, 3) + tag(1, 0) + b"\5" + tag(7, 4)
    assert row("edition.Edition", tag(3, 0) + b"\1" + part)["part"] == {"a": 5, "b": ""}


def test_two_names_of_one_number_are_the_first_name() -> None:
    assert row("Optionals", tag(8, 0) + b"\1")["two"] == "FIRST"
    assert row("Scalars", tag(16, 0) + varint(5_000_000))["color"] == "DEEP_RED"
    assert row("Scalars", tag(16, 0) + varint(-7))["color"] == "BELOW"


def test_wrappers_are_null_or_their_value() -> None:
    found = row("Known", chunk(5, b"") + chunk(10, chunk(1, b"a")) + chunk(9, tag(1, 0) + b"\1"))
    assert (found["i64"], found["text"], found["flag"], found["u64"]) == (0, "a", True, None)
    assert row("Lists", chunk(14, b"") + chunk(14, chunk(1, b"x")))["words"] == ["", "x"]


# ---------------------------------------------------------------- timestamps


def moment(seconds: int, nanos: int) -> bytes:
    return chunk(1, tag(1, 0) + varint(seconds) + tag(2, 0) + varint(nanos))


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (0, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, 999_999_000, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799, 999_999_000, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (-62_135_596_801, 0, "range"),
        (253_402_300_800, 0, "range"),
        (1 << 62, 0, "range"),
        (-(1 << 63), 0, "range"),
        (0, -1, "range"),
        (0, 1_000_000_000, "range"),
        (0, 1, "inexact"),
        (0, 999_999_999, "inexact"),
    ],
)
def test_a_timestamp_is_exact_or_a_dead_letter(
    seconds: int, nanos: int, expected: datetime | str
) -> None:
    if isinstance(expected, str):
        assert reason("Known", moment(seconds, nanos))[:2] == (expected, "at")
        element = chunk(13, moment(seconds, nanos)[2:])
        assert reason("Lists", element)[:2] == (expected, "at[]")
    else:
        assert row("Known", moment(seconds, nanos))["at"] == expected


# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("value", "kind", "field", "detail"),
    [
        (b"\x78", "truncated", "id", "byte 0: the bytes end inside of a number or a group"),
        (b"\x78\x80", "truncated", "id", "byte 0: the bytes end inside of a number or a group"),
        (b"\x80", "truncated", None, "byte 0: the bytes end inside of a number or a group"),
        (
            b"\x78\x01\x0a\x05ab",
            "truncated",
            "scalars",
            "byte 2: expected 5 bytes more, found 2 of 6",
        ),
        (
            chunk(1, b"\x61abc"),
            "truncated",
            "scalars.pair",
            "byte 2: expected 8 bytes more, found 3 of 6",
        ),
        (
            chunk(1, b"\x3d\0"),
            "truncated",
            "scalars.f32",
            "byte 2: expected 4 bytes more, found 1 of 4",
        ),
        (
            chunk(3, chunk(5, b"\0" * 12)),
            "truncated",
            "lists.pair",
            "byte 12: expected 8 bytes more, found 4 of 16",
        ),
        (
            chunk(3, chunk(1, b"\x80")),
            "truncated",
            "lists.i32",
            "byte 4: the bytes end inside of a number or a group",
        ),
        (
            b"\x0a" + varint(2**31 - 1),
            "truncated",
            "scalars",
            "byte 0: expected 2147483647 bytes more, found 0 of 6",
        ),
        (
            b"\x0a" + varint(2**31),
            "truncated",
            "scalars",
            "byte 0: expected 2147483648 bytes more, found 0 of 6",
        ),
        (
            b"\x78" + b"\xff" * 10 + b"\1",
            "varint",
            "id",
            "byte 0: expected a number of at most 10 bytes, found more",
        ),
        (
            chunk(3, chunk(1, b"\xff" * 11)),
            "varint",
            "lists.i32",
            "byte 4: expected a number of at most 10 bytes, found more",
        ),
        (b"\x00\x01", "tag", None, "byte 0: found field number 0 with wire type 0"),
        (b"\x0e", "tag", None, "byte 0: found field number 1 with wire type 6"),
        (chunk(1, b"\x0f"), "tag", "scalars", "byte 2: found field number 1 with wire type 7"),
        (b"\x0c", "tag", None, "byte 0: found field number 1 with wire type 4"),
        (b"\x9b\x06\x94\x06", "tag", None, "byte 2: found field number 98 with wire type 4"),
        (
            b"\x9b\x06\x0a\x02\x9c\x06",
            "truncated",
            None,
            "byte 6: the bytes end inside of a number or a group",
        ),
        (b"\x80\x80\x80\x80\x10", "tag", None, "byte 0: expected a tag of 32 bits, found more"),
        (b"\x9b\x06", "truncated", None, "byte 2: the bytes end inside of a number or a group"),
        (
            chunk(1, chunk(14, b"ab\xc3")),
            "utf8",
            "scalars.text",
            "byte 2 of the text is not UTF-8, found c3",
        ),
        (
            chunk(3, chunk(8, b"a") + chunk(8, b"\xed\xa0\x80")),
            "utf8",
            "lists.text[]",
            "byte 0 of the text is not UTF-8, found eda080",
        ),
        (
            chunk(4, chunk(12, chunk(1, b"\xff"))),
            "utf8",
            "maps.text[]",
            "byte 0 of the text is not UTF-8, found ff",
        ),
        (
            chunk(1, tag(16, 0) + b"\4"),
            "enum",
            "scalars.color",
            "expected the number of a value of tests.Color, found 4",
        ),
        (
            chunk(3, chunk(10, b"\1\4")),
            "enum",
            "lists.color[]",
            "expected the number of a value of tests.Color, found 4",
        ),
    ],
)
def test_a_broken_record_is_a_dead_letter_with_its_place(
    value: bytes, kind: str, field: str | None, detail: str
) -> None:
    assert reason("Everything", value) == (kind, field, detail)


@pytest.mark.parametrize(
    ("message", "value", "field"),
    [
        ("old.Old", b"", "id"),
        ("old.Old", tag(1, 0) + b"\1" + chunk(15, b""), "inner.id"),
        (
            "old.Old",
            tag(1, 0) + b"\1" + chunk(16, tag(1, 0) + b"\1") + chunk(16, b""),
            "inners[].id",
        ),
        ("old.Old", tag(1, 0) + b"\1" + chunk(23, b""), "by_number[].id"),
        ("edition.Edition", b"", "required"),
    ],
)
def test_an_absent_required_field_is_a_dead_letter(message: str, value: bytes, field: str) -> None:
    valid = (tag(3, 0) if message == "edition.Edition" else tag(1, 0)) + b"\1"
    found = read(reader_of(message), valid, value)
    assert {at: (one.kind, one.field) for at, one in found.dead.items()} == {1: ("missing", field)}


@pytest.mark.parametrize(
    "value",
    [
        *(tag(99, 3) * depth + tag(99, 4) * depth for depth in (99, 100, 101, 5000)),
        b"\x0a\x80\x00",  # sizes and tags in more bytes than necessary
        b"\x0a\x80\x80\x80\x80\x00",
        b"\x0a\x80\x80\x80\x80\x80\x00",
        b"\x88\x80\x80\x80\x00\x01",
        b"\x88\x80\x80\x80\x80\x00\x01",
        b"\xf8\xff\xff\xff\x0f\x01",
        b"\xf8\xff\xff\xff\x1f\x01",
        b"\x78" + b"\xff" * 9 + b"\x01",
        b"\x78" + b"\xff" * 9 + b"\x7f",
        b"\x78" + b"\x80" * 10,
    ],
)
def test_unusual_encodings_are_refused_if_the_runtime_refuses_them(value: bytes) -> None:
    found = read(reader_of("Everything", ID), value)
    try:
        message = runtime_class(EVERYTHING, "tests.Everything").FromString(value)
    except DecodeError:
        assert found.dead
    else:
        assert found.rows.to_pylist() == [{"id": message.id}]


def test_groups_are_skipped_down_to_a_depth() -> None:
    assert reason("Everything", tag(99, 3) * (DEPTH_MAX + 1), ID) == (
        "depth",
        None,
        f"byte {2 * DEPTH_MAX}: nested deeper than {DEPTH_MAX}",
    )


@pytest.mark.parametrize(
    "elements",
    [
        chunk(3, chunk(11, b"") * ELEMENTS_MAX),
        chunk(3, chunk(1, b"\0" * ELEMENTS_MAX)),
        chunk(3, (tag(1, 0) + b"\0") * ELEMENTS_MAX),
        chunk(3, chunk(1, b"\0" * (ELEMENTS_MAX // 2)) + chunk(3, b"\0" * (ELEMENTS_MAX // 2))),
    ],
)
def test_a_record_has_at_most_a_million_elements(elements: bytes) -> None:
    columns = [
        Column("a", "list<struct<i32: int>>", source="lists.scalars"),
        Column("b", "list<int>", source="lists.i32"),
        Column("c", "list<long>", source="lists.s64"),
    ]
    reader = reader_of("Everything", *columns)
    more = elements + chunk(3, tag(1, 0) + b"\1")
    found = read(reader, b"", elements, more, chunk(3, tag(1, 0) + b"\1"))
    assert {at: (one.kind, one.detail) for at, one in found.dead.items()} == {
        2: ("size", "more than 1000000 elements of lists and maps")
    }
    lists = found.rows.field("lists")
    assert sum(len(lists[1][name]) for name in ("scalars", "i32", "s64")) == ELEMENTS_MAX
    assert lists[3]["i32"].as_py() == [1]


def test_a_large_value_is_a_dead_letter() -> None:
    large = chunk(99, bytes((16 << 20) - 5))
    assert len(large) > 16 << 20
    kind, field, detail = reason("Everything", large, ID)
    assert (kind, field) == ("size", None)
    assert detail == f"the value has {len(large)} bytes, more than {16 << 20}"


def test_every_record_of_a_batch_may_be_dead() -> None:
    values = [chunk(1, chunk(14, b"\xff"))] * 50 + [b"\x0a"] * 50
    found = read(reader_of("Everything"), *values)
    assert [found.dead[at].kind for at in range(100)] == ["utf8"] * 50 + ["truncated"] * 50


def test_lists_are_read_in_batches_that_need_more_room_again_and_again() -> None:
    counts = [0, 1, 0, 40, 3, 700, 0, 2, 9000, 1]
    values = [
        chunk(3, b"".join(chunk(12, chunk(1, bytes(n % 7))) for n in range(count)))
        for count in counts
    ]
    found = read(
        reader_of("Everything", Column("x", "list<struct<i32: list<int>>>", source="lists.lists")),
        *values,
    )
    assert not found.dead
    for count, one in zip(counts, found.rows.to_pylist(), strict=True):
        assert one["lists"]["lists"] == [{"i32": [0] * (n % 7)} for n in range(count)]


def test_a_batch_with_too_many_elements_is_to_be_read_in_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halves, "SLOT_BYTES_MAX", 20_000)
    reader = reader_of("Lists", Column("i32", "list<int>"))
    value = chunk(1, b"\1" * 3000)
    assert read(reader, value).rows[0]["i32"].as_py() == [1] * 3000
    with pytest.raises(halves.ManySlotsError):
        read(reader, value, value)


# ---------------------------------------------------------------- descriptors


def test_a_message_that_does_not_exist_is_refused_with_the_names_that_do() -> None:
    with pytest.raises(InvalidPipeline, match=r"message 'Everything': expected .*tests\.Choices"):
        ProtobufReader(EVERYTHING, "Everything", Wanted())


@pytest.mark.parametrize(
    ("descriptors", "message"),
    [
        (b"\xff", "expected a serialized FileDescriptorSet, found 1 bytes"),
        (
            chunk(1, chunk(1, b"a.proto") + chunk(3, b"b.proto")),
            "'a.proto': expected the imported file 'b.proto'",
        ),
        (
            chunk(
                1,
                chunk(1, b"a.proto")
                + chunk(4, chunk(1, b"A") + chunk(2, chunk(6, b".B") + tag(5, 0) + b"\x0b")),
            ),
            "file 'a.proto': expected valid definitions",
        ),
        (b"", "one of none"),
    ],
)
def test_descriptors_that_are_not_complete_are_refused(descriptors: bytes, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        ProtobufReader(descriptors, "A", Wanted())


def test_the_order_of_files_has_no_meaning() -> None:
    files = runtime_files(EVERYTHING)
    assert len(files) > 3
    backwards = b"".join(chunk(1, one) for one in reversed(files))
    reader = ProtobufReader(backwards, "tests.Everything", wanted([ID]))
    assert reader.schema == reader_of("Everything", ID).schema


def runtime_files(descriptors: bytes) -> list[bytes]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return [file.SerializeToString() for file in FileDescriptorSet.FromString(descriptors).file]
