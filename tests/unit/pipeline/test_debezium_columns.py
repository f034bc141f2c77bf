"""The declaration of change events: its columns, the form that a plan contains, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.pipeline import (
    Column,
    Debezium,
    Format,
    Json,
    Pipeline,
    Table,
    Topic,
    pipeline_from_spec,
)
from tallystick.pipeline.registry_options import registry_options

ID, STATUS = Column("id", "long"), Column("status", "string", required=False)
LSN = Column("lsn", "long", source="source.lsn")
TABLE = [
    ID,
    STATUS,
    Column("op", "string"),
    Column("ts", "timestamptz", required=False),
    Column("lsn", "long"),
]


def declared(topic: Topic, *columns: Column) -> Pipeline:
    return Pipeline(
        name="orders",
        topics=[topic],
        warehouse="memory://orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=columns or TABLE)],
    )


def names(topic: Topic, *columns: Column) -> str:
    return " ".join(c.name for c in declared(topic, *columns).decode_of("orders").columns)


@pytest.mark.parametrize(
    ("debezium", "expected"),
    [
        (Debezium([ID, STATUS]), "id status op ts"),
        (Debezium([ID], op="kind", ts=None), "id kind"),
        (Debezium([ID], before="was", event=[LSN]), "id op ts lsn was"),
        # Those of the first table, without those of the event.
        (Debezium(event=[LSN]), "id status op ts lsn"),
        (Debezium(), "id status lsn op ts"),
        (Debezium(op="OP", ts=None, before="lsn"), "id status ts OP lsn"),
    ],
)
def test_a_topic_has_the_columns_of_the_row_and_of_the_event(
    debezium: Debezium, expected: str
) -> None:
    assert names(Topic("orders", decode=debezium)) == expected


def test_columns_of_the_key_are_not_read_from_the_row() -> None:
    topic = Topic("orders", decode=Debezium(event=[LSN]), key=Json([ID]))
    assert names(topic) == "status op ts lsn"


@pytest.mark.parametrize(
    "debezium",
    [
        Debezium([ID, STATUS]),
        Debezium([ID], op="kind", ts=None, before="was", event=[LSN, replace(STATUS, name="tx")]),
        Debezium([STATUS], tombstones="keep", truncates="keep"),
        Debezium([ID], registry="default", subjects=["a", "b"], misfits="stop"),
        Debezium([ID, Column("x", "decimal(9,2)")], format="json", decimals="base64", registry="r"),
        Debezium([Column("day", "date", parse="epoch_days"), Column("l", "list<int>")], before="b"),
    ],
)
def test_a_plan_contains_the_whole_declaration(debezium: Debezium) -> None:
    pipeline = declared(Topic("orders", decode=debezium))
    read = pipeline_from_spec(pipeline.to_spec(), where="the plan")
    assert read.decode_of("orders") == pipeline.decode_of("orders")
    assert Debezium.of(read.decode_of("orders")) == debezium


def test_the_default_format_is_avro_with_a_registry() -> None:
    assert Debezium([ID]).format == "json"
    assert Debezium([ID], registry="default").format == "avro"
    assert Debezium([ID], registry="default", format="json").format == "json"


def test_its_schemas_are_read_from_the_registry() -> None:
    debezium = Debezium([ID], registry="default")
    found = Topic("orders", decode=debezium).registry_formats()
    assert found == (("orders", "value", debezium),)
    options = registry_options(debezium.planned(()))
    assert options == registry_options(debezium)
    assert not Topic("orders", decode=Debezium([ID])).registry_formats()


PRICE = Column("price", "decimal(9,2)", required=False)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            [ID],
            {"tombstones": "keep"},
            "tombstones='keep': expected only columns with required=False",
        ),
        (
            [ID],
            {"truncates": "keep"},
            "truncates='keep': expected only columns with required=False",
        ),
        ([STATUS], {"tombstones": "keep", "event": [LSN]}, "found 'lsn' with required=True"),
        ([PRICE], {}, "expected decimals='base64' or 'number', found none"),
        (
            [Column("p", "struct<x: list<decimal(5,1)>>")],
            {},
            "expected decimals='base64' or 'number'",
        ),
        (
            [Column("p", "list<decimal(5,1)>")],
            {"decimals": "base64"},
            "no decimal inside of a nested",
        ),
        ([PRICE], {"decimals": "precise"}, "decimals: expected one of"),
        ([PRICE], {"decimals": "number", "registry": "r"}, "expected decimals only with JSON"),
        ([ID], {"format": "avro"}, "expected a registry with format='avro'"),
        ([ID], {"format": "xml"}, "format: expected one of"),
        ([ID], {"tombstones": "drop"}, "tombstones: expected 'dead' or 'keep'"),
        ([ID], {"truncates": "drop"}, "truncates: expected one of"),
        ([ID], {"subjects": ["a"]}, "expected subjects and misfits only with a registry"),
        ([ID], {"op": None}, "op: expected the name of a column, found None"),
        ([ID], {"ts": 1}, "ts: expected the name of a column, found 1"),
        ([ID], {"before": "ID"}, "unique column names, found 'id' twice"),
        ([ID], {"op": "ts"}, "unique column names, found 'ts' twice"),
        (None, {"op": "lsn", "event": [LSN]}, "unique column names, found 'lsn' twice"),
        ([ID], {"event": "lsn"}, "event: expected a list"),
        ([ID], {"event": ["lsn"]}, "expected a Column, found 'lsn'"),
        ([], {}, "expected at least one column"),
    ],
)
def test_what_is_not_allowed_is_refused(
    columns: list[Column] | None, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        Debezium(columns, **options)


def test_with_a_registry_a_decimal_needs_no_more() -> None:
    assert Debezium([PRICE], registry="default").decimals is None
    assert Debezium([STATUS], tombstones="keep", truncates="keep", event=[]).columns == (STATUS,)
    assert Debezium([STATUS], truncates="keep", event=[LSN]).event == (LSN,)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ([Column("id", "decimal(9,0)")], {}, "expected decimals='base64' or 'number'"),
        ([ID], {"tombstones": "keep"}, "tombstones='keep': expected only columns"),
        ([Column("op", "string"), Column("ts", "timestamptz")], {}, "expected at least one column"),
    ],
)
def test_the_columns_of_the_first_table_are_checked_as_well(
    table: list[Column], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        names(Topic("orders", decode=Debezium(**options)), *table)


def test_a_column_of_the_key_cannot_have_the_name_of_one_of_the_event() -> None:
    for debezium in (Debezium(), Debezium([STATUS])):
        with pytest.raises(InvalidPipeline, match="found 'op' in decode and key"):
            Topic("orders", decode=debezium, key=Json([Column("op", "string")]))


def test_a_key_is_no_event() -> None:
    with pytest.raises(
        InvalidPipeline, match="key: expected the format of the key, found Debezium"
    ):
        Topic("orders", key=Debezium([ID]))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            [ID, Column("op", "string", source="op")],
            {"ts": None, "x": 1},
            "other options, found 'x'",
        ),
        ([ID], {"ts": None}, "in this order, found others"),
        (
            [ID, Column("op", "string", source="after.op")],
            {"ts": None},
            "in this order, found others",
        ),
        ([ID, Column("op", "string", source="op")], {"ts": None, "event": ["lsn"]}, "found others"),
    ],
)
def test_a_format_by_its_name_is_checked(
    columns: list[Column], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        Topic("orders", decode=Format("debezium", columns, options))
