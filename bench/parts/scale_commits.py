"""The axes of `bench.parts.scale` that plan and commit: partitions, topics, tables, and files of one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from bench.parts.commits import CostedStore, interval
from bench.parts.scale_cost import Figures, measured, medians, named
from support.fakes import FakeLog, FakeRecord, stage
from support.small_lake import DAY, TOPIC, SmallLake, pipeline
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, Lineage, RangeAccount, Report
from tallystick.operations.commit import commit
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.store import Applied
from tallystick.store.memory import MemoryStore

HOUR = timedelta(hours=1)
WITH_ROWS = 8
PARTITIONS_OF_EACH = 10  # of each topic, if there are several
NEXT = range(2, 5)  # the intervals after the first two, whose median is printed
ATTEMPT = "attempt-1"


class ScaledLake:
    """A lake on a costed store in memory, and the log of its topic."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        topics: Sequence[str] = (TOPIC,),
        declared: Callable[[str], Pipeline] = pipeline,
    ) -> None:
        self.log = FakeLog()
        for topic in topics:
            self.log.create(topic, partitions=partitions)
        self.store = CostedStore(MemoryStore())
        self.small = SmallLake(store=self.store, log=self.log, declared=declared)

    def append_hour(self, number: int) -> None:
        """Append two offsets of an hour to each partition: a record and a dead letter in the first, else aborted ones."""
        at_ms = hour_ms(number)
        every = (p for topic in self.log.topics.values() for p in topic.partitions)
        for index, partition in enumerate(every):
            with_rows = index < WITH_ROWS
            partition.records += (
                FakeRecord(
                    at_ms=at_ms,
                    kind="data" if with_rows else "aborted",
                    value={"n": 1, "kind": "a"},
                ),
                FakeRecord(at_ms=at_ms + 1, kind="dead" if with_rows else "aborted"),
            )

    def plan(self, number: int) -> tuple[keys.PlanKey, Figures]:
        """Plan an hour; return the key of its plan and what planning cost."""
        planned, cost = measured(self.store, lambda: self.small.plan(interval(number)))
        (only,) = planned.intervals
        return only.plan, cost

    def commit(self, plan_key: keys.PlanKey, report_key: keys.ReportKey) -> Figures:
        """Commit a staged hour; return what it cost."""
        small = self.small
        return measured(
            self.store,
            lambda: commit(small.lake, small.tables, plan_key=plan_key, report_key=report_key),
        )[1]

    def stage(self, plan_key: keys.PlanKey) -> keys.ReportKey:
        """Stage a planned hour with real Parquet files; return the key of the report."""
        report_key = stage(self.small.lake, self.log, plan_key, attempt=ATTEMPT)
        return keys.check_report(report_key)

    def size_bytes(self, key: str) -> int:
        """Return the size of an object."""
        found = self.store.store.get(key)
        assert found is not None
        return len(found.body)


def hour_ms(number: int) -> int:
    """Return the begin of an hour in milliseconds."""
    return round((DAY + number * HOUR).timestamp() * 1000)


def hours(scaled: ScaledLake) -> Iterator[Figures]:
    """Plan, stage and commit one hour after the other; yield what planning and committing each cost."""
    for number in range(NEXT.stop):
        scaled.append_hour(number)
        plan_key, plan_cost = scaled.plan(number)
        report_key = scaled.stage(plan_key)
        commit_cost = scaled.commit(plan_key, report_key)
        sizes: Figures = {
            "plan_bytes": scaled.size_bytes(plan_key),
            "report_bytes": scaled.size_bytes(report_key),
            "root_bytes": scaled.size_bytes(keys.ROOT),
        }
        yield {**named("plan", plan_cost), **named("commit", commit_cost), **sizes}


def first_and_next(scaled: ScaledLake) -> list[Figures]:
    """Return the figures of the first interval, and the median of later ones."""
    costs = list(hours(scaled))
    return [{"interval": "first", **costs[0]}, {"interval": "next", **medians(costs[NEXT.start :])}]


