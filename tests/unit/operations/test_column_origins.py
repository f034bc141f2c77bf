"""The origins of columns: what the declaration states, and nothing for what only the job's code determines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tallystick.operations.column_origins import column_origins, record_fields
from tallystick.pipeline import (
    DEAD_LETTERS,
    LINEAGE,
    Avro,
    Column,
    Csv,
    Debezium,
    Format,
    Json,
    Lookback,
    Pipeline,
    Protobuf,
    Raw,
    Table,
    Text,
    Topic,
)

OS = Column("os", "string", source="device.os")
CLICK = [OS, Column("n", "int"), Column("at", "timestamptz", parse="epoch_ms", source="ts")]
OWN = {(c.name, "clicks", c.name, "copied") for c in LINEAGE}


def declared(*tables: Table, topics: list[Any] | None = None, **options: Any) -> Pipeline:
    return Pipeline(
        name="clicks",
        topics=topics or [Topic("clicks", decode=Json(CLICK))],
        warehouse="s3://lake/clicks",
        job="spark_jobs/clicks.py",
        tables=tables,
        **options,
    )


def origins(pipeline: Pipeline, table: str, *topics: str) -> set[tuple[str, str, str, str]]:
    found = column_origins(pipeline, table, topics or ("clicks",))
    return {(o.column, o.topic, o.field, o.kind) for o in found}


def test_a_column_has_the_path_of_the_records_column_of_its_name() -> None:
    table = Table("clicks", columns=[Column("os", "string"), *CLICK[1:]])
    assert (
        origins(declared(table), "clicks")
        == {
            ("os", "clicks", "device.os", "declared"),
            ("n", "clicks", "n", "declared"),
            ("at", "clicks", "ts", "declared"),
        }
        | OWN
    )


@pytest.mark.parametrize(
    "column",
    [
        Column("computed", "string"),
        Column("os", "long"),
        Column("os", "string", source="browser.os"),
    ],
    ids=["another name", "another type", "another source"],
)
def test_a_column_that_is_not_that_of_the_records_has_no_origin(column: Column) -> None:
    table = Table("clicks", columns=[column])
    assert origins(declared(table), "clicks") == OWN


def test_a_wider_type_is_the_same_column() -> None:
    table = Table("clicks", columns=[Column("n", "long")])
    assert origins(declared(table), "clicks") == {("n", "clicks", "n", "declared")} | OWN


def test_an_aggregating_table_has_keys_and_kinds_and_no_lineage_columns() -> None:
    table = Table(
        "per_os",
        columns=[Column("os", "string"), Column("n", "long"), Column("clicks", "long")],
        keys=["os"],
        combine={"n": "max", "clicks": "sum"},
    )
    assert origins(declared(table), "per_os") == {
        ("os", "clicks", "device.os", "grouped"),
        ("n", "clicks", "n", "max"),
    }


def test_what_a_dataframe_job_computes_has_no_origin() -> None:
    per_os = Table("per_os", columns=[Column("os", "string"), Column("n", "int")], keys=["os"])
    assert origins(declared(per_os), "per_os") == set()
    clicks = Table("clicks", columns=CLICK)
    back = Lookback(tables=["clicks"], back=timedelta(days=1))
    assert origins(declared(clicks, lookback=back), "clicks") == OWN


def test_a_dead_letter_has_the_bytes_of_its_record_and_a_reason_without_origin() -> None:
    found = origins(declared(Table("clicks", columns=CLICK)), DEAD_LETTERS)
    assert found == OWN | {
        ("key", "clicks", "_key", "copied"),
        ("value", "clicks", "_value", "copied"),
        ("headers", "clicks", "_headers", "as_text"),
    }


def test_a_table_of_one_topic_has_no_origin_in_another() -> None:
    topics = [Topic("clicks", decode=Json(CLICK)), Topic("views", decode=Json(CLICK))]
    only = Table("only", columns=[OS], topic="views")
    both = Table("both", columns=[OS])
    pipeline = declared(only, both, topics=topics)
    assert {o[1] for o in origins(pipeline, "only", "clicks", "views")} == {"views"}
    assert {o[1] for o in origins(pipeline, "both", "clicks", "views")} == {"clicks", "views"}


def test_keys_and_headers_are_parts_of_the_record() -> None:
    key = Json([Column("user", "long", source="id.user")])
    topic = Topic("clicks", decode=Json(CLICK), key=key, headers="sent_with")
    table = Table(
        "clicks",
        columns=[
            Column("user", "long"),
            Column("sent_with", "map<string, list<optional binary>>"),
        ],
    )
    assert (
        origins(declared(table, topics=[topic]), "clicks")
        == {
            ("user", "clicks", "_key.id.user", "declared"),
            ("sent_with", "clicks", "_headers", "declared"),
        }
        | OWN
    )


@pytest.mark.parametrize("whole", [Text("v"), Raw("v")], ids=["text", "raw"])
def test_a_whole_value_is_the_part_and_no_field(whole: Text | Raw) -> None:
    table = Table(
        "clicks", columns=[Column("v", "string" if isinstance(whole, Text) else "binary")]
    )
    topic = Topic("clicks", decode=whole)
    assert ("v", "clicks", "_value", "declared") in origins(
        declared(table, topics=[topic]), "clicks"
    )


def test_the_column_of_other_fields_is_of_the_whole_value() -> None:
    rest = Column("rest", "string")
    topic = Topic("clicks", decode=Json([OS, rest], other_fields="rest"))
    pipeline = declared(Table("clicks", columns=[OS, rest]), topics=[topic])
    found = origins(pipeline, "clicks")
    assert ("rest", "clicks", "_value", "declared") in found
    assert ("os", "clicks", "device.os", "declared") in found


def test_a_row_of_a_change_event_is_in_after_or_before() -> None:
    topic = Topic(
        "clicks",
        decode=Debezium(
            [Column("id", "long", source="pk"), Column("n", "int", required=False)],
            event=[Column("lsn", "long", required=False, source="source.lsn")],
            before="was",
        ),
    )
    table = Table("clicks", columns=topic.declared_columns)
    found = origins(declared(table, topics=[topic]), "clicks") - OWN
    assert found == {
        ("id", "clicks", "after.pk", "declared"),
        ("id", "clicks", "before.pk", "declared"),
        ("n", "clicks", "after.n", "declared"),
        ("n", "clicks", "before.n", "declared"),
        ("op", "clicks", "op", "declared"),
        ("ts", "clicks", "ts_ms", "declared"),
        ("lsn", "clicks", "source.lsn", "declared"),
        ("was", "clicks", "before", "declared"),
    }


SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.mark.parametrize(
    "decode",
    [
        Avro([Column("n", "int")], schema=SCHEMA),
        Csv([Column("n", "int")]),
        Format("thrift", [Column("n", "int")]),
        Protobuf([Column("n", "int")], registry="default"),
    ],
    ids=["avro", "csv", "own decoder", "protobuf"],
)
def test_every_format_has_the_fields_of_its_columns(decode: Any) -> None:
    table = Table("clicks", columns=[Column("n", "int")])
    pipeline = declared(table, topics=[Topic("clicks", decode=decode)])
    assert ("n", "clicks", "n", "declared") in origins(pipeline, "clicks")


def test_each_origin_is_a_field_of_the_topics_records() -> None:
    topic = Topic("clicks", decode=Json(CLICK), key=Raw("k"), headers="h")
    table = Table("clicks", columns=topic.declared_columns)
    pipeline = declared(table, topics=[topic])
    fields = {f.name: f.type for f in record_fields(pipeline, "clicks")}
    for name in ("clicks", DEAD_LETTERS):
        assert {o[2] for o in origins(pipeline, name)} <= fields.keys()
    assert (fields["device.os"], fields["_offset"], fields["_key"]) == ("string", "long", "binary")
