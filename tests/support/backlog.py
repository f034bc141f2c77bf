"""A lake with many intervals that are pending for an output, created without a swap for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from support.fake_output import Declared
from support.fakes import FakeLog, stage
from support.small_lake import DAY, TOPIC, SmallLake, pipeline
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot
from tallystick.format.page import Boundary
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.store import Store
from tallystick.store.memory import MemoryStore

HOUR = timedelta(hours=1)


def hour(number: int) -> Interval:
    """Return an hour of the lake."""
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def wide(tables: int, outputs: tuple[Declared, ...]) -> Callable[[str], Pipeline]:
    """Declare a pipeline with `tables` tables (without dead letters); the first of them has the outputs."""

    def declared(warehouse: str) -> Pipeline:
        plain = pipeline(warehouse)
        columns = [Column("n", "long"), Column("kind", "string", required=False)]
        more = tuple(Table(f"t{number:02d}", columns=columns) for number in range(tables - 1))
        return replace(plain, tables=(plain.tables[0], *more), outputs=outputs)

    return declared


def lake_with_backlog(
    tables: int,
    pending: int,
    commits: int,
    *,
    store: Store | None = None,
    outputs: tuple[Declared, ...] = (Declared(),),
) -> tuple[SmallLake, list[tuple[str, str]]]:
    """Return a lake with `pending` intervals, and the plans and reports of `commits` hours that are staged only."""
    log = FakeLog()
    log.create(TOPIC, partitions=1)
    for number in range(pending + commits):
        log.append(TOPIC, 0, hour(number).start + timedelta(minutes=5), n=number, kind="k")
    small = SmallLake(store=store or MemoryStore(), log=log, declared=wide(tables, outputs))
    if pending:
        small.run(hour(0))
        _copy_commit(small, pending)
    staged = []
    for number in range(pending, pending + commits):
        (planned,) = small.plan(hour(number), run=f"late-{number}").intervals
        staged.append((planned.plan, stage(small.lake, small.log, planned.plan)))
    return small, staged


def _copy_commit(small: SmallLake, count: int) -> None:
    """Copy the commit of the first hour to the hours after it: each is committed and not published.

    Records, plans and reports are written for each hour, the ledger's pages and the root once: no swap per interval.
    """
    snapshot = small.lake.load_existing()
    ledger = snapshot.whole_ledger()
    first = ledger.entry(hour(0))
    assert first is not None
    assert first.committed is not None
    plan = small.lake.plan(first.committed.plan)
    record = small.lake.record(first.committed.record)
    assert plan is not None
    assert record is not None
    (committed,) = record.intervals
    assert committed.report is not None
    report = small.lake.report(committed.report)
    assert report is not None
    for number in range(1, count):
        interval, uuid = hour(number), small.runtime.uuid()
        plan_copy = replace(
            plan, key=keys.plan(interval.start, interval.end, uuid), interval=interval
        )
        report_key = keys.report(interval.start, interval.end, report.attempt, small.runtime.uuid())
        report_copy = replace(
            report, key=report_key, plan=plan_copy.key, plan_sha256=plan_copy.sha256
        )
        committed_copy = replace(
            committed, interval=interval, plan=plan_copy.key, report=report_key
        )
        record = replace(
            record,
            key=keys.record(record.version + 1, small.runtime.uuid()),
            version=record.version + 1,
            parent=record.key,
            intervals=(committed_copy,),
        )
        for key, body in (
            (plan_copy.key, plan_copy.encode()),
            (report_key, report_copy.encode()),
            (record.key, record.encode()),
        ):
            small.store.create(key, body)
        end = Boundary(
            at=interval.end, positions={TOPIC: (Position(offset=number + 1, leader_epoch=0),)}
        )
        ledger.set_boundary(end)
        ledger.put(
            replace(
                first,
                interval=interval,
                committed=replace(first.committed, plan=plan_copy.key, record=record.key),
                outputs={name: OutputSlot(wanted=uuid) for name in first.outputs},
            )
        )
    index, pages = ledger.flush(iter(small.runtime.uuid, None))
    for key, page in pages.items():
        small.store.create(key, page.encode())
    root = replace(
        snapshot.root,
        version=record.version,
        id=small.runtime.uuid(),
        record=record.key,
        pages=index,
        pending=tuple(ref.key for ref in index),
    )
    small.store.replace(keys.ROOT, root.encode(), expected=snapshot.etag)
