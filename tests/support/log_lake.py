"""A lake over a real broker: the real plan, reader, engine and commit in this process, compared with Kafka itself.

The expected rows come from the producer's acknowledgements and from confluent-kafka's consumer, read_committed; both are
independent of tallystick. Tests change the log between two steps, or in the middle of a read.
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
from support.dict_registry import DictRegistry
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
from tallystick.pipeline import (
    DEAD_LETTERS,
    Column,
    Json,
    Pipeline,
    Table,
    Topic,
    Topics,
    pipeline_from_spec,
)
from tallystick.runtime import system_runtime
from tallystick.store import Store
from tallystick.store.memory import MemoryStore
from tallystick.tables.reading import static_table
from tallystick.tables.staging import IcebergTables

DAY = datetime(2013, 1, 1, tzinfo=UTC)
CONSUME_S = 30.0
COLUMNS = (Column("n", "long", required=False), Column("text", "string", required=False))
Place = tuple[str, int, int]  # topic, partition, offset
# When a test changes the log while an attempt reads: before its first input split, between two splits, or after the last
# fetch of a split, when the reader has not returned its end yet.
Moment = Literal["before the read", "between two splits", "after the last fetch"]
MOMENTS: tuple[Moment, ...] = ("before the read", "between two splits", "after the last fetch")
_numbers = itertools.count()


def at(day: float) -> datetime:
    """Return the instant `day` days after midnight of 1 January 2013."""
    return DAY + timedelta(days=day)


def ms(instant: datetime) -> int:
    """Return an instant as a timestamp of Kafka."""
    return round(instant.timestamp() * 1000)


def days(first: float, last: float) -> Interval:
    """Return the interval from `first` to `last` days after midnight of 1 January 2013."""
    return Interval(start=at(first), end=at(last))


def value(number: int, text: str | None = None) -> bytes:
    """Return a value with the lake's columns."""
    return json.dumps({"n": number} | ({} if text is None else {"text": text})).encode()


def fill(
    broker: TestBroker,
    topic: str,
    *numbers: int,
    day: float,
    partition: int = 0,
    producer: Producer | None = None,
) -> None:
    """Produce one record per number, all at one instant; wait for the broker, unless `producer` is given."""
    send(
        producer or broker.producer(),
        topic,
        *map(value, numbers),
        timestamp=ms(at(day)),
        partition=partition,
        flush=producer is None,
    )


