"""The columns of a topic that follows its schemas: what every accepted version fits, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.avro.columns import avro_columns
from tallystick.engine.decode.decoder import Decoded, decoder_of
from tallystick.engine.decode.followed import FollowedColumns, followed_columns
from tallystick.engine.decode.misfits import misfit
from tallystick.engine.decode.protobuf.columns import protobuf_columns
from tallystick.engine.decode.protobuf.rows import compiled_schema
from tallystick.errors import InvalidPipeline
from tallystick.format.columns import TableColumn
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema, SchemaKind, schema_digest
from tallystick.pipeline import Avro, Column, Protobuf
from unit.engine.decode.test_avro import encoded, record
from unit.engine.decode.test_framed import framed

FOLLOW = Avro(registry="default", schema="follow")
ID = ("id", "long")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9}


def frozen(number: int, text: str, kind: SchemaKind = "AVRO") -> FrozenSchema:
    return FrozenSchema(
        id=number,
        subject="t-value",
        version=number,
        kind=kind,
        text=text,
        references=(),
        sha256=schema_digest(kind, text, ()),
    )


def schemas_of(*schemas: Any) -> list[FrozenSchema]:
    return [frozen(number, json.dumps(schema)) for number, schema in enumerate(schemas, 1)]


def follow(*schemas: Any, **options: Any) -> FollowedColumns:
    return followed_columns(FOLLOW, schemas_of(*schemas), **options)


def shown(columns: Sequence[Column]) -> list[str]:
    """Return columns as text: name, type, and the field if it has another name."""
    return [
        f"{c.name} {'' if c.required else 'optional '}{c.text}{f' < {c.source}' if c.source else ''}"
        for c in columns
    ]


def decoded(columns: Sequence[Column], schemas: Sequence[FrozenSchema], *values: bytes) -> Decoded:
    registries = [PlannedRegistry(name="default", schemas=tuple(schemas))]
    batch = pa.record_batch(
        {"offset": pa.array(range(len(values)), pa.int64()), "value": pa.array(values, pa.binary())}
    )
    return decoder_of(FOLLOW.planned(columns), registries).decode(batch)


@pytest.mark.parametrize(
    ("known", "later", "kept"),
    [
        ("double", "long", "double"),
        ({**DECIMAL, "scale": 2}, {**DECIMAL, "scale": 3}, "decimal(9,2)"),
        ("bytes", {"type": "fixed", "name": "h", "size": 16}, "binary"),
        ({"type": "string", "logicalType": "uuid"}, "string", "uuid"),
    ],
)
def test_new_fields_of_a_version_whose_records_fit_are_columns(
    known: Any, later: Any, kept: str
) -> None:
    """Values of another type can be rows, e.g. a long in a double: then no field of their records is lost."""
    found = follow(record(ID, ("x", known)), record(ID, ("x", later), ("note", "string")))
    assert shown(found.columns) == ["id long", f"x {kept}", "note optional string"]
    assert not found.left_out


def test_the_rows_of_such_a_version_have_its_new_fields() -> None:
    later = record(ID, ("x", "long"), ("note", "string"))
    schemas = schemas_of(record(ID, ("x", "double")), later)
    columns = followed_columns(FOLLOW, schemas).columns
    row = {"id": 1, "x": 5, "note": "kept"}
    assert decoded(columns, schemas, framed(2, encoded(later, row))).rows.to_pylist() == [row]


@pytest.mark.parametrize(
    "later",
    [
        record(ID, ("x", "string"), ("note", "string")),
        record(ID, ("x", ["int", "string"]), ("note", "string")),
        record(ID, ("x", {"type": "array", "items": "int"}), ("note", "string")),
    ],
)
def test_a_version_whose_records_do_not_fit_is_left_out_as_a_whole(
    later: Any, caplog: pytest.LogCaptureFixture
) -> None:
    known, last = record(ID, ("x", "int")), record(ID, ("x", "long"), ("more", "string"))
    found = follow(known, later, last)
    assert shown(found.columns) == ["id long", "x long", "more optional string"]
    (problem,) = found.left_out
    assert "schema 2 (t-value version 2) is left out" in problem
    assert problem in caplog.text


def test_no_version_makes_dead_letters_of_the_records_before_it() -> None:
    """The first version has the field, too, but in a form that no column has: a record inside of itself."""
    first = record(("v", "int"), ("next", ["null", "r"]))
    found = follow(first, record(("v", "int"), ("next", "string")))
    assert shown(found.columns) == ["v int"]
    assert "version 2" in found.left_out[0]


@pytest.mark.parametrize(
    ("first", "later", "type_"),
    [
        (record(name="d"), record(("a", "int"), name="d"), "struct<a: optional int>"),
        (
            {"type": "array", "items": record(name="d")},
            {"type": "array", "items": record(("a", "int"), name="d")},
            "list<struct<a: optional int>>",
        ),
        (
            record(("in", record(name="e")), name="d"),
            record(("in", record(("m", {"type": "map", "values": "int"}), name="e")), name="d"),
            "struct<in: optional struct<m: optional map<string, int>>>",
        ),
        (
            record(("a", "int"), name="d"),
            record(("a", "int"), ("in", record(("b", "int"), name="e")), name="d"),
            "struct<a: int, in: optional struct<b: optional int>>",
        ),
    ],
)
def test_parts_that_only_a_later_version_has_are_optional_at_any_depth(
    first: Any, later: Any, type_: str
) -> None:
    found = follow(record(ID, ("d", first)), record(ID, ("d", later)))
    assert [c.text for c in found.columns] == ["long", type_]
    assert not found.left_out


def test_records_of_a_version_without_columns_stay_rows() -> None:
    schemas = schemas_of(record(("nothing", "null")), record(("a", "int")))
    found = followed_columns(FOLLOW, schemas)
    assert shown(found.columns) == ["a optional int"]
    assert decoded(found.columns, schemas, framed(1, b"")).rows.to_pylist() == [{"a": None}]


@pytest.mark.parametrize(
    ("versions", "taken", "expected"),
    [
        ([["headers"]], ["headers"], ["headers_2 < headers"]),
        ([["k"], ["k", "K"]], ["k"], ["k_2 < k", "K_2_2 < K"]),
        ([["userId"], ["userid"]], [], ["userId", "userid_2 < userid"]),
        ([["_id"], ["_id", "id"]], [], ["id < _id", "id_2 < id"]),
    ],
)
def test_a_field_whose_name_is_taken_gets_a_number(
    versions: list[list[str]], taken: list[str], expected: list[str]
) -> None:
    found = follow(*(record(*((n, "int") for n in names)) for names in versions), taken=taken)
    texts = [text.replace(" optional int", "").replace(" int", "") for text in shown(found.columns)]
    assert texts == expected


def test_branches_of_a_union_with_the_same_short_name_are_parts() -> None:
    one, two = record(("a", "int"), name="x.A"), record(("b", "int"), name="y.A")
    schema = record(("u", [one, two]))
    (column,) = follow(schema).columns
    assert shown(column.fields) == [
        r"x_A optional struct<a: int> < x\.A",
        r"y_A optional struct<b: int> < y\.A",
    ]
    found = decoded([column], schemas_of(schema), framed(1, b"\x02\x0a"))
    assert found.rows.to_pylist() == [{"u": {"x_A": None, "y_A": {"b": 5}}}]


def test_a_column_of_the_table_is_read_from_the_same_field_as_before() -> None:
    table = [
        TableColumn(id=1, name="headers_2", type="long", required=True),
        TableColumn(id=2, name="gone", type="int", required=True),
    ]
    found = follow(record(("headers", "int"), ("more", "int")), table=table, taken=["headers"])
    assert shown(found.columns) == [
        "headers_2 long < headers",
        "gone optional int",
        "more optional int",
    ]


def diamond(levels: int) -> dict[str, Any]:
    """Return a schema of a record that has the one before it twice, so that the columns double with each."""
    schema = record(("v", "int"), name="r0")
    for level in range(1, levels + 1):
        schema = record(("a", schema), ("b", f"r{level - 1}"), name=f"r{level}")
    return schema


def test_a_schema_with_too_many_columns_is_left_out() -> None:
    huge = frozen(1, json.dumps(diamond(60)))
    with pytest.raises(InvalidPipeline, match="at most 10000 columns"):
        avro_columns(huge)
    found = follow(diamond(60), record(ID))
    assert shown(found.columns) == ["id long"]
    assert "at most 10000 columns" in found.left_out[0]
    assert follow(diamond(10)).columns


def test_a_message_with_too_many_columns_is_left_out() -> None:
    messages = (f"message R{n} {{ R{n + 1} a = 1; R{n + 1} b = 2; }}" for n in range(20))
    text = 'syntax = "proto3";' + "".join(messages) + "message R20 { int32 v = 1; }"
    schema = frozen(1, text, "PROTOBUF")
    schema = replace(schema, compiled=compiled_schema(schema))
    with pytest.raises(InvalidPipeline, match="at most 10000 columns"):
        protobuf_columns(schema)
    found = followed_columns(Protobuf(registry="default", schema="follow"), [schema])
    assert not found.columns
    assert "at most 10000 columns" in found.left_out[0]


def test_a_schema_of_another_kind_gives_no_columns() -> None:
    found = followed_columns(FOLLOW, [frozen(1, 'syntax = "proto3";', "PROTOBUF")])
    assert not found.columns
    assert "expected avro, found PROTOBUF" in found.left_out[0]


TYPES = st.recursive(
    st.sampled_from(["null", "int", "long", "float", "double", "string", "bytes", "boolean"]),
    lambda inner: st.one_of(
        inner.map(lambda one: {"type": "array", "items": one}),
        inner.filter(lambda one: one != "null").map(lambda one: ["null", one]).filter(
            lambda one: not isinstance(one[1], list)
        ),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda d: {"fields": d}),
    ),
    max_leaves=4,
)  # fmt: skip


def named(kind: Any, path: str) -> Any:
    """Return a drawn type with its records named by their place, so that each name is used once."""
    if isinstance(kind, dict) and "fields" in kind:
        parts = [(n, named(one, f"{path}_{n}")) for n, one in kind["fields"].items()]
        return record(*parts, name=path)
    if isinstance(kind, dict):
        return {"type": "array", "items": named(kind["items"], f"{path}_e")}
    return [named(one, path) for one in kind] if isinstance(kind, list) else kind


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("xyz"), TYPES, min_size=1), min_size=1, max_size=5))
def test_all_versions_that_are_not_left_out_fit_the_columns(versions: list[Any]) -> None:
    schemas = schemas_of(*(named({"fields": version}, "r") for version in versions))
    found = followed_columns(FOLLOW, schemas)
    left_out = [s for s in schemas if any(f"version {s.version})" in why for why in found.left_out)]
    assert len(left_out) == len(found.left_out)
    if found.columns:
        planned = FOLLOW.planned(found.columns)
        assert [s.id for s in schemas if s not in left_out and misfit(planned, s)] == []
    again = followed_columns(FOLLOW, [s for s in schemas if s not in left_out])
    assert (again.columns, again.left_out) == (found.columns, ())
