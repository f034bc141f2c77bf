"""One small lake on real servers, driven by the real plan, engine and commit, and audited by the oracle.

This is the product's side of the tests. The oracle itself (audit, watcher, produced, and what they import) does not
import it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from oracle.audit import Finding, audit
from oracle.place import Place
from oracle.produced import ProducerLog, Sent, produce_logged
from oracle.watcher import Watcher
from support.brokers import TestBroker
from tallystick.engine import attempt, input_splits, kafka_splits
from tallystick.engine import task as tasks
from tallystick.engine.transform import JobTransform
from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.kafka.planning import LogPlanner
from tallystick.lake import Lake
from tallystick.operations.commit import attempt as committing
from tallystick.operations.plan import PlanRequest, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.runtime import system_runtime
from tallystick.store import Applied, ETag, Outcome, Unknown
from tallystick.store.s3 import S3Settings, S3Store
from tallystick.tables.staging import IcebergTables
from tallystick_devstack.process import wait_until

BUCKET = "oracle"
FIRST = datetime(2013, 1, 1, tzinfo=UTC)
PARTITIONS = 2
_SESSION = boto3.session.Session("test", "test-secret", region_name="us-east-1")
Values = Iterable[bytes | None]


def day(number: int) -> datetime:
    """Return midnight at the start of day `number`."""
    return FIRST + timedelta(days=number - 1)


def columns(value: bytes | None) -> Mapping[str, Any] | None:
    """Return the expected row of a value, None for a dead letter: the decoder's result, computed by Python's json."""
    try:
        row = json.loads(value or b"")
    except ValueError:
        return None
    return row if isinstance(row["n"], int) else None


def sums(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the expected rows of `per_kind` for one interval."""
    kinds = {row["kind"] for row in rows}
    return [{"kind": k, "n": sum(r["n"] for r in rows if r["kind"] == k)} for k in kinds]


def transform(records: pa.Table) -> dict[str, pa.Table]:
    """Transform the records: the job."""
    totals = records.select(["kind", "n"]).group_by("kind").aggregate([("n", "sum")])
    return {"events": records, "per_kind": totals.rename_columns(["kind", "n"])}


def older_transform(records: pa.Table) -> dict[str, pa.Table]:
    """Transform the records as before a deploy: a driver that was paused may still run this code."""
    at = records.column_names.index("n")
    less = pa.array([n - 1_000 for n in records["n"].to_pylist()], pa.int64())
    return transform(records.set_column(at, "n", less))


def narrower_transform(records: pa.Table) -> dict[str, pa.Table]:
    """Transform the records for the pipeline of `narrower`."""
    totals = records.select(["kind", "number"]).group_by("kind").aggregate([("number", "sum")])
    totals = totals.rename_columns(["kind", "n"])
    return {
        "events": records,
        "per_kind": totals.set_column(1, "n", totals["n"].cast(pa.int32())),
    }


