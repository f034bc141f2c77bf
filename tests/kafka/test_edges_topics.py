"""Partitions that are added to a topic at any time; several topics of different kinds in one pipeline."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions

from support.brokers import TestBroker, done, send
from support.log_lake import LogLake, at, days, decoded, fill, ms
from tallystick.errors import IdentityChanged, NotYet, OutsideRetention, TallystickError
from tallystick.pipeline import DEAD_LETTERS, Column, Table


def grow(broker: TestBroker, topic: str, partitions: int) -> None:
    done(broker.admin.create_partitions([NewPartitions(topic, partitions)]))
    broker.wait_for_leaders(topic, partitions)


def spread(broker: TestBroker, topic: str, partitions: int, *, day: float) -> None:
    """Produce five records of one time into each partition."""
    producer = broker.producer()
    for partition in range(partitions):
        numbers = range(10 * partition, 10 * partition + 5)
        fill(broker, topic, *numbers, day=day, partition=partition, producer=producer)
    send(producer, topic)


# ---------------------------------------------------------------- partitions


def test_partitions_added_after_the_plan_are_read_by_the_next_plan(broker: TestBroker) -> None:
    topic = broker.topic(3)
    lake = LogLake(broker, [topic])
    spread(broker, topic, 3, day=0.5)
    plan = lake.plan(days(0, 1))
    grow(broker, topic, 5)
    spread(broker, topic, 5, day=0.6)
    spread(broker, topic, 5, day=1.5)
    assert lake.plan(days(0, 1)).encode() == plan.encode()
    lake.commit(plan, lake.stage(plan))
    assert {p for _, p, _ in lake.rows()} == {0, 1, 2}
    lake.run(days(1, 2))
    # All of the new partitions, including the first day; of the old ones the records after its end.
    assert [account.start for account in lake.record(days(1, 2)).accounts] == [5, 5, 5, 0, 0]
    lake.assert_equals_kafka()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_partitions_added_between_two_intervals_lose_nothing(
    broker: TestBroker, order: tuple[int, ...]
) -> None:
    topic = broker.topic(3)
    lake = LogLake(broker, [topic])
    for day in range(3):
        spread(broker, topic, 3, day=day + 0.5)
    lake.run(days(order[0], order[0] + 1))
    grow(broker, topic, 5)
    for day in range(3):
        spread(broker, topic, 5, day=day + 0.6)
    for day in (*order[1:], 3):
        lake.run(days(day, day + 1))
    lake.assert_equals_kafka()


def test_records_lost_by_an_added_partition_before_it_was_planned_are_a_loss(
    broker: TestBroker,
) -> None:
    topic = broker.topic(3)
    lake = LogLake(broker, [topic])
    spread(broker, topic, 3, day=0.5)
    lake.run(days(0, 1))
    grow(broker, topic, 5)
    spread(broker, topic, 5, day=1.5)
    broker.delete_records(topic, 2, partition=4)
    lake.assert_refused(
        OutsideRetention,
        f"{topic}[4]: expected offsets [0, 5), found a log that begins at 2: 2 offsets are gone",
        run=lambda: lake.planned(days(1, 2)),
    )
    result = lake.run(days(1, 2), accept_loss=True)
    assert result is not None
    assert (result.totals.records, result.totals.lost) == (23, 2)
    lake.assert_equals_kafka()


# ---------------------------------------------------------------- several topics


class FourTopics:
    """A pipeline over four topics: flights (3 partitions), notes (other columns), empty (2), moved (transactional)."""

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self.flights, self.notes, self.empty = broker.topic(3), broker.topic(), broker.topic(2)
        self.moved = broker.topic()
        self.lake = LogLake(
            broker,
            [
                decoded(self.flights),
                decoded(self.notes, Column("words", "string"), Column("id", "int")),
                self.empty,
                decoded(self.moved, Column("n", "long", source="number")),
            ],
            tables=[
                Table(
                    "events",
                    columns=[
                        Column("n", "long", required=False),
                        Column("text", "string", required=False),
                    ],
                ),
                Table("per_topic", columns=TOPIC_SUMS, keys=["topic"], combine={"records": "sum"}),
            ],
            transform=one_shape,
        )

    def fill(self, day: float) -> None:
        """Produce the records of a day. A record of notes does not decode, a transaction of moved is aborted."""
        stamp = ms(at(day))
        spread(self.broker, self.flights, 3, day=day)
        for body in (
            b'{"words": "one", "id": 1}',
            b'{"words": "two"}',
            b'{"words":"three","id":3}',
        ):
            send(self.broker.producer(), self.notes, body, timestamp=stamp)
        producer = self.broker.transactions(f"{self.moved}-moves")
        for number, abort in ((1, False), (2, True), (3, False)):
            producer.begin_transaction()
            send(producer, self.moved, b'{"number": %d}' % number, timestamp=stamp)
            self.broker.end(producer, self.moved, abort=abort)

    def found(self) -> dict[str, list[tuple[int | None, str | None]]]:
        """Return the values of the rows of each topic."""
        sorted_rows = sorted(self.lake.rows().items())
        names = {self.flights: "flights", self.notes: "notes", self.moved: "moved"}
        values: dict[str, list[tuple[int | None, str | None]]] = {}
        for (topic, _, _), row in sorted_rows:
            values.setdefault(names[topic], []).append((row["n"], row["text"]))
        return values


TOPIC_SUMS = [Column("topic", "string"), Column("records", "long")]
ONE_DAY: dict[str, list[tuple[int | None, str | None]]] = {
    "flights": [(10 * p + n, None) for p in range(3) for n in range(5)],
    "notes": [(1, "one"), (3, "three")],
    "moved": [(1, None), (3, None)],
}


def one_shape(records: pa.Table) -> dict[str, pa.Table]:
    """Return rows of every topic in the columns of one table, and their number."""
    lineage = {n: records[n] for n in ("_topic", "_kafka_partition", "_offset", "_timestamp")}
    count, names = records.num_rows, records.column_names
    number = records["n"] if "n" in names else records["id"].cast(pa.int64())
    text = next((records[n] for n in ("text", "words") if n in names), pa.nulls(count, pa.string()))
    return {
        "events": pa.table({"n": number, "text": text, **lineage}),
        "per_topic": pa.table(
            {"topic": records["_topic"], "records": pa.array([1] * count, pa.int64())}
        ),
    }


@pytest.fixture
def topics(broker: TestBroker) -> FourTopics:
    four = FourTopics(broker)
    four.fill(0.5)
    return four


def test_several_topics_of_different_kinds_are_one_interval(topics: FourTopics) -> None:
    done = topics.lake.run(days(0, 1))
    assert done is not None
    assert topics.found() == ONE_DAY
    accounts = topics.lake.record(days(0, 1)).accounts
    assert [(account.topic, account.partition) for account in accounts] == [
        *((topics.flights, p) for p in range(3)),
        (topics.notes, 0),
        *((topics.empty, p) for p in range(2)),
        (topics.moved, 0),
    ]
    assert [(a.records, a.dead_letters, a.aborted, a.control) for a in accounts] == [
        *[(5, 0, 0, 0)] * 3,
        (2, 1, 0, 0),
        *[(0, 0, 0, 0)] * 2,
        (2, 0, 1, 3),
    ]
    (letter,) = topics.lake.rows(DEAD_LETTERS).items()
    assert letter[0] == (topics.notes, 0, 1)
    topics.lake.assert_verified()
    topics.fill(1.5)
    topics.lake.run(days(1, 2))
    assert {name: len(rows) for name, rows in topics.found().items()} == {
        name: 2 * len(rows) for name, rows in ONE_DAY.items()
    }
    topics.lake.assert_verified()


def damage_one(topics: FourTopics, damage: str) -> tuple[type[TallystickError], str]:
    """Damage one of the topics. Returns the error that must name it."""
    broker = topics.broker
    if damage == "recreated":
        broker.delete_topic(topics.notes)
        broker.topic(name=topics.notes)
        topics.fill(1.5)
        return IdentityChanged, topics.notes
    if damage == "behind retention":
        broker.delete_records(topics.flights, 7, partition=1)
        return OutsideRetention, topics.flights
    producer = broker.transactions(f"{topics.moved}-moves")
    producer.begin_transaction()
    send(producer, topics.moved, b'{"number": 9}', timestamp=ms(at(1.1)))
    send(broker.producer(), topics.moved, b'{"number": 10}', timestamp=ms(at(2.1)))
    return NotYet, topics.moved


@pytest.mark.parametrize("damage", ["recreated", "behind retention", "an open transaction"])
@pytest.mark.parametrize("is_planned", [False, True], ids=["before the plan", "before the read"])
def test_an_error_of_one_topic_stops_the_interval_for_all_topics(
    topics: FourTopics, damage: str, is_planned: bool
) -> None:
    """The error names the topic. Neither rows nor offsets of the others are committed."""
    topics.lake.run(days(0, 1))
    topics.fill(1.5)
    plan = topics.lake.plan(days(1, 2)) if is_planned else None
    kind, named = damage_one(topics, damage)
    if is_planned and kind is NotYet:
        assert (
            plan is not None
        )  # the planned range was stable: a later transaction does not block it
        topics.lake.commit(plan, topics.lake.stage(plan))
        assert {name: len(rows) for name, rows in topics.found().items()} == {
            name: 2 * len(rows) for name, rows in ONE_DAY.items()
        }
        return
    topics.lake.assert_refused(
        kind,
        named,
        run=lambda: topics.lake.stage(plan) if plan else topics.lake.planned(days(1, 2)),
    )
    assert topics.found() == ONE_DAY
    topics.lake.assert_verified()