def consumed(broker: TestBroker, *topics: str) -> dict[Place, tuple[int, bytes | None]]:
    """Return timestamp and value of every record of the topics, as confluent-kafka consumes them, read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reference",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 80 << 20,
            "receive.message.max.bytes": 128 << 20,
        }
    )
    known = consumer.list_topics(timeout=CONSUME_S).topics
    places = [TopicPartition(t, p, 0) for t in topics for p in known[t].partitions]
    low = {(p.topic, p.partition): consumer.get_watermark_offsets(p, CONSUME_S)[0] for p in places}
    consumer.assign([TopicPartition(t, p, first) for (t, p), first in low.items()])
    found: dict[Place, tuple[int, bytes | None]] = {}
    remaining = len(places)
    try:
        while remaining:
            message = consumer.poll(CONSUME_S)
            assert message is not None, f"the consumer got nothing for {CONSUME_S:g} s"
            if (error := message.error()) is None:
                place = (message.topic(), message.partition(), message.offset())
                found[place] = (message.timestamp()[1], message.value())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                remaining -= 1
    finally:
        consumer.close()
    return found


class _Interrupted:
    """The reading of an input split, with an action between its last fetch and its end."""

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
    """A lake over topics of a real broker, in memory by default; by default every value is JSON with `n` and `text`."""

    broker: TestBroker
    topics: Sequence[str | Topic | Topics]
    settings: KafkaSettings | None = None
    records_per_task: int = 1_000_000
    begin: datetime | None = None
    job: bytes = b"version 1"
    tables: Sequence[Table] = (Table("events", columns=COLUMNS),)
    transform: Callable[[pa.Table], Any] = lambda records: records
    tasks_run: list[InputSplit] = field(default_factory=list)
    registry: DictRegistry = field(default_factory=DictRegistry)
    store: Store | None = None

    def __post_init__(self) -> None:
        store = self.store or MemoryStore(f"edges-{next(_numbers)}")
        self.lake = Lake(store, system_runtime(), proven=True)
        self.settings = self.settings or self.broker.settings

    def pipeline(self) -> Pipeline:
        """Return the declaration."""
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
        """Plan an interval with the real planner, as the scheduled run of its start."""
        assert self.settings is not None
        plan_request = PlanRequest(
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
            return plan(self.lake, log, plan_request, open_registry=lambda _: self.registry)

    def plan(self, interval: Interval, **how: Any) -> Plan:
        """Plan an interval that has offsets, and return its only plan."""
        (planned,) = self.planned(interval, **how).intervals
        assert not planned.committed
        stored = self.lake.plan(planned.plan)
        assert stored is not None
        return stored

    def stage(
        self, plan: Plan, when: Moment = "before the read", act: Callable[[], None] | None = None
    ) -> str:
        """Run an attempt: read every split, write its files, write the report; `act` is called once, at its moment."""
        assert self.settings is not None
        pipeline = pipeline_from_spec(plan.spec, where=plan.key)
        work = Work(
            plan=plan,
            pipeline=pipeline,
            attempt=f"try-{next(_numbers)}",
            transform=JobTransform(self.transform, pipeline),
            store=self.lake.store,
            runtime=self.lake.runtime,
        )
        splits = split_plan(plan, records_per_task=self.records_per_task)
        topics = {t.name: t for t in plan.topics}
        results = []
        for number, split in enumerate(splits):
            reading: Any = KafkaReading(self.settings, topics[split.topic], split)
            if act is not None and when == "after the last fetch" and split == splits[-1]:
                reading = _Interrupted(reading, split.span.length, act)
            elif act is not None and number == MOMENTS.index(when):
                assert len(splits) > number
                act()
            results.append(run_split(work, split, reading))
            self.tasks_run.append(split)
        report = assemble(work, splits, results)
        self.lake.put_new(report.key, report.encode())
        return report.key

    def commit(self, plan: Plan, report: str) -> CommitResult:
        """Commit a staged plan."""
        tables = IcebergTables(self.lake.store, self.lake.runtime)
        return commit(self.lake, tables, plan_key=plan.key, report_key=report)

    def run(self, interval: Interval, **how: Any) -> CommitResult | None:
        """Plan, stage and commit; None if the plan has nothing to stage."""
        (planned,) = self.planned(interval, **how).intervals
        if planned.committed:
            return None
        stored = self.lake.plan(planned.plan)
        assert stored is not None
        return self.commit(stored, self.stage(stored))

    # ------------------------------------------------------------ contents of the lake

    def rows(self, table: str = "events") -> dict[Place, dict[str, Any]]:
        """Return the committed rows by the place of their record, each place once."""
        known = self.lake.load_existing().root.tables.get(table)
        if known is None or known.metadata is None:
            return {}
        found = static_table(self.lake.store, known.metadata).scan().to_arrow().to_pylist()
        rows = {(r["_topic"], r["_kafka_partition"], r["_offset"]): r for r in found}
        assert len(rows) == len(found), "a record has two rows"
        return rows

    def record(self, interval: Interval) -> CommittedInterval:
        """Return the commit of an interval: its accounts, per partition."""
        snapshot = self.lake.load_existing()
        entry = snapshot.ledger(interval.start, interval.end).entry(interval)
        assert entry is not None
        assert entry.committed is not None
        return self.lake.earlier_commits(entry)[0]

    def assert_equals_kafka(self, *topics: str, dead: Collection[Place] = ()) -> None:
        """Assert that the lake has each consumed record once, with time and value: a row, or a dead letter if in `dead`.

        `tally verify` must find no problem, either.
        """
        expected = consumed(self.broker, *(topics or [getattr(t, "name", t) for t in self.topics]))
        letters = {place: row["value"] for place, row in self.rows(DEAD_LETTERS).items()}
        assert letters == {place: expected.pop(place)[1] for place in dead}
        found = {p: (ms(row["_timestamp"]), row["n"]) for p, row in self.rows().items()}
        assert found == {
            place: (stamp, json.loads(body or b"{}").get("n"))
            for place, (stamp, body) in expected.items()
        }
        self.assert_verified()

    def assert_verified(self) -> None:
        """Assert that `tally verify --deep` finds no problem."""
        proof = verify(self.lake, deep=True)
        assert proof.proven, [finding for check in proof.checks for finding in check.findings]

    def assert_refused(
        self, kind: type[TallystickError], *parts: str, run: Callable[[], object]
    ) -> TallystickError:
        """Assert that `run` raises `kind`, that the error names `parts`, and that the lake's root is unchanged."""
        before = self.lake.store.get(keys.ROOT)
        with pytest.raises(kind) as caught:
            run()
        for part in parts:
            assert part in str(caught.value), str(caught.value)
        assert caught.value.hint.strip()
        assert self.lake.store.get(keys.ROOT) == before
        return caught.value


def decoded(topic: str, *columns: Column, tombstones: Literal["dead", "keep"] = "dead") -> Topic:
    """Return a topic with its own decode."""
    return Topic(topic, decode=Json(columns or COLUMNS, tombstones=tombstones))


def changed(lake: LogLake) -> Mapping[str, Any]:
    """Deploy another job, and return the arguments of a clear that replaces the run's commit."""
    lake.job += b" changed"
    return {"clear": 1}
