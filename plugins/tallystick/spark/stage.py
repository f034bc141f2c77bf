"""Runs the Spark stage of an Arrow job: one action, no shuffle. A task returns one small row per input split.

If Spark runs a task twice (a retry, speculation, a lost executor), one of the runs leaves files that no report names.
Only the rows of the action become the report, and Spark returns the rows of one run per task.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

from tallystick import errors as kinds
from tallystick.engine.combine import require_room, too_much_for_driver
from tallystick.engine.input_splits import InputSplit
from tallystick.engine.task import Reading, TaskResult, Work, run_splits
from tallystick.engine.transform import Transform
from tallystick.errors import RetryLater, SettingsError, TallystickError, error_of_kind
from tallystick.runtime.loading import first_work
from tallystick.spark.order import Order
from tallystick.spark.outcome import error_from, error_json, most_decisive, scratch_full
from tallystick.spark.progress import progress_logged
from tallystick.spark.room import FilesOfTasks, add_files
from tallystick.spark.session import failures_max
from tallystick.store.open import open_store

log = logging.getLogger(__name__)
T = TypeVar("T")
# Tasks return their errors as rows. An error of a data source arrives only as a line of Spark's text.
_OURS = re.compile(r"tallystick\.errors\.([A-Z]\w+): (.*?) Next: ([^\n]*)", re.DOTALL)
_RESULT = "split int, result string, tables array<string>, partials array<binary>, error string"
_ARROW = pa.schema(
    [
        pa.field("split", pa.int32()),
        pa.field("result", pa.string()),
        pa.field("tables", pa.list_(pa.string())),
        pa.field("partials", pa.list_(pa.binary())),
        pa.field("error", pa.string()),
    ]
)


def stage_splits(session: SparkSession, order: Order, transform: Transform) -> list[TaskResult]:
    """Run the tasks of the input splits and return a result per split; raises the most decisive of their errors.

    Safe to repeat: tasks write under the attempt's prefix only, each upload under a key of its own.
    """
    count = len(order.groups)
    written = FilesOfTasks(session, order.target.plan)
    task = _task_of(order, transform, failures_max(session), written.adders)
    with written.watched():
        rows = collected(session, session.range(0, count, 1, count).mapInArrow(task, _RESULT))
    return results_of(rows)


def collected(session: SparkSession, frame: DataFrame) -> list[Row]:
    """Run the one action of a stage. Raises a tallystick error if Spark's text names one or has a known cause."""
    try:
        with progress_logged(session):
            return list(frame.collect())
    except (
        Exception
    ) as error:  # py4j and Spark raise classes of many kinds; `known_error` sorts them
        raise known_error(session, error) from error


def results_of(rows: Sequence[Mapping[str, Any] | Row]) -> list[TaskResult]:
    """Decode the rows that the tasks returned.

    Raises the most decisive of their errors, and InvalidPipeline if their partial rows are too large for the driver.
    """
    raise_decisive(rows)
    require_room(sum(map(len, row["partials"])) for row in rows)
    return [
        replace(
            TaskResult.from_text(row["result"], f"result of split {row['split']}"),
            partials=dict(zip(row["tables"], map(bytes, row["partials"]), strict=True)),
        )
        for row in rows
    ]


def raise_decisive(rows: Sequence[Mapping[str, Any] | Row]) -> None:
    """Raise the most decisive of the errors that tasks returned, if there is one."""
    errors = [error_from(json.loads(row["error"])) for row in rows if row["error"] is not None]
    if not errors:
        return
    decisive = most_decisive(errors)
    for error in errors:
        if error is not decisive:
            log.error("another task failed too: %s", error)
    raise decisive


def groups_of(
    groups: Sequence[Sequence[InputSplit]], batches: Iterator[pa.RecordBatch]
) -> Iterator[Sequence[InputSplit]]:
    """Yield the groups of input splits whose indexes are in the first column of a Spark task's batches."""
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield groups[index]


def run_or_error(run: Callable[[], T], tries_max: int) -> tuple[T | None, str | None]:
    """Run a task's work and return its result, or its error as JSON if a retry cannot fix it or this is the last try.

    If the error were raised, Spark would wrap it and its kind would be lost. Before the last try, RetryLater is raised.
    """
    failure: TallystickError | None
    try:
        return run(), None
    except TallystickError as error:
        failure = error
    except OSError as error:
        failure = scratch_full(error)
        if failure is None:
            raise
    context = TaskContext.get()
    last = context is None or context.attemptNumber() + 1 >= tries_max
    if isinstance(failure, RetryLater) and not last:
        raise failure
    return None, json.dumps(error_json(failure))


def _task_of(
    order: Order, transform: Transform, tries_max: int, adders: tuple[Any, Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    groups = order.groups

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The splits of a task share the declaration and the clients of S3 and Kafka.
        work_of = cache(lambda: order.work(open_store(order.target.lake_uri), transform))
        with order.readings() as reading_of:
            for splits in groups_of(groups, batches):
                yield _answer(work_of, reading_of, splits, tries_max, adders)

    return task


def _answer(
    work_of: Callable[[], Work],
    reading_of: Callable[[InputSplit], Reading],
    splits: Sequence[InputSplit],
    tries_max: int,
    adders: tuple[Any, Any],
) -> pa.RecordBatch:
    """Stage a group of splits, and return a row per split, or one with the error."""

    def run() -> list[TaskResult]:
        with first_work():
            return run_splits(work_of(), splits, reading_of)

    results, error = run_or_error(run, tries_max)
    rows: list[dict[str, Any]] = [
        {
            "split": one.split.index,
            "result": one.to_text(),
            "tables": list(one.partials),
            "partials": list(one.partials.values()),
            "error": None,
        }
        for one in results or ()
    ]
    for one in results or ():
        add_files(adders, one.files)
    failed = {"split": splits[0].index, "tables": [], "partials": [], "error": error}
    return pa.RecordBatch.from_pylist(rows or [failed], schema=_ARROW)


def known_error(session: SparkSession, error: Exception) -> Exception:
    """Return a tallystick error with a hint if the failure has a known cause, else the error unchanged."""
    text = str(error)
    if "spark.driver.maxResultSize" in text:
        return too_much_for_driver("the tasks' results are larger than spark.driver.maxResultSize")
    if (ours := _OURS.search(text)) is not None:
        kind = getattr(kinds, ours[1], TallystickError)
        return error_of_kind(kind.kind, ours[2], hint=ours[3])
    if (full := scratch_full(error)) is not None:
        return full
    if "ModuleNotFoundError" not in text:
        return error
    line = next(
        (part.strip() for part in text.splitlines() if "ModuleNotFoundError" in part),
        "ModuleNotFoundError",
    )
    python = session.sparkContext.pythonExec
    return SettingsError(
        f"Spark's Python workers run {python!r}, which raises {line[:200]}.",
        hint="set PYSPARK_PYTHON to an interpreter that has tallystick[spark], or ship one with --archives.",
    )
