"""A lake over a real broker: the real plan, reader, engine and commit in this process, and Kafka's own word to judge by.

What must be in the lake is told by the producer's acknowledgements and by confluent-kafka's consumer, read_committed.
Neither knows of tallystick. Whatever a test does to the log, it does between two steps, or in the middle of a read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from support.brokers import TestBroker, send
from tallystick.connections.kafka import KafkaSettings
from tallystick.engine.attempt import assemble
from tallystick.engine.input_splits import InputSplit, split_plan
from tallystick.engine.kafka_splits import KafkaReading
from tallystick.engine.task import Work, run_split
from tallystick.engine.transform import JobTransform
from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.planning import LogPlanner
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.operations.verify.run import verify
from tallystick.pipeline import DEAD_LETTERS, Column, Json, Pipeline, Table, Topic
from tallystick.runtime import system_runtime
from tallystick.store.memory import MemoryStore
from tallystick.tables.reading import static_table
from tallystick.tables.staging import IcebergTables

DAY = datetime(2013, 1, 1, tzinfo=UTC)
GIVEN_S = 30.0
COLUMNS = (Column("n", "long", required=False), Column("text", "string", required=False))
Place = tuple[str, int, int]  # topic, partition, offset
# When something happens to the log while one attempt reads: before its first piece, between two pieces, or when a piece
# has been fetched to its end and the reader has not yet said so.
Moment = Literal["before the read", "between two pieces", "after the last fetch"]
MOMENTS: tuple[Moment, ...] = ("before the read", "between two pieces", "after the last fetch")
_numbers = itertools.count()


def at(day: float) -> datetime:
    """`day` days after midnight of 1 January 2013."""
    return DAY + timedelta(days=day)


def ms(instant: datetime) -> int:
    """An instant as Kafka's timestamps have it."""
    return round(instant.timestamp() * 1000)


def days(first: float, last: float) -> Interval:
    """From `first` to `last` days after midnight of 1 January 2013."""
    return Interval(start=at(first), end=at(last))


def value(number: int, text: str | None = None) -> bytes:
    """A value that the lake's columns fit."""
    return json.dumps({"n": number} | ({} if text is None else {"text": text})).encode()


def fill(
    broker: TestBroker,
    topic: str,
    *numbers: int,
    day: float,
    partition: int = 0,
    producer: Producer | None = None,
) -> None:
    """Produce one record per number, all of them at one time of the calendar; wait for it, unless `producer` is given."""
    send(
        producer or broker.producer(),
        topic,
        *map(value, numbers),
        timestamp=ms(at(day)),
        partition=partition,
        flush=producer is None,
    )


