"""Mutants of planning and of reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from oracle.mutants_of_commits import without_own_checks
from tallystick.engine import attempt, input_splits, kafka_splits
from tallystick.engine import task as tasks
from tallystick.errors import OutsideRetention
from tallystick.format.offsets import OffsetRange
from tallystick.format.report import RangeAccount
from tallystick.kafka import reader
from tallystick.kafka.planning import LogPlanner
from tallystick.operations.plan import attempt as plan_attempt
from tallystick.protocol import boundaries, committing, evolution
from tallystick.protocol.ledger import Ledger

_FIRST_MS = 1_356_998_400_000  # 2013-01-01
_NEVER_MS = 2**52  # later than any record: the look-up returns the end of the log


# ---------------------------------------------------------------- planning


@contextmanager
def empty_interval_skipped() -> Iterator[None]:
    """Report an interval without offsets as committed, without an entry."""
    real = plan_attempt.PlanAttempt.grant

    def forget(self: Any, decision: Any, wanted: Any) -> Any:
        change = real(self, decision, wanted)
        for done in change.committed:
            change.ledger.drop(done.interval)
        return replace(change, committed=())

    with without_own_checks(), patch.object(plan_attempt.PlanAttempt, "grant", forget):
        yield


@contextmanager
def renamed_column_is_new() -> Iterator[None]:
    """Give a renamed column a new id, and leave the old column as it is."""
    real = evolution.evolve

    def unnamed(known: Any, declared: Any) -> Any:
        columns = tuple(replace(c, renamed_from=None) for c in declared.columns)
        return real(known, replace(declared, columns=columns))

    with patch.object(evolution, "evolve", unnamed):
        yield


@contextmanager
def ends_at_the_high_watermark() -> Iterator[None]:
    """Use the current end of the log as the boundary."""

    real = LogPlanner.boundary

    def now(self: Any, topic: str, at_ms: int, floors: Any, *, latest_ms: Any = None) -> Any:
        return real(self, topic, at_ms if at_ms <= _FIRST_MS else _NEVER_MS, floors)

    with patch.object(LogPlanner, "boundary", now):
        yield


@contextmanager
def ends_at_the_floor() -> Iterator[None]:
    """Use the previous boundary again: each record waits for the last interval."""
    real = LogPlanner.boundary

    def low(self: Any, topic: str, at_ms: int, floors: Any, *, latest_ms: Any = None) -> Any:
        last = at_ms >= _FIRST_MS + 5 * 86_400_000
        return real(self, topic, at_ms if last else 0, floors, latest_ms=latest_ms)

    with patch.object(LogPlanner, "boundary", low):
        yield


@contextmanager
def boundaries_move() -> Iterator[None]:
    """Look up the boundaries again for each plan, and overwrite the stored ones."""

    def every(_: Any, grants: Any) -> tuple[Any, ...]:
        return tuple(sorted({at for g in grants for at in (g.interval.start, g.interval.end)}))

    def overwrite(self: Any, boundary: Any) -> None:
        self._boundaries[boundary.at] = boundary
        self._touched.add(boundary.at)

    with (
        without_own_checks(),
        patch.object(boundaries, "missing_boundaries", every),
        patch.object(Ledger, "set_boundary", overwrite),
    ):
        yield


@contextmanager
def topic_id_unchecked() -> Iterator[None]:
    """Identify a topic by its name only."""
    with (
        without_own_checks(),
        patch.object(plan_attempt.PlanAttempt, "_same_incarnation", lambda *_: None),
        patch.object(plan_attempt.PlanAttempt, "_refuse_diverged", lambda *_: None),
        patch.object(committing, "differs_from_root", lambda *_: None),
    ):
        yield


@contextmanager
def loss_accepted_silently() -> Iterator[None]:
    """Skip what retention deleted although the run does not accept a loss."""
    real = plan_attempt.PlanAttempt._planned_range

    def accepted(self: Any, name: str, partition: int, start: Any, end: Any, log_start: int) -> Any:
        lenient = replace(
            self.plan_request, params=replace(self.plan_request.params, accept_loss=True)
        )
        with patch.object(self, "plan_request", lenient):
            return real(self, name, partition, start, end, log_start)

    with patch.object(plan_attempt.PlanAttempt, "_planned_range", accepted):
        yield


# ---------------------------------------------------------------- reading


@contextmanager
def read_uncommitted() -> Iterator[None]:
    """Read records of aborted transactions as records, without checking the markers."""
    with (
        patch.object(reader.AbortedProducers, "aborts", lambda *_: False),
        patch.object(reader.MarkerCheck, "data", lambda *_, **__: None),
    ):
        yield


@contextmanager
def end_read_again() -> Iterator[None]:
    """Read in the stage task up to the current end of the log (a rerun that plans for itself)."""
    real = input_splits.split_plan

    def further(plan: Any, *, records_per_task: int) -> Any:
        splits = []
        for split in real(plan, records_per_task=records_per_task):
            # After the second interval no record has arrived.
            more = 0 if split.span.start else 3
            span = OffsetRange(start=split.span.start, end=split.span.end + more)
            splits.append(replace(split, span=span))
        return tuple(splits)

    def as_planned(topic: str, partition: int, planned: Any, parts: Any) -> Any:
        extra = sum(p.end - p.start for p in parts) - planned.readable.length
        counts = {
            n: sum(getattr(p, n) for p in parts) for n in ("dead_letters", "aborted", "control")
        }
        records = sum(p.records for p in parts) - extra
        return RangeAccount(
            topic=topic,
            partition=partition,
            start=planned.start,
            end=planned.end,
            lost=planned.lost,
            records=records,
            **counts,
        )

    with (
        without_own_checks(),
        patch.object(input_splits, "split_plan", further),
        patch.object(attempt, "_account", as_planned),
    ):
        yield


@contextmanager
def loss_skipped_by_the_reader() -> Iterator[None]:
    """Count offsets that are gone at the time of the read as compacted away (failOnDataLoss=false)."""
    real = kafka_splits.KafkaReading

    class Lenient(real):  # type: ignore[misc, valid-type]
        gone = 0

        def batches(self) -> Iterator[pa.RecordBatch]:
            try:
                yield from super().batches()
            except OutsideRetention as error:
                begins = int(re.findall(r"the log begins at (\d+)", str(error))[0])
                self.gone = begins - self._split.span.start
                span = OffsetRange(start=begins, end=self._split.span.end)
                yield from self._reader.read(self._split.partition, span)

        @property
        def account(self) -> Any:
            account = super().account
            span = self._split.span
            return replace(account, span=span, absent=account.absent + self.gone)

    with without_own_checks(), patch.object(kafka_splits, "KafkaReading", Lenient):
        yield


def _rows(change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> AbstractContextManager[Any]:
    """Change the batches between the reader and the decoder, and take the account from the reader."""
    real_batches, real_account = tasks.coalesce, tasks._account

    def changed(batches: Any) -> Iterator[pa.RecordBatch]:
        return (change(batch) for batch in real_batches(batches))

    def as_read(split: Any, read: Any, records: int, dead: int) -> Any:
        return real_account(split, read, read.records - dead, dead)

    stack = ExitStack()
    stack.enter_context(patch.object(tasks, "coalesce", changed))
    stack.enter_context(patch.object(tasks, "_account", as_read))
    return stack


def last_record_dropped() -> AbstractContextManager[Any]:
    """Drop the last record of each input split (off by one)."""
    return _rows(lambda batch: batch.slice(0, batch.num_rows - 1))


def deduplicated_by_content() -> AbstractContextManager[Any]:
    """Drop a value that was read before as a duplicate."""

    def first_ones(batch: pa.RecordBatch) -> pa.RecordBatch:
        first_at: dict[bytes | None, int] = {}
        for number, value in enumerate(batch.column("value").to_pylist()):
            first_at.setdefault(value, number)
        return batch.take(pa.array(sorted(first_at.values())))

    return _rows(first_ones)


def values_shifted() -> AbstractContextManager[Any]:
    """Shift values by one record: every offset is present once, with its neighbour's content."""

    def shifted(batch: pa.RecordBatch) -> pa.RecordBatch:
        order = pa.array([(n + 1) % batch.num_rows for n in range(batch.num_rows)])
        at = batch.schema.get_field_index("value")
        return batch.set_column(at, "value", batch.column("value").take(order))

    return _rows(shifted)
