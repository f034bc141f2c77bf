"""Builds the lookback of a DataFrame job: committed rows from their data files, other rows by running the job itself.

The records of uncommitted time are landed like the plan's own records and go through the same transform. In that call the
lookback is empty. This is correct because the tables of a lookback contain partial rows, computed only from the records
of their own interval.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.engine.input_splits import split_topics
from tallystick.engine.transform import written_schema
from tallystick.errors import Corrupt
from tallystick.format.interval import Interval
from tallystick.format.lookback import LookbackUsed
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.operations.lookback import LookbackInput, UncommittedRange, read_lookback
from tallystick.operations.row_places import FileRows, places_of
from tallystick.pipeline import Lookback, Table
from tallystick.spark.context import context_of
from tallystick.spark.landing import land
from tallystick.spark.order import Order
from tallystick.spark.source import landed_frame
from tallystick.spark.transformed import transformed
from tallystick.store import Store
from tallystick.store.open import open_store
from tallystick.tables.schema import FIELD_ID

log = logging.getLogger("tallystick.spark")
# Files are small and many: one task reads several, and a task costs 10 to 17 ms.
TASKS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LookbackFrames:
    """The lookback of a plan: a DataFrame per table, how far back it reaches, and its entry for the report."""

    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    back: timedelta | None = None
    lookback: LookbackUsed | None = None


def lookback_frames(
    session: SparkSession,
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    staged: Sequence[tuple[Plan, Report]],
) -> LookbackFrames | None:
    """Return the lookback of the order's plan, or None if its pipeline has none.

    Safe to repeat: records that are read from Kafka are landed in the attempt's scratch, each upload under a key of its
    own.
    """
    work = order.target.attempt_at(lake.store)
    lookback = work.pipeline.lookback
    if lookback is None:
        return None
    found = _read(lake, order, lookback, staged)
    frames: dict[str, list[DataFrame]] = {}
    for name in lookback.tables:
        table = work.pipeline.table(name)
        assert table is not None  # the pipeline checked it
        files = [f for part in found.parts for f in part.files.get(name, ())]
        ids = _ids(work.plan, name)
        frames[name] = [stored_frame(session, lake.store.uri, table, files, ids)]
    records: dict[Interval, int] = {}
    for unread in found.unread:
        records[unread.interval], rows = _through_job(session, lake, order, transform, unread)
        for name in lookback.tables:
            if name in rows:
                frames[name].append(rows[name])
    used = found.used(work.plan.fingerprint, records)
    log.info(
        "lookback from %s: %d interval(s) of the lake, %d uncommitted interval(s) from Kafka (%d records)",
        found.since.isoformat(),
        len(found.parts),
        len(records),
        sum(records.values()),
    )
    return LookbackFrames(
        frames={name: reduce(DataFrame.unionByName, parts) for name, parts in frames.items()},
        back=lookback.back,
        lookback=used,
    )


def _read(
    lake: Lake, order: Order, lookback: Lookback, staged: Sequence[tuple[Plan, Report]]
) -> LookbackInput:
    plan = order.target.plan
    if lookback.uncommitted != "kafka":
        return read_lookback(lake, plan, lookback, staged=staged)
    # If the lookback does not read Kafka, the driver sends no request to it and loads no client.
    from tallystick.kafka.planning import LogPlanner

    settings = resolve(KafkaSettings, plan.spec["kafka"], environ=os.environ, fallback=order.kafka)
    with LogPlanner(settings) as planner:
        return read_lookback(lake, plan, lookback, staged=staged, log=planner)


def _through_job(
    session: SparkSession,
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    unread: UncommittedRange,
) -> tuple[int, Mapping[str, DataFrame]]:
    """Read an uncommitted range from Kafka; return the number of its records, and the job's rows for them by table."""
    work = order.target.attempt_at(lake.store)
    splits = split_topics(
        unread.topics, records_per_task=work.pipeline.records_per_task, first=len(order.splits)
    )
    if not splits:
        return 0, {}
    order = replace(order, splits=splits, topics=unread.topics, log_span=unread.span)
    log.info(
        "%s is not committed: %d task(s) read it from Kafka", unread.interval, len(order.groups)
    )
    landed, ref = land(session, lake, order)
    records = sum(split.result.account.records for split in landed)
    if not records:
        return 0, {}
    frames = {t.name: landed_frame(session, ref, t.name) for t in work.pipeline.inputs}
    lookback = work.pipeline.lookback
    assert lookback is not None  # the caller checked it
    tables = {t.name: t for t in work.pipeline.tables if t.name in lookback.tables}
    nothing = {
        name: stored_frame(session, lake.store.uri, table, (), _ids(work.plan, name))
        for name, table in tables.items()
    }
    context = context_of(
        session,
        work.plan,
        rows_before=nothing,
        interval=unread.interval,
        back=lookback.back,
    )
    rows = transformed(session, transform, frames, context, work.pipeline)
    columns_of = {name: [c.name for c in table.written] for name, table in tables.items()}
    types = {name: from_arrow_schema(written_schema(table)) for name, table in tables.items()}
    return records, {
        name: rows[name].select(*[rows[name][c].cast(types[name][c].dataType) for c in columns])
        for name, columns in columns_of.items()
    }