def consumed(broker: TestBroker, *topics: str) -> dict[Place, tuple[int, bytes | None]]:
    """Timestamp and value of every record that confluent-kafka gives of the topics, read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 80 << 20,
            "receive.message.max.bytes": 128 << 20,
        }
    )
    known = consumer.list_topics(timeout=GIVEN_S).topics
    places = [TopicPartition(t, p, 0) for t in topics for p in known[t].partitions]
    low = {(p.topic, p.partition): consumer.get_watermark_offsets(p, GIVEN_S)[0] for p in places}
    consumer.assign([TopicPartition(t, p, first) for (t, p), first in low.items()])
    found: dict[Place, tuple[int, bytes | None]] = {}
    left = len(places)
    try:
        while left:
            one = consumer.poll(GIVEN_S)
            assert one is not None, f"the judge was given nothing for {GIVEN_S:g} s"
            if (error := one.error()) is None:
                place = (one.topic(), one.partition(), one.offset())
                found[place] = (one.timestamp()[1], one.value())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
    finally:
        consumer.close()
    return found


class _Interrupted:
    """A piece being read, with something happening between its last fetch and its end."""

    def __init__(self, reading: KafkaReading, span: int, act: Callable[[], None]) -> None:
        self._reading, self._span, self._act = reading, span, act

    def batches(self) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in self._reading.batches():
            seen += batch.num_rows
            if seen == self._span:
                self._act()
            yield batch

    @property
    def account(self) -> ReadAccount:
        return self._reading.account


@dataclass
class LogLake:
    """A lake in memory over topics of a real broker; every value is JSON of `n` and `text`."""

    broker: TestBroker
    topics: Sequence[str | Topic]
    settings: KafkaSettings | None = None
    records_per_task: int = 1_000_000
    begin: datetime | None = None
    job: bytes = b"version 1"
    tables: Sequence[Table] = (Table("events", columns=COLUMNS),)
    transform: Callable[[pa.Table], Any] = lambda records: records
    tasks_run: list[InputSplit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = Lake(MemoryStore(f"edges-{next(_numbers)}"), system_runtime(), proven=True)
        self.settings = self.settings or self.broker.settings

    def pipeline(self) -> Pipeline:
        """The declaration."""
        return Pipeline(
            name="edges",
            topics=list(self.topics),
            warehouse=self.lake.store.uri,
            job="spark_jobs/edges.py",
            tables=self.tables,
            records_per_task=self.records_per_task,
            begin=self.begin,
        )

    # ------------------------------------------------------------ the three steps

    def planned(
        self, interval: Interval, *, run: str | None = None, clear: int = 0, **params: Any
    ) -> PlanResult:
        """Plan an interval by the real planner, as the scheduled run of its start."""
        assert self.settings is not None
        asked = PlanRequest(
            pipeline=self.pipeline(),
            job_source=self.job,
            request=Request(
                dag="edges", run=run or f"scheduled__{interval.start.isoformat()}", clear=clear
            ),
            params=parse_params(params),
            dates=RunDates(data_interval=interval, run_after=interval.end),
            first=DAY,
        )
        with LogPlanner(self.settings) as log:
            return plan(self.lake, log, asked)

    def plan(self, interval: Interval, **how: Any) -> Plan:
        """Plan an interval that has offsets and return its one plan."""
        (piece,) = self.planned(interval, **how).intervals
        assert not piece.committed
        found = self.lake.plan(piece.plan)
        assert found is not None
        return found

    def stage(
        self, plan: Plan, when: Moment = "before the read", act: Callable[[], None] | None = None
    ) -> str:
        """One attempt: read every piece, write its files, put the report; `act` happens once, at its moment."""
        assert self.settings is not None
        pipeline = self.pipeline()
        work = Work(
            plan=plan,
            pipeline=pipeline,
            attempt=f"try-{next(_numbers)}",
            transform=JobTransform(self.transform, pipeline),
            store=self.lake.store,
            runtime=self.lake.runtime,
        )
        pieces = split_plan(plan, records_per_task=self.records_per_task)
        topics = {t.name: t for t in plan.topics}
        results = []
        for number, piece in enumerate(pieces):
            reading: Any = KafkaReading(self.settings, topics[piece.topic], piece)
            if act is not None and when == "after the last fetch" and piece == pieces[-1]:
                reading = _Interrupted(reading, piece.span.length, act)
            elif act is not None and number == MOMENTS.index(when):
                assert len(pieces) > number
                act()
            results.append(run_split(work, piece, reading))
            self.tasks_run.append(piece)
        report = assemble(work, pieces, results)
        self.lake.put_new(report.key, report.encode())
        return report.key

    def commit(self, plan: Plan, report: str) -> CommitResult:
        """Publish what was staged."""
        tables = IcebergTables(self.lake.store, self.lake.runtime)
        return commit(self.lake, tables, plan_key=plan.key, report_key=report)

    def run(self, interval: Interval, **how: Any) -> CommitResult | None:
        """Plan, stage and commit; None where the plan found nothing to stage."""
        planned = self.planned(interval, **how)
        (piece,) = planned.intervals
        if piece.committed:
            return None
        found = self.lake.plan(piece.plan)
        assert found is not None
        return self.commit(found, self.stage(found))

    # ------------------------------------------------------------ what is there

    def rows(self, table: str = "events") -> dict[Place, dict[str, Any]]:
        """The committed rows by the place of their record, each place once."""
        known = self.lake.load_existing().root.tables.get(table)
        if known is None or known.metadata is None:
            return {}
        found = static_table(self.lake.store, known.metadata).scan().to_arrow().to_pylist()
        rows = {(r["_topic"], r["_kafka_partition"], r["_offset"]): r for r in found}
        assert len(rows) == len(found), "a record has two rows"
        return rows

    def record(self, interval: Interval) -> CommittedInterval:
        """The record of an interval's commit: its accounts, per partition."""
        snapshot = self.lake.load_existing()
        entry = snapshot.ledger(interval.start, interval.end).entry(interval)
        assert entry is not None
        assert entry.committed is not None
        return self.lake.earlier_commits(entry)[0]

    def assert_equals_kafka(self, *topics: str, dead: Collection[Place] = ()) -> None:
        """Each record that the judge is given is there once, with time and value, as a row or where `dead` says so.

        And verify agrees.
        """
        wanted = consumed(self.broker, *(topics or [getattr(t, "name", t) for t in self.topics]))
        letters = {place: row["value"] for place, row in self.rows(DEAD_LETTERS).items()}
        assert letters == {place: wanted.pop(place)[1] for place in dead}
        found = {p: (ms(row["_timestamp"]), row["n"]) for p, row in self.rows().items()}
        assert found == {
            place: (stamp, json.loads(body or b"{}").get("n"))
            for place, (stamp, body) in wanted.items()
        }
        self.assert_verified()

    def assert_verified(self) -> None:
        """`tally verify --deep` has no counter-example."""
        proof = verify(self.lake, deep=True)
        assert proof.proven, [finding for check in proof.checks for finding in check.findings]

    def assert_refused(
        self, kind: type[TallystickError], *parts: str, run: Callable[[], object]
    ) -> TallystickError:
        """Run what must be refused: the error names `parts`, and the lake's root is as it was."""
        before = self.lake.store.get(keys.ROOT)
        with pytest.raises(kind) as caught:
            run()
        for part in parts:
            assert part in str(caught.value), str(caught.value)
        assert caught.value.hint.strip()
        assert self.lake.store.get(keys.ROOT) == before
        return caught.value


def decoded(topic: str, *columns: Column, tombstones: Literal["dead", "keep"] = "dead") -> Topic:
    """A topic with a decode of its own."""
    return Topic(topic, decode=Json(columns or COLUMNS, tombstones=tombstones))


def changed(lake: LogLake) -> Mapping[str, Any]:
    """Deploy another job: words for a clear that replaces what the run committed."""
    lake.job += b" changed"
    return {"clear": 1}
