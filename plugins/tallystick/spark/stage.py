"""The one Spark stage: a task per piece, no shuffle, one action; what comes back is one small row per piece.

A task that Spark runs twice (a retry, speculation, a lost executor) leaves files that no report names: only the rows of
the action become the report, and Spark returns exactly one result per partition.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

from tallystick.connections import kafka_settings
from tallystick.engine.combine import require_room, too_much_for_driver
from tallystick.engine.kafka_pieces import KafkaReading
from tallystick.engine.pieces import Piece
from tallystick.engine.task import TaskResult, Work, parse_result, run_piece
from tallystick.engine.transform import JobTransform, Transform
from tallystick.errors import RetryLater, SettingsError, TallystickError
from tallystick.pipeline import Pipeline, pipeline_from_spec
from tallystick.protocol.plan import Plan
from tallystick.spark.outcome import error_from, error_json, most_decisive
from tallystick.spark.session import failures_max
from tallystick.store import Store
from tallystick.store.open import open_store
from tallystick.world import real_world

log = logging.getLogger(__name__)
_RESULT = "piece int, result string, tables array<string>, partials array<binary>, error string"
_ARROW = pa.schema(
    [
        pa.field("piece", pa.int32()),
        pa.field("result", pa.string()),
        pa.field("tables", pa.list_(pa.string())),
        pa.field("partials", pa.list_(pa.binary())),
        pa.field("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What every task of a stage gets in its closure: all that it needs, secrets too, so it is never written anywhere."""

    root: str
    plan: Plan
    attempt: str
    transform: Transform
    pieces: tuple[Piece, ...]
    kafka: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Order({self.plan.key}, {self.attempt}, {len(self.pieces)} pieces)"

    def work(self, store: Store) -> Work:
        """The order as the engine takes it."""
        pipeline = pipeline_of(self.plan)
        return Work(
            plan=self.plan,
            pipeline=pipeline,
            attempt=self.attempt,
            transform=JobTransform(self.transform, pipeline),
            store=store,
            world=real_world(),
        )


def pipeline_of(plan: Plan) -> Pipeline:
    """The pipeline as the plan froze it."""
    return pipeline_from_spec(plan.spec, where=f"{plan.key} spec")


def stage_pieces(session: SparkSession, order: Order) -> list[TaskResult]:
    """Run one task per piece and return their results; raises the most decisive error that a task answered with.

    Safe to repeat: tasks write under the attempt's prefix only, each upload under a key of its own.
    """
    count = len(order.pieces)
    frame = session.range(0, count, 1, count).mapInArrow(
        _task_of(order, failures_max(session)), _RESULT
    )
    try:
        rows = frame.collect()
    except (
        Exception
    ) as error:  # py4j and Spark raise classes of many kinds; `_explained` sorts them
        raise _explained(session, error) from error
    return results_of(rows)


def results_of(rows: Sequence[Mapping[str, Any] | Row]) -> list[TaskResult]:
    """Read what the tasks answered.

    Raises the most decisive of their errors, and InvalidPipeline where their partial rows are too many for the driver.
    """
    errors = [error_from(json.loads(row["error"])) for row in rows if row["error"] is not None]
    if errors:
        decisive = most_decisive(errors)
        for error in errors:
            if error is not decisive:
                log.error("another piece failed too: %s", error)
        raise decisive
    require_room(sum(map(len, row["partials"])) for row in rows)
    return [
        parse_result(
            row["result"],
            dict(zip(row["tables"], map(bytes, row["partials"]), strict=True)),
            where=f"result of piece {row['piece']}",
        )
        for row in rows
    ]


def _task_of(
    order: Order, tries_max: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield _answer(order, order.pieces[index], tries_max)

    return task


def _answer(order: Order, piece: Piece, tries_max: int) -> pa.RecordBatch:
    """Run one piece. An error that no retry mends comes back as a row: Spark's wrapping would lose its kind."""
    row: dict[str, Any] = {
        "piece": piece.index,
        "result": None,
        "tables": [],
        "partials": [],
        "error": None,
    }
    try:
        result = _run(order, piece)
        row["result"] = result.to_json()
        row["tables"], row["partials"] = list(result.partials), list(result.partials.values())
    except TallystickError as error:
        context = TaskContext.get()
        last = context is None or context.attemptNumber() + 1 >= tries_max
        if isinstance(error, RetryLater) and not last:
            raise
        row["error"] = json.dumps(error_json(error))
    return pa.RecordBatch.from_pylist([row], schema=_ARROW)


def _run(order: Order, piece: Piece) -> TaskResult:
    # An executor's own environment or mounted secret comes first; else what the driver resolved.
    name = order.plan.spec["kafka"]
    settings = kafka_settings(name, environ=os.environ, otherwise=order.kafka)
    topic = next(t for t in order.plan.topics if t.name == piece.topic)
    return run_piece(
        order.work(open_store(order.root)), piece, KafkaReading(settings, topic, piece)
    )


def _explained(session: SparkSession, error: Exception) -> Exception:
    """Turn the failures that have one known cure into an error that names it; others stay what they are."""
    text = str(error)
    if "spark.driver.maxResultSize" in text:
        return too_much_for_driver("the tasks' results are larger than spark.driver.maxResultSize")
    if "ModuleNotFoundError" not in text:
        return error
    line = next(
        (part.strip() for part in text.splitlines() if "ModuleNotFoundError" in part),
        "ModuleNotFoundError",
    )
    python = session.sparkContext.pythonExec
    return SettingsError(
        f"Spark's Python workers run {python!r}, and there: {line[:200]}.",
        next_step="set PYSPARK_PYTHON to an interpreter that has tallystick[spark], or ship one with --archives.",
    )
