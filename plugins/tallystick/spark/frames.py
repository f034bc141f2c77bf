"""Stages a DataFrame job: lands the records once, calls the transform, writes each of its tables by one action.

1. **Land** (one action): tasks read and decode the input splits, as in an Arrow job. Records go to the attempt's
   scratch, dead letters to the prefix of their table. Spark returns one result per input split: the account of every
   offset, the files of dead letters and the scratch files. Kafka is read only here, so the account is made exactly once.
2. **Transform**: called once, in the driver, with frames over the landed files. Each evaluation of these frames reads
   the same bytes: a lost executor or a second table cannot change the input. A job can call `persist()`, but only to
   save time.
3. **Write** (one action per table): each task writes Parquet under the attempt's prefix and returns its files. Spark
   returns one result per partition, from a task that succeeded. No report names the files of other tasks (C4).

If the transform is deterministic, retries do not change a table's rows. `traps` warns of known calls that are not
deterministic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tallystick.engine.attempt import assemble
from tallystick.engine.outputs import write_output
from tallystick.format.codec import StoredValue
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, Report
from tallystick.lake import Lake
from tallystick.operations.lookback import own_span
from tallystick.pipeline import Table
from tallystick.spark.context import context_of
from tallystick.spark.landing import RESULT, Batches, answer, land
from tallystick.spark.lookback import LookbackFrames, lookback_frames
from tallystick.spark.order import Order, Target
from tallystick.spark.room import FilesOfTasks, add_files
from tallystick.spark.session import failures_max, stage_session
from tallystick.spark.source import landed_frame
from tallystick.spark.stage import collected, raise_decisive
from tallystick.spark.transformed import transformed
from tallystick.store.open import open_store

log = logging.getLogger("tallystick.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(StoredValue):
    """The result of one task of a write action."""

    files: tuple[FileReport, ...]


def stage_frames(
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    staged: Sequence[tuple[Plan, Report]] = (),
) -> Report:
    """Stage a DataFrame job and return its report, which is not written yet; raises the errors of its tasks.

    `staged`: the earlier plans that this run has staged, and their reports, for a job with a lookback. Safe to repeat:
    everything is written under the attempt's prefixes, each upload under a key of its own.
    """
    work = order.target.attempt_at(lake.store)
    if not order.splits and work.pipeline.lookback is None:
        return assemble(work, (), (), outputs=())
    session = stage_session(work.plan, tasks=len(order.groups))
    master = session.sparkContext.master
    log.info("spark %s at %s: %d task(s) land", session.version, master, len(order.groups))
    if work.pipeline.lookback is not None:
        order = replace(order, log_span=own_span(lake, work.plan))
    splits, ref = land(session, lake, order)
    frames = {t.name: landed_frame(session, ref, t.name) for t in work.pipeline.inputs}
    lookback = lookback_frames(session, lake, order, transform, staged) or LookbackFrames()
    context = context_of(session, work.plan, rows_before=lookback.frames, back=lookback.back)
    outputs = transformed(session, transform, frames, context, work.pipeline)
    files: list[FileReport] = []
    for table in work.pipeline.tables:
        files.extend(write(session, order.target, table, outputs[table.name], before=files))
    results = [p.result for p in splits]
    return assemble(work, order.splits, results, outputs=files, lookback=lookback.lookback)


def write(
    session: SparkSession,
    target: Target,
    table: Table,
    frame: DataFrame,
    *,
    before: Sequence[FileReport] = (),
) -> list[FileReport]:
    """Evaluate the DataFrame of one table by one action that writes it; return the files of the tasks that succeeded.

    `before`: the files that the attempt has written for other tables. They go into the same report.
    """
    tries_max = failures_max(session)
    rows = frame.select(*[c.name for c in table.written])
    if table.aggregates:
        # All rows of one key go to one task, one after another, so that the task detects a key that occurs twice.
        rows = rows.repartition(*table.keys).sortWithinPartitions(*table.keys)

    written = FilesOfTasks(session, target.plan, before=before)
    adders = written.adders

    def task(batches: Batches) -> Batches:
        yield answer(partial(_write, target, table.name, batches, adders), tries_max)

    with written.watched():
        answers = collected(session, rows.mapInArrow(task, RESULT))
    raise_decisive(answers)
    where = f"result of a task that wrote {table.name}"
    return [f for row in answers for f in _Written.from_text(row["result"], where).files]


def _write(target: Target, name: str, batches: Batches, adders: tuple[Any, Any]) -> str:
    context = TaskContext.get()
    assert context is not None
    work = target.attempt_at(open_store(target.lake_uri))
    files = write_output(work, name, f"{context.partitionId():05d}", batches)
    add_files(adders, files)
    return _Written(files=files).to_text()
