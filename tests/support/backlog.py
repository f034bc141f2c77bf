"""A lake that owes an output many intervals, made without a swap for each: for tests and benchmarks of publishing."""

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
    """One hour of the lake's time."""
    return Interval(start=DAY + number * HOUR, end=DAY + (number + 1) * HOUR)


def wide(tables: int, outputs: tuple[Declared, ...]) -> Callable[[str], Pipeline]:
    """A pipeline of that many tables, dead letters aside, whose first goes to the outputs."""

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
    """A lake that owes so many intervals, and the plans and reports of hours that are staged and not committed."""
    log = FakeLog()
    log.create(TOPIC, partitions=1)
    for number in range(pending + commits):
        log.append(TOPIC, 0, hour(number).start + timedelta(minutes=5), n=number, kind="k")
    small = SmallLake(store=store or MemoryStore(), log=log, declared=wide(tables, outputs))
    if pending:
        small.run(hour(0))
        _owe(small, pending)
    staged = []
    for number in range(pending, pending + commits):
        (piece,) = small.plan(hour(number), run=f"late-{number}").intervals
        staged.append((piece.plan, stage(small.lake, small.log, piece.plan)))
    return small, staged


def _owe(small: SmallLake, count: int) -> None:
    """Copy the first hour's commit to the hours after it, as if each had been committed and not published.

    Records, plans and reports are written one by one, the ledger's pages and the root once: no swap per interval.
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
    (done,) = record.intervals
    assert done.report is not None
    report = small.lake.report(done.report)
    assert report is not None
    for number in range(1, count):
        interval, uuid = hour(number), small.runtime.uuid()
        plan_now = replace(
            plan, key=keys.plan(interval.start, interval.end, uuid), interval=interval
        )
        report_key = keys.report(interval.start, interval.end, report.attempt, small.runtime.uuid())
        report_now = replace(report, key=report_key, plan=plan_now.key, plan_sha256=plan_now.sha256)
        done_now = replace(done, interval=interval, plan=plan_now.key, report=report_key)
        record = replace(
            record,
            key=keys.record(record.version + 1, small.runtime.uuid()),
            version=record.version + 1,
            parent=record.key,
            intervals=(done_now,),
        )
        for key, body in (
            (plan_now.key, plan_now.encode()),
            (report_key, report_now.encode()),
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
                committed=replace(first.committed, plan=plan_now.key, record=record.key),
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
