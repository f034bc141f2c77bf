"""Records the metrics of tasks with Airflow's own stats: StatsD or OpenTelemetry, as the section [metrics] configures.

The process of a task initializes the stats before it calls the operator (`airflow.sdk.execution_time.task_runner`). If
no backend is configured, all calls do nothing. Nothing here makes a task fail: errors are logged, the first of each class
as a warning. Requests are added up in the process, and their sums are sent once, at the end of the task.

docs/how-to/metrics.md has the settings, `tallystick.operations.metrics` the table of all metrics.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from tallystick.format import keys
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult
from tallystick.operations.publish import Published
from tallystick.pipeline import DEAD_LETTERS, Pipeline
from tallystick.store import Store
from tallystick.store.counted import CountedStore, RequestCounts

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
# The kinds of more dead letters than this would take time, and so would a store that does not answer.
KIND_FILES_MAX = 4
KIND_BYTES_MAX = 1 << 20
KIND_WAIT_S = 2.0
NOT_READ = "not_read"
_BACKENDS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_COUNTS: ContextVar[RequestCounts | None] = ContextVar("request_counts", default=None)
_FAILED: set[str] = set()


class OfPipeline(Protocol):
    """An operator of a pipeline."""

    pipeline: Pipeline


Op = TypeVar("Op", bound=OfPipeline)


def measured(
    task: str, *, is_timed: bool = True
) -> Callable[[Callable[Concatenate[Op, P], T]], Callable[Concatenate[Op, P], T]]:
    """Return a decorator of `execute`: it records the requests of each try, and how long a successful one took.

    `is_timed`: False if the method records its duration itself (`record_duration`), because the task has several.
    """

    def decorate(execute: Callable[Concatenate[Op, P], T]) -> Callable[Concatenate[Op, P], T]:
        @functools.wraps(execute)
        def wrapped(self: Op, /, *args: P.args, **kwargs: P.kwargs) -> T:
            started_s = time.monotonic()
            counts = RequestCounts(swap_key=keys.ROOT)
            before = _COUNTS.set(counts)
            pipeline = self.pipeline.name
            try:
                returned = execute(self, *args, **kwargs)
                if is_timed:
                    record_duration(task, pipeline, time.monotonic() - started_s)
                return returned
            finally:
                _COUNTS.reset(before)
                _send_requests(counts, pipeline=pipeline, task=task)

        return wrapped

    return decorate


def record_duration(task: str, pipeline: str, elapsed_s: float) -> None:
    """Record how long a successful try of a task took."""
    _timing(f"tallystick.{task}.duration", timedelta(seconds=elapsed_s), pipeline=pipeline)


def counted(store: Store) -> Store:
    """Return the store, counted for the task that runs in this context; outside of a task, return it as it is."""
    counts = _COUNTS.get()
    return store if counts is None else CountedStore(store, counts)


def record_commit(lake: Lake, pipeline: str, result: CommitResult, report: Report | None) -> None:
    """Count what a commit made visible. A commit that an earlier call had made is not counted again."""
    if result.already:
        return
    _incr("tallystick.commit.intervals", 1, pipeline=pipeline)
    _incr("tallystick.commit.records", result.totals.records, pipeline=pipeline)
    rows: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for file in () if report is None else report.files:
        rows[file.table] += file.rows
        sizes[file.table] += file.size_bytes
    for table in rows:
        _incr("tallystick.commit.rows", rows[table], pipeline=pipeline, table=table)
        _incr("tallystick.commit.bytes", sizes[table], pipeline=pipeline, table=table)
    if dead := result.totals.dead_letters:
        for kind, count in _kinds(lake.store, report, dead).items():
            _incr("tallystick.commit.dead_letters", count, pipeline=pipeline, kind=kind)


def record_published(pipeline: str, published: Published) -> None:
    """Count an interval that an output got, with its rows."""
    place = {"pipeline": pipeline, "output": published.output}
    _incr("tallystick.publish.intervals", 1, **place)
    _incr("tallystick.publish.rows", published.rows, **place)


# ---------------------------------------------------------------- dead letters by kind


def _kinds(store: Store, report: Report | None, dead: int) -> Mapping[str, int]:
    """Return the number of dead letters by kind, from the committed files; all as NOT_READ if that takes too long."""
    files = [f for f in report.files if f.table == DEAD_LETTERS] if report is not None else []
    size_bytes = sum(f.size_bytes for f in files)
    if len(files) <= KIND_FILES_MAX and size_bytes <= KIND_BYTES_MAX and _is_on():
        found = _within(KIND_WAIT_S, lambda: _read_kinds(store, [f.key for f in files]))
        if found is not None and sum(found.values()) == dead:
            return found
    return {NOT_READ: dead}


def _read_kinds(store: Store, file_keys: list[str]) -> Mapping[str, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: Counter[str] = Counter()
    for key in file_keys:
        stored = store.get(key)
        if stored is not None:
            column = pq.read_table(pa.BufferReader(stored.body), columns=["kind"]).column("kind")
            found.update(column.to_pylist())
    return found


def _within(limit_s: float, read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if it fails or takes longer: then its thread ends with the process."""
    found: list[T] = []

    def run() -> None:
        _guarded(lambda: found.append(read()))

    thread = threading.Thread(target=run, name="tallystick-metrics", daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else None


# ---------------------------------------------------------------- Airflow's stats


def _is_on() -> bool:
    """Return True if a backend is configured."""
    found: list[bool] = []

    def read() -> None:
        from airflow.sdk.configuration import conf

        found.append(any(conf.getboolean("metrics", name, fallback=False) for name in _BACKENDS))

    _guarded(read)
    return any(found)


def _send_requests(counts: RequestCounts, *, pipeline: str, task: str) -> None:
    place = {"pipeline": pipeline, "task": task}
    for (verb, outcome), count in sorted(counts.requests.items()):
        _incr("tallystick.store.requests", count, **place, verb=verb, outcome=outcome)
    _incr("tallystick.swap.retries", counts.swap_retries, **place)


def _incr(name: str, count: int, **tags: str) -> None:
    def send() -> None:
        from airflow.sdk.observability import stats

        stats.incr(name, count, tags=tags)

    if count:
        _guarded(send)


def _timing(name: str, took: timedelta, **tags: str) -> None:
    def send() -> None:
        from airflow.sdk.observability import stats

        stats.timing(name, took, tags=tags)

    _guarded(send)


def _guarded(call: Callable[[], object]) -> None:
    """Call a function and log its error: as a warning the first time, then at level DEBUG."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - a metric must never make a task fail
        kind = type(error).__name__
        level = logging.DEBUG if kind in _FAILED else logging.WARNING
        _FAILED.add(kind)
        log.log(level, "a metric could not be recorded: %s", kind)