def _selected(file: pq.ParquetFile, positions: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, cut to the wanted positions, which ascend."""
    first = 0
    for batch in file.iter_batches():
        low, high = np.searchsorted(positions, (first, first + len(batch)))
        inside = positions[low:high] - first
        if len(inside) and inside[-1] - inside[0] + 1 == len(inside):
            yield batch.slice(inside[0], len(inside))
        elif len(inside):
            yield batch.take(pa.array(inside))
        first += len(batch)


def _ids(plan: Plan, table: str) -> dict[str, int]:
    planned = plan.table(table)
    return {c.name: c.id for c in planned.columns} if planned is not None else {}


def stored_frame(
    session: SparkSession,
    root: str,
    table: Table,
    files: Sequence[FileRows],
    ids: Mapping[str, int],
) -> DataFrame:
    """Return rows of data files of a table. Columns are matched by id; if a file lacks a column, it is null.

    `ids`: the ids of the table's columns, by their names now. A file may have them under an older name, or in a narrower
    type, which is cast.
    """
    schema = written_schema(table)
    spark_schema = from_arrow_schema(schema)
    if not files:
        return session.createDataFrame([], spark_schema)
    tasks = min(len(files), TASKS_MAX)
    # Rows of one shared file stay together, so that a task reads it once.
    ordered = sorted(files, key=lambda f: (f.key, f.first))
    size = -(-len(ordered) // tasks)
    shares = [ordered[i * size : (i + 1) * size] for i in range(tasks)]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                store = open_store(root)
                for key, some in groupby(shares[index], key=lambda f: f.key):
                    yield from _rows(store, key, list(some), schema, ids)

    return session.range(0, tasks, 1, tasks).mapInArrow(read, spark_schema)


def _rows(
    store: Store, key: str, wanted: Sequence[FileRows], schema: pa.Schema, ids: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of one file, in the order of their positions."""
    stored, etag = store.get(key), wanted[0].etag
    if stored is None or stored.etag != etag:
        found = "no object" if stored is None else f"ETag {stored.etag}"
        raise Corrupt(
            f"{store.uri}/{key}, a file of the lookback: expected ETag {etag}, found {found}.",
            hint="clear the stage task: it reads what is committed now. If the error comes back, restore the file "
            "from a bucket version.",
        )
    numbers = tuple((one.first, one.first + one.rows) for one in wanted)
    positions = places_of(store, wanted[0]).positions(numbers)
    for batch in _selected(pq.ParquetFile(pa.BufferReader(stored.body)), positions):
        places = {int((f.metadata or {})[FIELD_ID]): n for n, f in enumerate(batch.schema)}
        yield pa.RecordBatch.from_arrays(
            [
                batch.column(places[ids[f.name]]).cast(f.type)
                if ids[f.name] in places
                else pa.nulls(len(batch), f.type)
                for f in schema
            ],
            schema=schema,
        )
