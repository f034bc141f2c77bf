"""Partitions that join a topic at any moment; and several topics in one pipeline, each of its own kind."""

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
    """Five records of one time in each partition."""
    producer = broker.producer()
    for partition in range(partitions):
        numbers = range(10 * partition, 10 * partition + 5)
        fill(broker, topic, *numbers, day=day, partition=partition, producer=producer)
    send(producer, topic)


# ---------------------------------------------------------------- partitions


def test_partitions_that_join_after_the_plan_are_read_by_the_next_one(broker: TestBroker) -> None:
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
    # All of the new partitions, also what is of the first day; of the old ones what came after its end.
    assert [one.start for one in lake.record(days(1, 2)).accounts] == [5, 5, 5, 0, 0]
    lake.assert_equals_kafka()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_partitions_that_join_between_two_intervals_lose_nothing(
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


def test_a_partition_that_joined_and_lost_records_before_it_was_seen_is_a_loss(
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
        f"{topic}[4]: offsets [0, 5) are wanted, the log begins at 2: 2 offsets are gone",
        run=lambda: lake.planned(days(1, 2)),
    )
    result = lake.run(days(1, 2), accept_loss=True)
    assert result is not None
    assert (result.totals.records, result.totals.lost) == (23, 2)
    lake.assert_equals_kafka()


# ---------------------------------------------------------------- several topics


class Several:
    """One pipeline over four topics: flights (3 partitions), notes (another decode), empty (2), moved (transactional)."""

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
        """What a day brings; a record of notes does not fit, a transaction of moved is aborted."""
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
        """What the rows of each topic say."""
        sorted_rows = sorted(self.lake.rows().items())
        names = {self.flights: "flights", self.notes: "notes", self.moved: "moved"}
        told: dict[str, list[tuple[int | None, str | None]]] = {}
        for (topic, _, _), row in sorted_rows:
            told.setdefault(names[topic], []).append((row["n"], row["text"]))
        return told


TOPIC_SUMS = [Column("topic", "string"), Column("records", "long")]
ONE_DAY: dict[str, list[tuple[int | None, str | None]]] = {
    "flights": [(10 * p + n, None) for p in range(3) for n in range(5)],
    "notes": [(1, "one"), (3, "three")],
    "moved": [(1, None), (3, None)],
}


def one_shape(records: pa.Table) -> dict[str, pa.Table]:
    """Rows of every topic in the columns of one table, and how many there are."""
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
def several(broker: TestBroker) -> Several:
    made = Several(broker)
    made.fill(0.5)
    return made


def test_several_topics_of_different_kinds_are_one_interval(several: Several) -> None:
    done = several.lake.run(days(0, 1))
    assert done is not None
    assert several.found() == ONE_DAY
    accounts = several.lake.record(days(0, 1)).accounts
    assert [(one.topic, one.partition) for one in accounts] == [
        *((several.flights, p) for p in range(3)),
        (several.notes, 0),
        *((several.empty, p) for p in range(2)),
        (several.moved, 0),
    ]
    assert [(a.records, a.dead_letters, a.aborted, a.control) for a in accounts] == [
        *[(5, 0, 0, 0)] * 3,
        (2, 1, 0, 0),
        *[(0, 0, 0, 0)] * 2,
        (2, 0, 1, 3),
    ]
    (letter,) = several.lake.rows(DEAD_LETTERS).items()
    assert letter[0] == (several.notes, 0, 1)
    several.lake.assert_verified()
    several.fill(1.5)
    several.lake.run(days(1, 2))
    assert {name: len(rows) for name, rows in several.found().items()} == {
        name: 2 * len(rows) for name, rows in ONE_DAY.items()
    }
    several.lake.assert_verified()


def broken(several: Several, how: str) -> tuple[type[TallystickError], str]:
    """Let something happen to one of the topics: the error that must name it."""
    broker = several.broker
    if how == "recreated":
        broker.delete_topic(several.notes)
        broker.topic(name=several.notes)
        several.fill(1.5)
        return IdentityChanged, several.notes
    if how == "behind retention":
        broker.delete_records(several.flights, 7, partition=1)
        return OutsideRetention, several.flights
    producer = broker.transactions(f"{several.moved}-moves")
    producer.begin_transaction()
    send(producer, several.moved, b'{"number": 9}', timestamp=ms(at(1.1)))
    send(broker.producer(), several.moved, b'{"number": 10}', timestamp=ms(at(2.1)))
    return NotYet, several.moved


@pytest.mark.parametrize("how", ["recreated", "behind retention", "an open transaction"])
@pytest.mark.parametrize("planned", [False, True], ids=["before the plan", "before the read"])
def test_what_stops_one_topic_stops_the_interval_for_all(
    several: Several, how: str, planned: bool
) -> None:
    """The error names the topic; nothing of the others is committed, neither rows nor offsets."""
    several.lake.run(days(0, 1))
    several.fill(1.5)
    plan = several.lake.plan(days(1, 2)) if planned else None
    kind, named = broken(several, how)
    if planned and kind is NotYet:
        assert (
            plan is not None
        )  # what was planned was stable: a later transaction does not hold it up
        several.lake.commit(plan, several.lake.stage(plan))
        assert {name: len(rows) for name, rows in several.found().items()} == {
            name: 2 * len(rows) for name, rows in ONE_DAY.items()
        }
        return
    several.lake.assert_refused(
        kind,
        named,
        run=lambda: several.lake.stage(plan) if plan else several.lake.planned(days(1, 2)),
    )
    assert several.found() == ONE_DAY
    several.lake.assert_verified()
