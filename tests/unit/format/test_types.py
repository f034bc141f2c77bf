"""Column types as text: each tree of types has one text, and a text that is no type is refused with its place."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidPipeline
from tallystick.format.types import (
    NESTING_MAX,
    PRIMITIVES,
    TypeField,
    fixed_bytes,
    parse_type,
    type_text,
)
from tallystick.pipeline import Column, Lookback, Pipeline, Table

PRIMITIVE = st.sampled_from([*sorted(PRIMITIVES), "decimal(9,2)", "fixed[16]"])


def leaf(name: str) -> st.SearchStrategy[TypeField]:
    return st.builds(TypeField, name=st.just(name), type=PRIMITIVE, required=st.booleans())


def named(field: TypeField, name: str, *, required: bool | None = None) -> TypeField:
    return TypeField(
        name=name,
        type=field.type,
        required=field.required if required is None else required,
        fields=field.fields,
    )


def nested(inner: st.SearchStrategy[TypeField]) -> st.SearchStrategy[TypeField]:
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda fields: ("struct", tuple(named(f, f"f{i}") for i, f in enumerate(fields)))
    )
    lists = inner.map(lambda f: ("list", (named(f, "element"),)))
    maps = st.tuples(leaf("key"), inner).map(
        lambda pair: ("map", (named(pair[0], "key", required=True), named(pair[1], "value")))
    )
    return st.builds(
        lambda made, required: TypeField(name="c", type=made[0], required=required, fields=made[1]),
        st.one_of(structs, lists, maps),
        st.booleans(),
    )


TREES = st.recursive(leaf("c"), nested, max_leaves=8)


@given(TREES)
def test_each_type_has_one_text(tree: TypeField) -> None:
    text = type_text(tree)
    assert parse_type(text, name="c", required=tree.required) == named(tree, "c")
    column = Column("c", text, tree.required)
    assert column.text == text
    assert Column.from_json(column.to_json(), "column") == column


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" list < string > ", "list<string>"),
        ("map<string,optional long>", "map<string, optional long>"),
        (
            "struct<a:required decimal( 9 , 2 ),b :optional fixed [3]>",
            "struct<a: decimal(9,2), b: optional fixed[3]>",
        ),
        ("struct<list: list<int>, map: int>", "struct<list: list<int>, map: int>"),
    ],
)
def test_blanks_and_required_do_not_change_a_type(text: str, canonical: str) -> None:
    assert Column("c", text).text == canonical


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("list", "expected '<' in list of 'list', found the end"),
        ("list<>", "expected one of"),
        ("list<int", "expected '>' in list of 'list<int', found the end"),
        ("list<int>>", "expected the end of 'list<int>>', found '>'"),
        ("list<int, int>", "expected '>' in list of 'list<int, int>', found ','"),
        ("map<int>", "expected ',' in map of 'map<int>', found '>'"),
        ("struct<a int>", "expected ':' in field a of 'struct<a int>', found 'int'"),
        ("struct<a: int,>", "expected ':' in field > of 'struct<a: int,>', found the end"),
        ("struct<a: >", "expected one of"),
        ("struct<>", "expected ':' in field > of 'struct<>', found the end"),
        ("", "expected a type at the end of ''"),
        ("(", "expected a type, found '('"),
        ("map<list<int>, int>", "expected a map's key required and of a primitive type"),
        (
            "struct<a: int, A: int>",
            "expected unique names of the fields of a struct, found 'a' twice",
        ),
        ("list<" * (NESTING_MAX + 1) + "int" + ">" * (NESTING_MAX + 1), "levels of nesting"),
    ],
)
def test_a_text_that_is_no_type_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Column("c", text)
    assert problem in refused.value.message


def test_fields_belong_to_the_one_struct_without_fields() -> None:
    fields = [Column("a", "int", source="b.c"), Column("t", "date", parse="epoch_s")]
    column = Column("c", "map<string, optional list<struct>>", fields=fields)
    assert column.text == "map<string, optional list<struct<a: int, t: date>>>"
    assert column.fields[1].fields[0].fields == tuple(fields)
    for kind in ("list<int>", "struct<a: struct, b: struct>", "struct<a: int>"):
        with pytest.raises(InvalidPipeline, match="a type with one struct without fields"):
            Column("c", kind, fields=fields)
    with pytest.raises(InvalidPipeline, match="fields: expected a Column, found 'a'"):
        Column("c", "struct", fields=["a"])  # type: ignore[list-item]
    with pytest.raises(InvalidPipeline, match="expected no source and no renamed_from"):
        Column("c", "list", fields=[Column("element", "int", source="x")])


def test_a_parse_rule_applies_to_the_parts_that_it_fits() -> None:
    column = Column("c", "struct<a: timestamptz, b: list<date>, s: string>", parse="epoch_ms")
    assert [f.parse for f in column.fields] == ["epoch_ms", None, None]
    assert column.fields[1].fields[0].parse == "epoch_ms"
    text = Column("c", "map<string, string>", parse="json")
    assert [f.parse for f in text.fields] == [None, "json"]
    with pytest.raises(InvalidPipeline, match=r"no parse rule for type list<int>, found 'json'"):
        Column("c", "list<int>", parse="json")


def test_tables_take_keys_and_partitions_of_flat_columns_only() -> None:
    columns = [Column("d", "struct<a: int>"), Column("n", "long")]
    with pytest.raises(InvalidPipeline, match="keys and combine of primitive types, found 'd'"):
        Table("t", columns=columns, keys=["d"], combine={"n": "sum"})
    with pytest.raises(InvalidPipeline, match=r"does not apply to a struct<a: int> column"):
        Table("t", columns=columns, partition_by=["d"])


def test_the_length_of_a_fixed_type() -> None:
    assert (fixed_bytes("fixed[16]"), fixed_bytes("binary")) == (16, None)


@pytest.mark.parametrize("kind", ["list<int>", "uuid", "time", "fixed[2]"])
def test_a_table_of_a_lookback_has_columns_that_spark_reads_as_they_are(kind: str) -> None:
    columns = [Column("k", "string"), Column("c", kind, required=False)]
    with pytest.raises(InvalidPipeline, match="lookback: expected a table without nested, uuid"):
        Pipeline(
            name="small",
            topics=["events"],
            warehouse="memory://small",
            job="jobs/small.py",
            tables=[Table("seen", columns=columns)],
            lookback=Lookback(tables=["seen"], back=timedelta(hours=1)),
        )
