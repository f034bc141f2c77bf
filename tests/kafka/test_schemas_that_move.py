"""Schemas that change between intervals: tables follow them, a plan has its own, and a registry cannot change rows."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from support.brokers import TestBroker
from support.log_lake import LogLake, days
from support.registered import produce, register, rows, types
from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.misfits import misfit
from tallystick.errors import (
    InvalidPipeline,
    RegistryUnavailable,
    SchemaChanged,
    SchemaIdConflict,
    SchemaNotFound,
)
from tallystick.format.schemas import FrozenSchema
from tallystick.kafka.planning import LogPlanner
from tallystick.pipeline import DEAD_LETTERS, Avro, Column, Format, Protobuf, Table, Topic
from unit.engine.decode.test_avro import encoded, record
from unit.engine.decode.test_framed import framed

DECIMAL = {"type": "bytes", "logicalType": "decimal", "scale": 2}
FIRST = record(
    ("n", "int"),
    ("text", "string"),
    ("device", record(("os", "string"), name="device")),
    ("price", {**DECIMAL, "precision": 5}),
)
SECOND = record(
    ("n", "long"),
    ("text", ["null", "string"]),
    (
        "device",
        record(("os", "string"), ("version", ["null", "int"]), name="device"),
    ),
    ("price", {**DECIMAL, "precision": 9}),
    ("tags", ["null", {"type": "array", "items": "string"}]),
)
INCOMPATIBLE = record(("n", "string"), ("text", "string"))
ROW_1 = {"n": 1, "text": "a", "device": {"os": "x"}, "price": Decimal("1.25")}
ROW_2 = {
    "n": 2**40,
    "text": None,
    "device": {"os": "y", "version": 3},
    "price": Decimal("1234567.25"),
    "tags": ["t"],
}


def following(topic: str, **options: Any) -> Topic:
    return Topic(topic, decode=Avro(registry="default", schema="follow", **options))


def lake_of(broker: TestBroker, topic: str, **options: Any) -> LogLake:
    return LogLake(broker, [following(topic, **options)], tables=[Table("events", topic=topic)])


def moved(broker: TestBroker) -> tuple[LogLake, str]:
    """Return a lake with a day of each schema, of which the first was committed before the second was registered."""
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(0, 1))
    assert types(lake) == {
        "n": "int",
        "text": "string",
        "device": "struct<os: string>",
        "price": "decimal(5,2)",
    }
    register(lake, topic, SECOND)
    produce(broker, topic, 1.5, framed(2, encoded(SECOND, ROW_2)), framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(1, 2))
    return lake, topic


OLD_ROW = {**ROW_1, "device": {"os": "x", "version": None}, "tags": None}


def test_a_table_follows_added_and_widened_fields_also_inside_of_a_struct(
    broker: TestBroker,
) -> None:
    lake, _ = moved(broker)
    assert types(lake) == {
        "n": "long",
        "text": "optional string",
        "device": "struct<os: string, version: optional int>",
        "price": "decimal(9,2)",
        "tags": "optional list<string>",
    }
    assert rows(lake) == [OLD_ROW, ROW_2, OLD_ROW]
    lake.assert_verified()


def test_an_interval_of_the_old_schema_that_is_replaced_has_the_same_rows(
    broker: TestBroker,
) -> None:
    lake, _ = moved(broker)
    before = rows(lake)
    lake.run(days(0, 1), run="again", mode="replace")
    assert rows(lake) == before
    lake.assert_verified()


def test_evolution_ends_a_plan_without_a_new_schema_changes_no_table(broker: TestBroker) -> None:
    """The order of the versions in the records does not matter: int after long after int stays long."""
    lake, topic = moved(broker)
    columns = lake.lake.load_existing().root.tables["events"].columns
    for day in (2, 3):
        produce(broker, topic, day + 0.5, framed(1, encoded(FIRST, ROW_1)))
        lake.run(days(day, day + 1))
        assert lake.lake.load_existing().root.tables["events"].columns == columns
    register(lake, topic, FIRST | {"doc": "the first again"})
    lake.run(days(0, 1), run="again", mode="replace")
    assert lake.lake.load_existing().root.tables["events"].columns == columns


def test_a_schema_of_another_type_has_dead_letters_and_the_others_have_rows(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    bad = register(lake, topic, INCOMPATIBLE)
    produce(
        broker, topic, 0.5,
        framed(bad, encoded(INCOMPATIBLE, {"n": "1", "text": ""})),
        framed(1, encoded(FIRST, ROW_1)),
    )  # fmt: skip
    lake.run(days(0, 1))
    assert rows(lake) == [ROW_1]
    (letter,) = lake.rows(DEAD_LETTERS).values()
    assert (letter["kind"], letter["field"]) == ("schema", "n")
    assert "expected int, found string" in letter["detail"]
    lake.assert_verified()


def test_misfits_stop_plans_nothing(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic, misfits="stop")
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(0, 1))
    register(lake, topic, INCOMPATIBLE)
    produce(broker, topic, 1.5, framed(1, encoded(FIRST, ROW_1)))
    lake.assert_refused(
        SchemaChanged,
        "schema 2",
        "expected int, found string",
        "misfits='stop'",
        run=lambda: lake.run(days(1, 2)),
    )


def test_a_plan_needs_no_registry_after_it_was_made(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)))
    plan = lake.plan(days(0, 1))
    lake.registry.down = True
    assert lake.plan(days(0, 1)) == plan
    lake.commit(plan, lake.stage(plan))
    assert rows(lake) == [ROW_1]


def test_a_registry_that_is_down_is_a_retry_and_nothing_is_lost(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)))
    lake.registry.down = True
    with pytest.raises(RegistryUnavailable):
        lake.run(days(0, 1))
    lake.registry.down = False
    lake.run(days(0, 1))
    assert rows(lake) == [ROW_1]


def test_a_registry_with_other_bytes_for_an_id_stops_the_plan(broker: TestBroker) -> None:
    lake, topic = moved(broker)
    lake.registry.found.clear()
    register(lake, topic, SECOND)  # now it is id 1
    produce(broker, topic, 2.5, framed(1, encoded(FIRST, ROW_1)))
    for again in (
        lambda: lake.run(days(2, 3)),
        lambda: lake.run(days(0, 1), run="again", mode="replace"),
    ):
        lake.assert_refused(SchemaIdConflict, "schema id 1", run=again)


@pytest.mark.parametrize("moment", ["after an empty interval", "before the first", "far away"])
def test_other_bytes_for_an_id_are_noticed_at_any_distance(broker: TestBroker, moment: str) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    one, other = record(("a", "long"), ("b", "long")), record(("b", "long"), ("a", "long"))
    register(lake, topic, one)
    produce(broker, topic, 0.5, framed(1, encoded(one, {"a": 0, "b": 0})))
    produce(broker, topic, 3.5, framed(1, encoded(one, {"a": 1, "b": 2})))
    produce(broker, topic, 40.5, framed(1, encoded(one, {"a": 3, "b": 4})))
    lake.run(days(3, 4))
    lake.run(days(4, 5))
    lake.registry.found.clear()
    register(lake, topic, other)
    first, last = {
        "after an empty interval": (5, 41),
        "before the first": (0, 1),
        "far away": (40, 41),
    }[moment]
    lake.assert_refused(SchemaIdConflict, "schema id 1", run=lambda: lake.run(days(first, last)))


def test_a_table_stays_as_wide_as_it_is_if_the_wider_version_is_gone(broker: TestBroker) -> None:
    lake, topic = moved(broker)
    before = types(lake)
    lake.registry.found[f"{topic}-value"].pop()
    produce(broker, topic, 2.5, framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(2, 3))
    assert types(lake) == before | {"device": "struct<os: string, version: optional int>"}
    assert rows(lake)[-1] == OLD_ROW
    lake.assert_verified()


def test_a_schema_that_does_not_fit_the_table_in_the_lake_has_dead_letters(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(0, 1))
    lake.registry.found.clear()
    lake.registry.register(f"{topic}-value", json.dumps(INCOMPATIBLE), schema_id=9)
    produce(broker, topic, 1.5, framed(9, encoded(INCOMPATIBLE, {"n": "1", "text": ""})))
    lake.run(days(1, 2))
    assert [letter["kind"] for letter in lake.rows(DEAD_LETTERS).values()] == ["schema"]
    assert types(lake)["n"] == "int"


@pytest.mark.parametrize("follows", [False, True])
def test_a_schema_that_is_registered_while_a_run_plans_loses_no_record(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, *, follows: bool
) -> None:
    """Declared columns: schemas are read after the offsets, so that a plan has those of all of its records."""
    topic = broker.topic()
    lake = lake_of(broker, topic)
    if not follows:
        columns = [Column("n", "long")]
        lake.topics = [Topic(topic, decode=Avro(columns, registry="default"))]
        lake.tables = [Table("events", columns)]
    register(lake, topic, FIRST)
    produce(broker, topic, 0.4, framed(1, encoded(FIRST, ROW_1)))
    real = LogPlanner.boundary

    def boundary(self: LogPlanner, *place: Any, **options: Any) -> Any:
        if len(lake.registry.found[f"{topic}-value"]) == 1:
            register(lake, topic, SECOND)
            produce(broker, topic, 0.5, framed(2, encoded(SECOND, ROW_2)))
        return real(self, *place, **options)

    monkeypatch.setattr(LogPlanner, "boundary", boundary)
    lake.run(days(0, 1))
    kinds = [letter["kind"] for letter in lake.rows(DEAD_LETTERS).values()]
    assert kinds == (["schema_id"] if follows else [])
    lake.run(days(0, 1), run="again", mode="replace")
    assert [row["n"] for row in rows(lake)] == [1, 2**40]
    assert not lake.rows(DEAD_LETTERS)
    lake.assert_verified()


def test_an_id_that_the_registry_lost_is_a_dead_letter_until_it_is_back(broker: TestBroker) -> None:
    lake, topic = moved(broker)
    first = lake.registry.found[f"{topic}-value"].pop(0)
    produce(broker, topic, 2.5, framed(1, encoded(FIRST, ROW_1)), framed(2, encoded(SECOND, ROW_2)))
    lake.run(days(2, 3))
    (letter,) = lake.rows(DEAD_LETTERS).values()
    assert letter["kind"] == "schema_id"
    assert letter["detail"] == "expected a schema id of the plan (2), found 1"
    lake.registry.found[f"{topic}-value"].insert(0, first)
    lake.run(days(2, 3), run="again", mode="replace")
    assert not lake.rows(DEAD_LETTERS)
    assert rows(lake)[-2:] == [OLD_ROW, ROW_2]


def test_a_changed_subject_strategy_has_dead_letters_until_its_subject_is_declared(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    lake.registry.register("shop.Order", json.dumps(SECOND))
    produce(broker, topic, 0.5, framed(1, encoded(FIRST, ROW_1)), framed(2, encoded(SECOND, ROW_2)))
    lake.run(days(0, 1))
    assert [letter["kind"] for letter in lake.rows(DEAD_LETTERS).values()] == ["schema_id"]
    lake.topics = [following(topic, subjects=[f"{topic}-value", "shop.Order"])]
    lake.run(days(0, 1), run="again", mode="replace")
    assert not lake.rows(DEAD_LETTERS)
    assert rows(lake) == [OLD_ROW, ROW_2]


def test_a_topic_without_a_subject_is_named_with_the_way_out(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    produce(broker, topic, 0.5, framed(1, b""))
    with pytest.raises(SchemaNotFound, match=f"{topic}-value") as refused:
        lake.run(days(0, 1))
    assert 'subjects=["..."]' in refused.value.hint


def test_a_tombstone_in_a_topic_of_a_registry_is_a_dead_letter_or_a_row(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, FIRST)
    produce(broker, topic, 0.5, None, framed(1, encoded(FIRST, ROW_1)))
    lake.run(days(0, 1))
    assert [letter["kind"] for letter in lake.rows(DEAD_LETTERS).values()] == ["tombstone"]
    assert rows(lake) == [ROW_1]


def test_a_nested_field_that_is_required_in_one_version_is_null_in_rows_of_the_others(
    broker: TestBroker,
) -> None:
    """A field that a later version requires is optional in the table, at any depth: older records lack it."""
    topic = broker.topic()
    lake = lake_of(broker, topic)
    old = record(("device", ["null", record(("os", "string"), name="device")]))
    new = record(("device", record(("os", "string"), ("dpi", "int"), name="device")))
    register(lake, topic, old)
    register(lake, topic, new)
    produce(
        broker, topic, 0.5,
        framed(1, encoded(old, {"device": {"os": "x"}})),
        framed(1, encoded(old, {"device": None})),
        framed(2, encoded(new, {"device": {"os": "y", "dpi": 3}})),
    )  # fmt: skip
    lake.run(days(0, 1))
    assert types(lake) == {"device": "optional struct<os: string, dpi: optional int>"}
    assert rows(lake) == [
        {"device": {"os": "x", "dpi": None}},
        {"device": None},
        {"device": {"os": "y", "dpi": 3}},
    ]


def test_rows_whose_partition_column_is_null_have_a_partition(broker: TestBroker) -> None:
    topic = broker.topic()
    schema = record(("place", ["null", "string"]), ("n", "long"))
    lake = LogLake(
        broker,
        [following(topic)],
        tables=[Table("events", topic=topic, partition_by=["place", "bucket(4, n)"])],
    )
    register(lake, topic, schema)
    found = [{"place": None, "n": 1}, {"place": "a", "n": 2}, {"place": None, "n": 3}]
    produce(broker, topic, 0.5, *(framed(1, encoded(schema, row)) for row in found))
    lake.run(days(0, 1))
    assert sorted(rows(lake), key=lambda row: row["n"]) == found
    lake.assert_verified()


def test_a_recursive_schema_has_the_columns_of_its_first_level(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    schema = record(("v", "int"), ("next", ["null", "r"]))
    register(lake, topic, schema)
    produce(
        broker, topic, 0.5, framed(1, encoded(schema, {"v": 1, "next": {"v": 2, "next": None}}))
    )
    lake.run(days(0, 1))
    assert types(lake) == {"v": "int"}
    assert rows(lake) == [{"v": 1}]


PROTO = """
syntax = "proto3";
package shop;
message Order {{
  int64 n = 1;
  Order parent = 2;
  oneof arm {{ Empty nothing = 3; string text = 4; }}
  message Empty {{}}
  {more}
}}
"""


def test_protobuf_with_an_empty_oneof_arm_and_recursion_is_followed(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = LogLake(
        broker,
        [Topic(topic, decode=Protobuf(registry="default", schema="follow"))],
        tables=[Table("events", topic=topic)],
    )
    for more in ("", "repeated double sizes = 5;"):
        lake.registry.register(f"{topic}-value", PROTO.format(more=more), kind="PROTOBUF")
    recursive = b"\x08\x01\x12\x02\x08\x02"
    produce(
        broker, topic, 0.5,
        framed(1, b"\x00" + recursive),
        framed(1, b"\x00\x08\x03\x1a\x00"),
        framed(2, b"\x00\x22\x01x\x2a\x08" + b"\x00" * 6 + b"\xf8\x3f"),
    )  # fmt: skip
    lake.run(days(0, 1))
    assert types(lake) == {"n": "long", "text": "optional string", "sizes": "optional list<double>"}
    assert rows(lake) == [
        {"n": 1, "text": None, "sizes": None},
        {"n": 3, "text": None, "sizes": None},
        {"n": 0, "text": "x", "sizes": [1.5]},
    ]


def test_a_schema_without_fields_is_refused(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    register(lake, topic, record(("nothing", "null")))
    produce(broker, topic, 0.5, framed(1, b""))
    with pytest.raises(InvalidPipeline, match="expected a schema with fields"):
        lake.run(days(0, 1))


def test_versions_are_merged_in_their_order_also_if_a_later_one_has_a_lower_id(
    broker: TestBroker,
) -> None:
    """A registry gives one id to the same schema in several subjects: that of the one that had it first."""
    topic, other = broker.topic(), broker.topic()
    lake = LogLake(
        broker,
        [following(other), following(topic)],
        tables=[Table("others", topic=other), Table("events", topic=topic)],
    )
    text, number = record(("x", "string")), record(("x", "int"))
    lake.registry.register(f"{other}-value", json.dumps(text), schema_id=5)
    lake.registry.register(f"{topic}-value", json.dumps(number), schema_id=10)
    lake.registry.register(f"{topic}-value", json.dumps(text), schema_id=5)
    produce(
        broker, topic, 0.5,
        framed(10, encoded(number, {"x": 1})),
        framed(5, encoded(text, {"x": "a"})),
    )  # fmt: skip
    lake.run(days(0, 1))
    assert types(lake) == {"x": "int"}
    assert rows(lake) == [{"x": 1}]
    assert len(lake.rows(DEAD_LETTERS)) == 1


def test_a_version_of_another_type_that_fits_loses_no_new_field(broker: TestBroker) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    first, second = record(("x", "double")), record(("x", "long"), ("note", "string"))
    register(lake, topic, first)
    produce(broker, topic, 0.5, framed(1, encoded(first, {"x": 0.5})))
    lake.run(days(0, 1))
    register(lake, topic, second)
    produce(broker, topic, 1.5, framed(2, encoded(second, {"x": 5, "note": "n"})))
    lake.run(days(1, 2))
    assert types(lake) == {"x": "double", "note": "optional string"}
    assert rows(lake) == [{"x": 0.5, "note": None}, {"x": 5.0, "note": "n"}]
    lake.assert_verified()


def test_a_topic_whose_only_schema_is_left_out_is_refused_with_the_reason(
    broker: TestBroker,
) -> None:
    topic = broker.topic()
    lake = lake_of(broker, topic)
    schema = record(("v", "int"), name="r0")
    for level in range(1, 30):
        schema = record(("a", schema), ("b", f"r{level - 1}"), name=f"r{level}")
    register(lake, topic, schema)
    produce(broker, topic, 0.5, framed(1, b""))
    with pytest.raises(InvalidPipeline, match=r"expected a schema with fields.*at most 10000"):
        lake.run(days(0, 1))


def test_a_plan_compares_the_schemas_with_the_columns_once(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    declared = Avro([Column("n", "long")], registry="default", misfits="stop")
    lake = LogLake(broker, [Topic(topic, decode=declared)], tables=[Table("events", topic=topic)])
    schema = record(("n", "long"))
    register(lake, topic, schema)
    for day in (0, 1):
        produce(broker, topic, day + 0.5, framed(1, encoded(schema, {"n": day})))
        lake.run(days(day, day + 1))
    compared: list[int] = []

    def counted(planned: Format, found: FrozenSchema) -> Reason | None:
        compared.append(found.id)
        return misfit(planned, found)

    monkeypatch.setattr("tallystick.engine.decode.misfits.misfit", counted)
    assert len(lake.planned(days(0, 2), run="again", mode="replace").intervals) == 2
    assert compared == [1]
