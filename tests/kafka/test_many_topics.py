"""Topics by a pattern: a table per topic, new topics from their beginning, all in one plan and one commit."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from support.brokers import TestBroker
from support.log_lake import LogLake, at, days
from support.registered import produce, register, rows, types
from tallystick.cli import check_run
from tallystick.errors import InvalidPipeline, OutsideRetention
from tallystick.operations.check.schemas import SCHEMAS
from tallystick.pipeline import (
    DEAD_LETTERS,
    Avro,
    Column,
    Csv,
    Json,
    Pipeline,
    Table,
    Topic,
    Topics,
)
from unit.engine.decode.test_avro import encoded, record
from unit.engine.decode.test_framed import framed

_numbers = itertools.count()
ORDERS = record(("id", "long"), ("amount", "double"))
USERS = record(("name", "string"))
COLUMNS = [Column("n", "long")]


def named(broker: TestBroker, *names: str) -> tuple[str, list[str]]:
    """Create topics with a prefix that no other test uses; return the prefix, with dots escaped, and the topics."""
    prefix = f"shop{next(_numbers)}"
    return prefix, [broker.topic(name=f"{prefix}.{name}") for name in names]


def fan_out(broker: TestBroker, prefix: str, **options: Any) -> LogLake:
    declared = {"decode": Avro(registry="default", schema="follow")} | options
    pattern = rf"{prefix}\.(?P<name>.*)"
    return LogLake(broker, [Topics(pattern=pattern, table="{name}", **declared)], tables=[])


def test_each_topic_that_matches_has_a_table_with_its_own_columns(broker: TestBroker) -> None:
    prefix, (orders, users) = named(broker, "orders", "Users-v2")
    broker.topic(name=f"__{prefix}.internal")
    broker.topic(name=f"other-{prefix}.x")
    lake = fan_out(broker, prefix)
    register(lake, orders, ORDERS)
    register(lake, users, USERS)
    produce(broker, orders, 0.5, framed(1, encoded(ORDERS, {"id": 1, "amount": 0.5})))
    produce(broker, users, 0.5, framed(2, encoded(USERS, {"name": "x"})), b"broken")
    lake.run(days(0, 1))
    assert set(lake.lake.load_existing().root.tables) == {"orders", "users-v2", DEAD_LETTERS}
    assert rows(lake, "orders") == [{"id": 1, "amount": 0.5}]
    assert rows(lake, "users-v2") == [{"name": "x"}]
    (letter,) = lake.rows(DEAD_LETTERS)
    assert letter[0] == users
    lake.assert_verified()


def test_topics_with_the_same_schema_have_the_same_id(broker: TestBroker) -> None:
    """A registry gives an id per schema, not per subject."""
    prefix, topics = named(broker, "first", "second")
    lake = fan_out(broker, prefix)
    for topic in topics:
        subject = f"{topic}-value"
        assert lake.registry.register(subject, json.dumps(USERS), schema_id=1) == 1
        produce(broker, topic, 0.5, framed(1, encoded(USERS, {"name": topic})))
    lake.run(days(0, 1))
    assert rows(lake, "first") == [{"name": topics[0]}]
    assert rows(lake, "second") == [{"name": topics[1]}]
    lake.assert_verified()


def test_a_new_topic_is_found_and_begins_at_the_start_of_its_log(broker: TestBroker) -> None:
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix)
    register(lake, orders, ORDERS)
    produce(broker, orders, 0.5, framed(1, encoded(ORDERS, {"id": 1, "amount": 0.5})))
    lake.run(days(0, 1))
    users = broker.topic(name=f"{prefix}.users")
    produce(broker, users, 0.5, framed(2, encoded(USERS, {"name": "early"})))
    produce(broker, users, 1.5, framed(2, encoded(USERS, {"name": "x"})))
    produce(broker, orders, 1.5, framed(1, encoded(ORDERS, {"id": 2, "amount": 0.5})))
    lake.run(days(1, 2))
    assert "users" not in lake.lake.load_existing().root.tables, "it has no schema yet"
    register(lake, users, USERS)
    produce(broker, users, 2.5, framed(2, encoded(USERS, {"name": "y"})))
    lake.run(days(2, 3))
    assert [row["name"] for row in rows(lake, "users")] == ["early", "x", "y"]
    assert [row["id"] for row in rows(lake, "orders")] == [1, 2]
    lake.assert_verified()


def test_a_new_topic_begins_at_its_declared_begin(broker: TestBroker) -> None:
    prefix, (orders,) = named(broker, "orders")
    columns = [Column("n", "long")]
    lake = fan_out(broker, prefix, decode=Json(columns), begin=at(1))
    produce(broker, orders, 0.5, b'{"n": 1}')
    produce(broker, orders, 1.5, b'{"n": 2}')
    lake.run(days(1, 2))
    late = broker.topic(name=f"{prefix}.late")
    produce(broker, late, 0.5, b'{"n": 3}')
    produce(broker, late, 1.5, b'{"n": 4}')
    produce(broker, late, 2.5, b'{"n": 5}')
    lake.run(days(2, 3))
    assert [row["n"] for row in rows(lake, "orders")] == [2]
    assert [row["n"] for row in rows(lake, "late")] == [4, 5]
    lake.assert_verified()


def test_a_topic_declared_by_name_is_not_one_of_the_pattern(broker: TestBroker) -> None:
    prefix, (orders, users) = named(broker, "orders", "users")
    columns = [Column("n", "long")]
    lake = LogLake(
        broker,
        [
            Topic(users, decode=Json([Column("name", "string")])),
            Topics(pattern=rf"{prefix}\..*", decode=Json(columns), table="all_{topic}"),
        ],
        tables=[Table("people", topic=users)],
    )
    produce(broker, orders, 0.5, b'{"n": 1}')
    produce(broker, users, 0.5, b'{"name": "x"}')
    lake.run(days(0, 1))
    assert rows(lake, "people") == [{"name": "x"}]
    assert rows(lake, f"all_{prefix}_orders") == [{"n": 1}]


def test_the_fingerprint_is_that_of_the_declaration(broker: TestBroker) -> None:
    """A new topic or a new schema is no change of the job: committed intervals stay as they are."""
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix)
    register(lake, orders, ORDERS)
    produce(broker, orders, 0.5, framed(1, encoded(ORDERS, {"id": 1, "amount": 0.5})))
    declared = lake.pipeline().fingerprint(lake.job)
    assert lake.plan(days(0, 1)).fingerprint == declared
    broker.topic(name=f"{prefix}.users")
    assert lake.pipeline().fingerprint(lake.job) == declared
    other = fan_out(broker, prefix, decode=Avro(registry="other", schema="follow"))
    assert other.pipeline().fingerprint(lake.job) != declared


def test_of_two_new_topics_of_one_table_the_first_one_has_it(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    prefix, (orders, upper) = named(broker, "orders", "Orders")
    lake = fan_out(broker, prefix, decode=Json(COLUMNS))
    produce(broker, orders, 0.5, b'{"n": 1}')
    produce(broker, upper, 0.5, b'{"n": 2}')
    lake.run(days(0, 1))
    assert rows(lake, "orders") == [{"n": 2}]
    assert f"topic {orders} is left out" in caplog.text
    assert f"and for topic {upper!r}" in caplog.text


def test_a_topic_of_the_ledger_keeps_its_table(broker: TestBroker) -> None:
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix, decode=Json(COLUMNS))
    produce(broker, orders, 0.5, b'{"n": 1}')
    lake.run(days(0, 1))
    upper = broker.topic(name=f"{prefix}.Orders")
    produce(broker, upper, 1.5, b'{"n": 2}')
    produce(broker, orders, 1.5, b'{"n": 3}')
    lake.run(days(1, 2))
    assert rows(lake, "orders") == [{"n": 1}, {"n": 3}]
    lake.assert_verified()


@pytest.mark.parametrize("name", ["a" * 150, "dead_letters", "people", "1.2"])
def test_a_new_topic_that_can_have_no_table_does_not_stop_the_others(
    broker: TestBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    prefix, (orders, other) = named(broker, "orders", name)
    people = broker.topic()
    pattern = rf"{prefix}\.(?P<name>.*)"
    table = "{name}" if name != "1.2" else "_"
    lake = LogLake(
        broker,
        [
            Topic(people, decode=Json(COLUMNS)),
            Topics(pattern=rf"{prefix}\.orders", decode=Json(COLUMNS), table="orders"),
            Topics(pattern=pattern, decode=Json(COLUMNS), table=table),
        ],
        tables=[Table("people", topic=people)],
    )
    produce(broker, orders, 0.5, b'{"n": 1}')
    produce(broker, other, 0.5, b'{"n": 2}')
    lake.run(days(0, 1))
    assert rows(lake, "orders") == [{"n": 1}]
    assert f"topic {other} is left out" in caplog.text
    assert set(lake.lake.load_existing().root.topics) == {people, orders}


@pytest.mark.parametrize(
    ("declared", "subject"),
    [
        ({"decode": Avro([Column("id", "long")], registry="default")}, "value"),
        ({"key": Avro([Column("id_of_key", "long")], registry="default")}, "key"),
    ],
)
def test_a_new_topic_is_left_out_until_it_has_all_of_its_subjects(
    broker: TestBroker, declared: dict[str, Any], subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix, **declared)
    for what in ("key", "value"):
        lake.registry.register(f"{orders}-{what}", json.dumps(ORDERS))
    produce(broker, orders, 0.5, b"broken")
    lake.run(days(0, 1))
    users = broker.topic(name=f"{prefix}.users")
    missing = f"{users}-{subject}"
    for what in {"key", "value"} - {subject}:
        lake.registry.register(f"{users}-{what}", json.dumps(ORDERS))
    produce(broker, users, 1.5, b"broken")
    lake.run(days(1, 2))
    assert list(lake.lake.load_existing().root.topics) == [orders]
    assert f"topic {users} is left out until the registry has {missing}" in caplog.text
    lake.registry.register(missing, json.dumps(ORDERS))
    lake.run(days(2, 3))
    assert set(lake.lake.load_existing().root.topics) == {orders, users}
    assert {topic for topic, _, _ in lake.rows(DEAD_LETTERS)} == {orders, users}


def test_a_new_topic_whose_log_has_lost_its_beginning_does_not_stop_the_others(
    broker: TestBroker,
) -> None:
    """It begins at the start of its log. In the first interval of a ledger that would be a loss without a trace."""
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix, decode=Json(COLUMNS))
    produce(broker, orders, 0.5, b'{"n": 1}')
    lake.run(days(0, 1))
    late = broker.topic(name=f"{prefix}.late")
    produce(broker, late, 1.5, b'{"n": 2}', b'{"n": 3}')
    broker.delete_records(late, 1)
    lake.run(days(1, 2))
    assert rows(lake, "late") == [{"n": 3}]
    lake.assert_verified()
    empty = fan_out(broker, prefix, decode=Json(COLUMNS))
    with pytest.raises(OutsideRetention, match=rf"{late}\[0\] begins at offset 1"):
        empty.run(days(1, 2))


def test_a_field_with_the_name_of_a_column_of_the_headers_is_a_column(broker: TestBroker) -> None:
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix, headers="headers")
    schema = record(("id", "long"), ("headers", "string"))
    register(lake, orders, schema)
    for day in (0, 1):
        produce(broker, orders, day + 0.5, framed(1, encoded(schema, {"id": 1, "headers": "x"})))
        lake.run(days(day, day + 1))
    assert rows(lake, "orders") == 2 * [{"id": 1, "headers_2": "x", "headers": []}]
    lake.assert_verified()


def test_a_pattern_without_a_topic_is_refused(broker: TestBroker) -> None:
    lake = fan_out(broker, "nothing-has-this-prefix", decode=Json([Column("n", "long")]))
    with pytest.raises(InvalidPipeline, match="expected topics that match"):
        lake.run(days(0, 1))


def test_a_topic_of_the_ledger_that_no_longer_exists_is_asked_about(broker: TestBroker) -> None:
    prefix, (orders, users) = named(broker, "orders", "users")
    lake = fan_out(broker, prefix, decode=Json([Column("n", "long")]))
    produce(broker, orders, 0.5, b'{"n": 1}')
    lake.run(days(0, 1))
    broker.delete_topic(users)
    with pytest.raises(Exception, match=f"topic '{users}' does not exist"):
        lake.run(days(1, 2))


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"pattern": "("}, "expected a regular expression, found '('"),
        ({"table": "{nmae}"}, "expected topic in braces, found 'nmae'"),
        ({"headers": "n"}, "expected each column in one of decode, key and headers, found 'n'"),
        (
            {"decode": Avro(registry="default", schema="follow"), "key": Avro(registry="default")},
            "expected the columns of the key, found none",
        ),
        ({"decode": Avro(registry="default")}, "expected the columns of the values, found none"),
        ({"decode": Csv()}, "expected the columns of the values, found none"),
        ({"decode": None}, "expected the columns of the values, found none"),
        ({"partition_by": ["century(n)"]}, "partition_by: "),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Topics(**({"pattern": "x.*", "decode": Json(COLUMNS)} | declared))
    assert problem in refused.value.message


@pytest.mark.parametrize(
    ("topics", "tables", "problem"),
    [
        (["a"], [Table("t", topic="b")], "expected topic one of a, found 'b'"),
        (["a"], [Table("t", topic="a")], "expected the columns of topic 'a', found none there"),
        (["a"], [], "expected at least one topic and one table"),
        ([], [Table("t", COLUMNS)], "expected at least one topic and one table"),
        (
            ["a", Topics(pattern="b.*", decode=Json(COLUMNS))],
            [],
            "topic a: expected the columns of its values, found none there, and none in a first table",
        ),
        (
            ["a", Topic("b", decode=Json(COLUMNS))],
            [Table("t", topic="b"), Table("u", COLUMNS)],
            "topic a: expected the columns of its values",
        ),
    ],
)
def test_a_table_follows_a_topic_that_has_columns(
    topics: list[Any], tables: list[Table], problem: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Pipeline(name="p", topics=topics, warehouse="memory://lake/p", job="j.py", tables=tables)
    assert problem in refused.value.message


def test_the_form_of_a_table_is_checked_when_its_columns_are_known(broker: TestBroker) -> None:
    prefix, (orders,) = named(broker, "orders")
    lake = fan_out(broker, prefix, partition_by=["day(nothing)"])
    register(lake, orders, ORDERS)
    produce(broker, orders, 0.5, framed(1, encoded(ORDERS, {"id": 1, "amount": 0.5})))
    with pytest.raises(
        InvalidPipeline, match=r"expected partition_by a column, found 'day\(nothing\)'"
    ):
        lake.run(days(0, 1))


def test_types_of_a_fan_out_evolve_table_by_table(broker: TestBroker) -> None:
    prefix, (orders, users) = named(broker, "orders", "users")
    lake = fan_out(broker, prefix)
    register(lake, orders, ORDERS)
    register(lake, users, USERS)
    produce(broker, users, 0.5, framed(2, encoded(USERS, {"name": "x"})))
    lake.run(days(0, 1))
    more = record(("id", "long"), ("amount", "double"), ("note", ["null", "string"]))
    number = lake.registry.register(f"{orders}-value", json.dumps(more))
    produce(
        broker, orders, 1.5, framed(number, encoded(more, {"id": 1, "amount": 1.0, "note": "n"}))
    )
    lake.run(days(1, 2))
    assert types(lake, "orders") == {"id": "long", "amount": "double", "note": "optional string"}
    assert types(lake, "users") == {"name": "string"}


def test_a_check_takes_the_topics_and_schemas_of_a_plan(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Topics without a subject are left out of both, and each subject is read once."""
    prefix, (orders, _) = named(broker, "orders", "users")
    columns = [Column("id", "long")]
    lake = fan_out(broker, prefix, decode=Avro(columns, registry="default", misfits="stop"))
    register(lake, orders, ORDERS)
    monkeypatch.setenv(
        "TALLYSTICK_KAFKA_DEFAULT", json.dumps({"bootstrap_servers": broker.bootstrap})
    )
    monkeypatch.setattr(check_run, "_registry", lambda _: lake.registry)
    job = tmp_path / "spark_jobs/edges.py"
    job.parent.mkdir()
    job.write_text("from tallystick.spark import run\n\nrun(lambda records: records)\n")
    options = check_run.CheckOptions(records=1, store=False)
    found = [
        finding
        for finding in check_run.check_pipeline(lake.pipeline(), str(tmp_path), options, first=None)
        if finding.check == SCHEMAS
    ]
    assert [finding.state for finding in found] == ["ok", "ok"], found
    assert "1 topics, 1 tables" in found[0].text
    assert f"1 of {orders}-value in registry default" in found[1].text
    assert lake.registry.requests.count(f"{orders}-value") == 1