class TopicLog:
    """One topic, and its producer's log. Each call of `send` fills part of one day, in the order of time."""

    def __init__(self, broker: TestBroker, path: Path, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.written = ProducerLog(path / f"{topic}-{uuid.uuid4().hex}.jsonl", keep_values=True)
        self._at: dict[int, int] = {}
        self._number = 0

    def send(self, number: int, values: int | Values, *, transaction: Any = "none") -> list[Sent]:
        """Send values (or that many valid ones) with timestamps of day `number`."""
        rows = self._valid_values(values) if isinstance(values, int) else list(values)
        begin = self._at.get(number, round(day(number).timestamp() * 1_000))
        self._at[number] = begin + 1_000 * len(rows)
        sent = produce_logged(
            self.broker.bootstrap,
            self.topic,
            rows,
            log=self.written,
            partitions=PARTITIONS,
            transaction=transaction,
            timestamps_ms=range(begin, self._at[number], 1_000),
        )
        if transaction != "none":  # the broker answers before the markers are in the log
            wait_until(self._settled, deadline_s=60, what=f"the markers in {self.topic}")
        return sent

    def _settled(self) -> bool:
        places = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        ends = [
            self.broker.admin.list_offsets(
                {place: OffsetSpec.latest() for place in places}, isolation_level=level
            )
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        stable, high = ([answers[p].result(60).offset for p in places] for answers in ends)
        return stable == high

    def _valid_values(self, count: int) -> list[bytes]:
        first, self._number = self._number, self._number + count
        return [
            b'{"n": %d, "kind": "%s"}' % (n, b"ab"[n % 3 : n % 3 + 1])
            for n in range(first, first + count)
        ]


class Store(S3Store):
    """S3, with hooks before and after each swap of the root, and with replies that are lost."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    lost_reply: str | None = None

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        if key != keys.ROOT:
            return super().replace(key, body, expected=expected)
        self._act("before")
        outcome = super().replace(key, body, expected=expected)
        lost, self.lost_reply = self.lost_reply, None
        if lost is not None:
            self._act("after")
            return Unknown(because=lost)
        if isinstance(outcome, Applied):
            self.watcher.poll()
        return outcome

    def _act(self, name: str) -> None:
        act: Callable[[], None] | None = getattr(self, name)
        setattr(self, name, None)
        if act is not None:
            act()

    watcher: Watcher


@dataclass
class Scene:
    """A lake of its own. Plans whose commit was acknowledged are in `acknowledged`, error classes in `refused`."""

    log: TopicLog
    endpoint: str
    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    full_cover: bool = True
    in_order: bool = True

    def __post_init__(self) -> None:
        prefix = uuid.uuid4().hex[:12]
        self.place = Place(
            self.endpoint, BUCKET, prefix, "test", "test-secret", self.log.broker.bootstrap
        )
        settings = S3Settings(endpoint_url=self.endpoint)
        self.store = Store(f"s3://{BUCKET}/{prefix}", settings=settings, session=_SESSION)
        self.store.watcher = self.watcher = Watcher(self.place)
        self.lake = Lake(self.store, system_runtime(), proven=True)
        self.pipeline = Pipeline(
            name="scene",
            topics=[self.log.topic],
            warehouse=self.store.uri,
            job="spark_jobs/scene.py",
            tables=[
                Table("events", columns=[Column("n", "long"), Column("kind", "string")]),
                Table(
                    "per_kind",
                    columns=[Column("kind", "string"), Column("n", "long")],
                    keys=["kind"],
                    combine={"n": "sum"},
                ),
            ],
        )

    def deploy(self, *, narrower: bool) -> None:
        """Deploy a pipeline with other columns and another partitioning of the events; `narrower`: the older one."""
        number = Column("number", "int", required=False, source="n")
        if not narrower:
            number = Column("n", "long", required=False, renamed_from="number", source="n")
        sums = Column("n", "int" if narrower else "long")
        self.pipeline = replace(
            self.pipeline,
            tables=[
                Table(
                    "events",
                    columns=[number, Column("kind", "string")],
                    partition_by=["hour(_timestamp)" if narrower else "day(_timestamp)"],
                ),
                Table(
                    "per_kind",
                    columns=[Column("kind", "string"), sums],
                    keys=["kind"],
                    combine={"n": "sum"},
                ),
            ],
        )

    # ------------------------------------------------------------ a run, task by task

    def plan(
        self, first: int, end: int, *, run: str = "", clear: int = 0, **params: Any
    ) -> list[str]:
        """Run the plan task over days [first, end), and its retry. Return the keys to stage."""
        interval = Interval(start=day(first), end=day(end))
        request = PlanRequest(
            pipeline=self.pipeline,
            job_source=b"job",
            request=Request(dag="scene", run=run or f"scheduled__{first}", clear=clear),
            params=parse_params(params),
            dates=RunDates(data_interval=interval, run_after=interval.end),
            first=FIRST,
        )
        try:
            with LogPlanner(self.log.broker.settings) as log:
                answers = [plan(self.lake, log, request) for _ in ("task", "its retry")]
        except TallystickError as error:
            self.refused.append(type(error).__name__)
            return []
        self.acknowledged += [p.plan for p in answers[-1].intervals if p.committed]
        return [p.plan for p in answers[-1].intervals if not p.committed]

    def stage(
        self, plans: Iterable[str], *, job: Any = transform, report: bool = True
    ) -> dict[str, str]:
        """Run one attempt of the stage task. Without `report`, it ends before it writes one."""
        reports: dict[str, str] = {}
        try:
            for key in plans:
                reports |= self.attempt(key, job=job, report=report)
        except TallystickError as error:
            self.refused.append(type(error).__name__)
        return reports

    def attempt(self, key: str, *, job: Any, report: bool) -> dict[str, str]:
        """Run one attempt of one plan, even if its grant is lost: a driver does not check again while it reads."""
        plan = self.lake.plan(key)
        assert plan is not None
        work = tasks.Work(
            plan=plan,
            pipeline=self.pipeline,
            attempt=f"try-{uuid.uuid4().hex}",
            transform=JobTransform(job, self.pipeline),
            store=self.store,
            runtime=self.lake.runtime,
        )
        split_plan = input_splits.split_plan(plan, records_per_task=self.pipeline.records_per_task)
        topics = {t.name: t for t in plan.topics}
        results = [
            tasks.run_split(
                work, p, kafka_splits.KafkaReading(self.log.broker.settings, topics[p.topic], p)
            )
            for p in split_plan
        ]
        written = attempt.assemble(work, split_plan, results)
        if not report:
            return {}
        self.lake.put_new(written.key, written.encode())
        return {key: written.key}

    def commit(self, reports: Mapping[str, str], *, times: int = 2) -> None:
        """Run the commit task and its retry, as if the task had been killed after its PUT."""
        tables = IcebergTables(self.store, self.lake.runtime)
        for key, report in reports.items():
            for _ in range(times):
                try:
                    committing.commit(self.lake, tables, plan_key=key, report_key=report)
                    self.acknowledged.append(key)
                except TallystickError as error:
                    self.refused.append(type(error).__name__)

    def run(self, first: int, end: int, **how: Any) -> dict[str, str]:
        """Run all tasks over days [first, end). Return the reports by plan."""
        reports = self.stage(self.plan(first, end, **how))
        self.commit(reports)
        return reports

    # ------------------------------------------------------------ the audit

    def audit(self) -> Finding:
        """Audit the lake in its current state."""
        return audit(
            self.place,
            self.log.written.read(),
            acknowledged=self.acknowledged,
            full_cover=self.full_cover,
            payload=columns,
            values=self.log.written.values(),
            aggregates={"per_kind": sums},
            in_order=self.in_order,
        )
