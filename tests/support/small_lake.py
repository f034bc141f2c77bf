"""A small lake for tests: two tables and dead letters, a fake log, and the real plan, commit and Iceberg metadata."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from support.fakes import FakeLog, FakeRecord, stage
from tallystick.format import keys
from tallystick.format.canonical import dumps
from tallystick.format.interval import Interval, Request
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.adopt_topic import Adopted, adopt
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Column, Pipeline, Table, Upkeep
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.store.memory import MemoryStore
from tallystick.tables.staging import IcebergTables
from tallystick.tables.state import TableState

DAY = datetime(2013, 1, 1, tzinfo=UTC)
TOPIC = "events"
NOW = datetime(2024, 5, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    """Return the midnight at which day `number` of January 2013 begins."""
    return DAY + timedelta(days=number - 1)


def days(first: int, last: int) -> Interval:
    """Return the interval from the beginning of day `first` to the beginning of day `last`."""
    return Interval(start=day(first), end=day(last))


def pipeline(warehouse: str) -> Pipeline:
    """Declare a record-level table and an aggregating one."""
    return Pipeline(
        name="small",
        topics=[TOPIC],
        warehouse=warehouse,
        job="spark_jobs/small.py",
        tables=[
            Table(
                "events", columns=[Column("n", "long"), Column("kind", "string", required=False)]
            ),
            Table(
                "per_kind",
                columns=[Column("kind", "string", required=False), Column("n", "long")],
                keys=["kind"],
                combine={"n": "sum"},
            ),
        ],
    )


def with_short_history(warehouse: str) -> Pipeline:
    """Declare the same pipeline; metadata lists one snapshot and one earlier metadata file, as after fifty commits."""
    return replace(pipeline(warehouse), upkeep=Upkeep(snapshots_kept=1, metadata_kept=1))


def counting_runtime(first: int = 1) -> Runtime:
    """Return a runtime with consecutive ids from `first` on, a constant clock and no waits."""
    ids = itertools.count(first)
    return Runtime(
        now=lambda: NOW,
        uuid=lambda: f"{next(ids):032x}",
        monotonic_s=lambda: 0.0,
        sleep=lambda _: None,
        chance=lambda: 0.0,
    )


def fill(log: FakeLog, *, days_count: int = 6, partitions: int = 2) -> None:
    """Append a few records of each day to each partition: good ones, a dead letter, on day 2 an aborted transaction."""
    log.create(TOPIC, partitions=partitions)
    for number in range(1, days_count + 1):
        if number == 5:
            continue  # a day without any offset
        for partition in range(partitions):
            for hour in range(2 + partition):
                log.append(
                    TOPIC,
                    partition,
                    day(number) + timedelta(hours=hour),
                    n=hour,
                    kind=f"kind {hour % 2}",
                )
            log.append(TOPIC, partition, day(number) + timedelta(hours=9), "dead")
            if number == 2:
                log.append(TOPIC, partition, day(number) + timedelta(hours=10), "aborted")
                log.append(TOPIC, partition, NOW, "control")


@dataclass
class SmallLake:
    """A lake, its log, and the operations of its runs."""

    store: Store = field(default_factory=MemoryStore)
    log: FakeLog = field(default_factory=FakeLog)
    runtime: Runtime = field(default_factory=counting_runtime)
    job: bytes = b"version 1"
    dag: str = "small"
    declared: Callable[[str], Pipeline] = pipeline

    def __post_init__(self) -> None:
        self.lake = Lake(self.store, self.runtime, proven=True)
        self.tables = IcebergTables(self.store, self.runtime)
        if not self.log.topics:
            fill(self.log)

    def plan(
        self, interval: Interval, *, run: str | None = None, clear: int = 0, **params: Any
    ) -> PlanResult:
        """Plan an interval as the scheduled run of its start."""
        return plan(
            self.lake,
            self.log,
            PlanRequest(
                pipeline=self.declared(self.store.uri),
                job_source=self.job,
                request=Request(
                    dag=self.dag, run=run or f"scheduled__{interval.start.isoformat()}", clear=clear
                ),
                params=parse_params(params),
                dates=RunDates(data_interval=interval, run_after=interval.end),
                first=DAY,
            ),
        )

    def run(
        self,
        interval: Interval,
        *,
        run: str | None = None,
        clear: int = 0,
        keep: Callable[[FakeRecord], bool] = lambda _: True,
        **params: Any,
    ) -> list[CommitResult]:
        """Plan, stage and commit; the job drops the records for which `keep` is false."""
        planned = self.plan(interval, run=run, clear=clear, **params)
        return [
            commit(
                self.lake,
                self.tables,
                plan_key=p.plan,
                report_key=stage(self.lake, self.log, p.plan, keep=keep),
            )
            for p in planned.intervals
            if not p.committed
        ]

    def copy(self) -> SmallLake:
        """Return a copy of the lake in another store, each object with its ETag, in order to damage it."""
        assert isinstance(self.store, MemoryStore)
        store = MemoryStore(self.store.uri.removeprefix("memory://"))
        store._objects = dict(self.store._objects)
        store._writes = self.store._writes
        return SmallLake(
            store=store,
            log=self.log,
            runtime=self.runtime,
            job=self.job,
            dag=self.dag,
            declared=self.declared,
        )

    # ------------------------------------------------------------ damage

    def change(self, key: str, edit: Callable[[Any], None]) -> None:
        """Edit a stored JSON object in place, which the protocol forbids."""
        found = self.store.get(key)
        assert found is not None, key
        value = json.loads(found.body)
        edit(value)
        self.overwrite(key, dumps(value))

    def overwrite(self, key: str, body: bytes) -> None:
        """Store other bytes under a key, which the protocol forbids."""
        self.store.delete([key])
        self.store.create(key, body)

    def root(self) -> Any:
        """Return the root as JSON."""
        found = self.store.get(keys.ROOT)
        assert found is not None
        return json.loads(found.body)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix."""
        return [listed.key for listed in self.store.list(prefix)]

    def page(self) -> str:
        """Return the key of the ledger's only page."""
        (line,) = self.root()["pages"]
        return str(line[2])

    def data_files(self, table: str) -> list[str]:
        """Return the keys of a table's data files, also of dropped ones."""
        return self.keys(f"{keys.table_prefix(table)}data/")

    def table_state(self, table: str) -> TableState:
        """Return a table as the root describes it."""
        root_table: RootTable = self.lake.load_existing().root.tables[table]
        return TableState(
            name=table,
            uuid=root_table.uuid,
            metadata=root_table.metadata,
            columns=root_table.columns,
            partition_by=root_table.partition_by,
            dropped=root_table.dropped,
            former_names=root_table.former_names,
            upkeep=root_table.upkeep,
        )


