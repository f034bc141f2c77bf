"""A small plan, and readings that need no broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.parquet import WriteLimits
from tallystick.engine.task import Work
from tallystick.engine.transform import JobTransform
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.interval import Interval, Request
from tallystick.format.plan import Plan, PlannedRange, PlannedTable, PlannedTopic
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.store.memory import MemoryStore

DAY = datetime(2013, 1, 1, tzinfo=UTC)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, kw_only=True)
class FakeAccount:
    """The account of a reader."""

    records: int
    aborted: int = 0
    control: int = 0
    absent: int = 0


class FakeReading:
    """A reading that returns given batches."""

    def __init__(self, batches: Sequence[pa.RecordBatch], **account: int) -> None:
        self._batches = batches
        records = sum(b.num_rows for b in batches)
        self.account = FakeAccount(**{"records": records, **account})

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


def raw_batch(start: int, values: Sequence[bytes | None], *, headers: Any = None) -> pa.RecordBatch:
    """Return records from offset `start`, one second apart."""
    count = len(values)
    at = [DAY + timedelta(seconds=start + i) for i in range(count)]
    return pa.record_batch(
        {
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array(at, pa.timestamp("ms", tz="UTC")),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers or [[]] * count, HEADERS),
        }
    )


def small_pipeline(**changes: Any) -> Pipeline:
    """Return a pipeline with a record-level table, partitioned by a string column, and one that aggregates."""
    events = [Column("n", "long"), Column("kind", "string", required=False)]
    tables = [
        Table("events", columns=events, partition_by=["kind"]),
        Table("per_kind", columns=[events[1], events[0]], keys=["kind"], combine={"n": "sum"}),
    ]
    defaults = {
        "name": "small",
        "topics": ["events"],
        "warehouse": "memory://small",
        "job": "jobs/small.py",
    }
    return Pipeline(**{**defaults, "tables": tables, **changes})


def with_ids(columns: Sequence[Column], ids: Iterator[int]) -> tuple[TableColumn, ...]:
    return tuple(
        TableColumn(
            id=next(ids),
            name=c.name,
            type=c.type,
            required=c.required,
            fields=with_ids(c.fields, ids),
        )
        for c in columns
    )


def plan_of(pipeline: Pipeline, *topics: tuple[str, Sequence[PlannedRange]]) -> Plan:
    """Return a plan of the pipeline over the ranges."""
    interval = Interval(start=DAY, end=DAY + timedelta(days=1))
    tables = [
        PlannedTable(
            name=name,
            uuid="a" * 32,
            columns=with_ids(columns, itertools.count(1)),
        )
        for name, columns in pipeline.written_columns().items()
    ]
    return Plan(
        key=keys.plan(interval.start, interval.end, "b" * 32),
        pipeline=pipeline.name,
        interval=interval,
        generation=1,
        request=Request(dag="small", run="one", clear=0),
        fingerprint="f",
        replaces=None,
        topics=tuple(
            PlannedTopic(
                name=name, topic_id="t", cluster_id="c", compacted=False, ranges=tuple(ranges)
            )
            for name, ranges in topics
        ),
        tables=tuple(tables),
        spec=pipeline.to_spec(),
        accept_loss=False,
        accept_compaction=False,
        planned_at=DAY,
        library="test",
    )


def planned(start: int, end: int, readable_from: int | None = None) -> PlannedRange:
    """Return a range whose ends have the epochs 4 and 5."""
    first = start if readable_from is None else readable_from
    return PlannedRange(start=start, end=end, start_epoch=4, end_epoch=5, readable_from=first)


def counting_runtime() -> Runtime:
    """Return a runtime with consecutive ids that never waits."""
    ids = itertools.count(1)
    return Runtime(
        now=lambda: DAY,
        uuid=lambda: f"{next(ids):032x}",
        monotonic_s=lambda: 0.0,
        sleep=lambda _: None,
        chance=lambda: 0.0,
    )


def identity_and_sums(records: pa.Table) -> dict[str, pa.Table]:
    """Return every record, and the sum of n per kind."""
    sums = records.group_by("kind").aggregate([("n", "sum")]).rename_columns(["kind", "n"])
    return {"events": records, "per_kind": sums}


@pytest.fixture
def make_work() -> Callable[..., Work]:
    def make(
        *ranges: PlannedRange,
        transform: Callable[..., Any] = identity_and_sums,
        store: Store | None = None,
        pipeline: Pipeline | None = None,
        limits: WriteLimits | None = None,
    ) -> Work:
        declared = pipeline or small_pipeline()
        return Work(
            plan=plan_of(declared, ("events", ranges or (planned(0, 4),))),
            pipeline=declared,
            attempt="try-1",
            transform=JobTransform(transform, declared),
            store=store or MemoryStore("small"),
            runtime=counting_runtime(),
            limits=limits or WriteLimits(),
        )

    return make


@pytest.fixture
def kit() -> SimpleNamespace:
    """Return the helpers of this folder: test modules cannot import a conftest."""
    return SimpleNamespace(
        FakeReading=FakeReading,
        raw_batch=raw_batch,
        small_pipeline=small_pipeline,
        plan_of=plan_of,
        planned=planned,
        counting_runtime=counting_runtime,
        identity_and_sums=identity_and_sums,
    )