def partitions(size: int) -> list[Figures]:
    """Plan and commit hours of a topic with `size` partitions."""
    return first_and_next(ScaledLake(partitions=size))


def topics(size: int) -> list[Figures]:
    """Plan and commit hours of `size` topics, each with a few partitions."""
    names = [f"events_{number}" for number in range(size)]

    def declared(warehouse: str) -> Pipeline:
        return replace(pipeline(warehouse), topics=names)

    return first_and_next(
        ScaledLake(partitions=PARTITIONS_OF_EACH, topics=names, declared=declared)
    )


def tables(size: int) -> list[Figures]:
    """Commit hours into `size` record-level tables and the dead letters."""

    def declared(warehouse: str) -> Pipeline:
        columns = [Column("n", "long"), Column("kind", "string", required=False)]
        several = [Table(f"events_{n}", columns=columns) for n in range(size)]
        return replace(pipeline(warehouse), tables=several)

    return first_and_next(ScaledLake(declared=declared))


def files(size: int) -> list[Figures]:
    """Commit an hour with a report of `size` files of one table, then one hour of one record."""
    scaled = ScaledLake()
    partition = scaled.log.topics[TOPIC].partitions[0]
    for number, records in enumerate((1, size, 1)):
        partition.records += (
            FakeRecord(at_ms=hour_ms(number), value={"n": 1, "kind": "a"}) for _ in range(records)
        )
    real = scaled.stage(scaled.plan(0)[0])
    report = scaled.small.lake.report(real)
    assert report is not None
    scaled.commit(report.plan, real)
    plan_key, _ = scaled.plan(1)
    report_key = put_report(scaled, plan_key, report)
    cost = scaled.commit(plan_key, report_key)
    plan_key, _ = scaled.plan(2)
    after = scaled.commit(plan_key, scaled.stage(plan_key))
    sizes: Figures = {"report_bytes": scaled.size_bytes(report_key)}
    return [{**named("commit", cost), **named("after", after), **sizes}]


def put_report(scaled: ScaledLake, plan_key: keys.PlanKey, real: Report) -> keys.ReportKey:
    """Write a report with a file per record, each a copy of a real file of one row.

    Safe to repeat: each call makes new keys.
    """
    lake = scaled.small.lake
    plan = lake.plan(plan_key)
    assert plan is not None
    planned = plan.topics[0].ranges[0]
    (copied,) = (f for f in real.files if f.table == "events")
    made = tuple(
        put_file(scaled, plan, copied, offset) for offset in range(planned.start, planned.end)
    )
    account = RangeAccount(
        topic=TOPIC, partition=0, start=planned.start, end=planned.end, records=len(made)
    )
    report = replace(
        real,
        key=keys.report(
            plan.interval.start, plan.interval.end, ATTEMPT, scaled.small.runtime.uuid()
        ),
        plan=plan.key,
        plan_sha256=plan.sha256,
        fingerprint=plan.fingerprint,
        files=made,
        accounts=(account,),
    )
    lake.put_new(report.key, report.encode())
    return report.key


def put_file(scaled: ScaledLake, plan: Plan, real: FileReport, offset: int) -> FileReport:
    """Write a copy of a file under a key of the plan's attempt; return its entry of the report.

    Safe to repeat: the key has a new uuid.
    """
    store, runtime = scaled.store, scaled.small.runtime
    key = keys.data_file(real.table, plan.key, ATTEMPT, "00000", runtime.uuid())
    found = store.store.get(real.key)
    assert found is not None
    outcome = store.create(key, found.body)
    assert isinstance(outcome, Applied)
    lineage = Lineage(topic=TOPIC, partition=0, first=offset, last=offset)
    return replace(real, key=key, etag=outcome.etag, lineage=(lineage,))