def good_lake(
    store: Store | None = None,
    *,
    dag: str = "small",
    declared: Callable[[str], Pipeline] = pipeline,
) -> SmallLake:
    """Return a lake with days out of order, an empty one, a replacement, a gap (day 4) and a pending grant (day 6)."""
    small = SmallLake(store=store or MemoryStore(), dag=dag, declared=declared)
    small.run(days(3, 4))
    small.run(days(1, 2))
    small.run(days(2, 3))
    small.run(days(5, 6))  # without offsets: committed by its plan
    small.job = b"version 2"
    small.run(days(2, 3), clear=1)
    small.plan(days(6, 7))
    return small


def refill(small: SmallLake, first: int, last: int, *, partitions: int = 2) -> None:
    """Delete and recreate the topic, with two records of each day in each partition."""
    small.log.create(TOPIC, partitions=partitions)
    for number in range(first, last):
        for partition in range(partitions):
            for hour in (1, 2):
                at = day(number) + timedelta(hours=hour)
                small.log.append(TOPIC, partition, at, n=100 * number + hour, kind="new")


def adopted(small: SmallLake, ends: dict[int, int] | None = None) -> Adopted:
    """Adopt the current incarnation of the topic."""
    topic = small.log.describe([TOPIC])[TOPIC]
    return adopt(
        small.lake, TOPIC, lambda: topic, ends_of=lambda _: ends or {}, confirmed_id=topic.topic_id
    )
