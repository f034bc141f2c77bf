"""Lands the input splits of an order: one Spark action reads Kafka once, then the driver lists the scratch files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from functools import cache, partial

import pyarrow as pa
from pyspark.sql import SparkSession

from tallystick.engine.input_splits import InputSplit
from tallystick.engine.landing import LandedSplit, land_split, landed_of
from tallystick.engine.task import Attempt, Reading
from tallystick.lake import Lake
from tallystick.spark.order import Order
from tallystick.spark.session import failures_max
from tallystick.spark.source import LandedRef
from tallystick.spark.stage import collected, groups_of, raise_decisive, run_or_error
from tallystick.store.open import open_store

log = logging.getLogger("tallystick.spark")
RESULT = "result string, error string"
_ARROW = pa.schema([pa.field("result", pa.string()), pa.field("error", pa.string())])
Batches = Iterator[pa.RecordBatch]


def land(session: SparkSession, lake: Lake, order: Order) -> tuple[list[LandedSplit], LandedRef]:
    """Run the action that reads Kafka; return the landed splits and a reference to their list.

    Raises the most decisive of the tasks' errors. Safe to repeat: each upload has a key of its own, the list too.
    """
    tries_max = failures_max(session)
    groups = order.groups

    def task(batches: Batches) -> Batches:
        # The splits of a task share the declaration and the clients of S3 and Kafka.
        work_of = cache(lambda: order.target.attempt_at(open_store(order.target.lake_uri)))
        with order.readings() as reading_of:
            for splits in groups_of(groups, batches):
                for split in splits:
                    yield answer(partial(_land, order, work_of, reading_of, split), tries_max)

    count = len(groups)
    rows = (
        collected(session, session.range(0, count, 1, count).mapInArrow(task, RESULT))
        if count
        else []
    )
    raise_decisive(rows)
    splits = [LandedSplit.from_text(row["result"], "result of a landing task") for row in rows]
    landed = landed_of(order.target.attempt_at(lake.store), splits)
    body = landed.encode()
    lake.put_new(landed.key, body)
    ref = LandedRef(
        lake_uri=lake.store.uri, key=landed.key, sha256=hashlib.sha256(body).hexdigest()
    )
    log.info("%d records landed once: %s", sum(f.rows for f in landed.files), ref)
    return splits, ref


def _land(
    order: Order,
    work_of: Callable[[], Attempt],
    reading_of: Callable[[InputSplit], Reading],
    split: InputSplit,
) -> str:
    return land_split(
        work_of(),
        split,
        reading_of(split),
        log_span=order.log_span,
        for_lookback=order.topics is not None,
    ).to_text()


def answer(run: Callable[[], str], tries_max: int) -> pa.RecordBatch:
    """Build the one row that a task returns: its result, or an error that a retry by Spark cannot fix."""
    result, error = run_or_error(run, tries_max)
    return pa.RecordBatch.from_pylist([{"result": result, "error": error}], schema=_ARROW)
