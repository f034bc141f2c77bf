"""Mutants of what is planned and of what is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from oracle.mutants_of_commits import silenced
from tallystick.engine import attempt, input_splits, kafka_splits
from tallystick.engine import task as tasks
from tallystick.errors import OutsideRetention
from tallystick.format.offsets import OffsetRange
from tallystick.format.report import RangeAccount
from tallystick.kafka import reader
from tallystick.kafka.planning import LogPlanner
from tallystick.operations.plan import attempt as plan_attempt
from tallystick.protocol import boundaries, committing
from tallystick.protocol.ledger import Ledger

_FIRST_MS = 1_356_998_400_000  # 2013-01-01
_NEVER_MS = 2**52  # later than any record: the look-up answers with the end of the log


# ---------------------------------------------------------------- what is planned


@contextmanager
def empty_interval_skipped() -> Iterator[None]:
    """An interval without offsets is called committed, and no entry says so."""
    real = plan_attempt.PlanAttempt.grant

    def forget(self: Any, decision: Any, wanted: Any) -> Any:
        change = real(self, decision, wanted)
        for done in change.committed:
            change.ledger.drop(done.interval)
        return replace(change, committed=())

    with silenced(), patch.object(plan_attempt.PlanAttempt, "grant", forget):
        yield


@contextmanager
def ends_at_the_high_watermark() -> Iterator[None]:
    """A boundary is the end of the log as it is when it is asked for."""

    real = LogPlanner.boundary

    def now(self: Any, topic: str, at_ms: int, floors: Any, *, latest_ms: Any = None) -> Any:
        return real(self, topic, at_ms if at_ms <= _FIRST_MS else _NEVER_MS, floors)

    with patch.object(LogPlanner, "boundary", now):
        yield


@contextmanager
def ends_at_the_floor() -> Iterator[None]:
    """A boundary is the one before it: each record waits for the last interval."""
    real = LogPlanner.boundary

    def low(self: Any, topic: str, at_ms: int, floors: Any, *, latest_ms: Any = None) -> Any:
        last = at_ms >= _FIRST_MS + 5 * 86_400_000
        return real(self, topic, at_ms if last else 0, floors, latest_ms=latest_ms)

    with patch.object(LogPlanner, "boundary", low):
        yield


@contextmanager
def boundaries_move() -> Iterator[None]:
    """Each plan asks for its boundaries anew, and takes what it is told now."""

    def every(_: Any, grants: Any) -> tuple[Any, ...]:
        return tuple(sorted({at for g in grants for at in (g.interval.start, g.interval.end)}))

    def overwrite(self: Any, boundary: Any) -> None:
        self._boundaries[boundary.at] = boundary
        self._touched.add(boundary.at)

    with (
        silenced(),
        patch.object(boundaries, "missing_boundaries", every),
        patch.object(Ledger, "set_boundary", overwrite),
    ):
        yield


@contextmanager
def topic_id_unchecked() -> Iterator[None]:
    """A topic is known by its name."""
    with (
        silenced(),
        patch.object(plan_attempt.PlanAttempt, "_same_incarnation", lambda *_: None),
        patch.object(plan_attempt.PlanAttempt, "_refuse_diverged", lambda *_: None),
        patch.object(committing, "differs_from_root", lambda *_: None),
    ):
        yield


@contextmanager
def loss_accepted_silently() -> Iterator[None]:
    """What retention took is passed over although nobody accepted that."""
    real = plan_attempt.PlanAttempt._planned_range

    def passed_over(
        self: Any, name: str, partition: int, start: Any, end: Any, log_start: int
    ) -> Any:
        lenient = replace(
            self.plan_request, params=replace(self.plan_request.params, accept_loss=True)
        )
        with patch.object(self, "plan_request", lenient):
            return real(self, name, partition, start, end, log_start)

    with patch.object(plan_attempt.PlanAttempt, "_planned_range", passed_over):
        yield


# ---------------------------------------------------------------- what is read


@contextmanager
def read_uncommitted() -> Iterator[None]:
    """Records of aborted transactions are records, and the markers that say so are not looked at."""
    with (
        patch.object(reader.AbortedProducers, "aborts", lambda *_: False),
        patch.object(reader.MarkerCheck, "data", lambda *_, **__: None),
    ):
        yield


@contextmanager
def end_asked_for_again() -> Iterator[None]:
    """The stage task reads up to where the log ends by then (a rerun that plans for itself)."""
    real = input_splits.split_plan

    def further(plan: Any, *, records_per_task: int) -> Any:
        found = []
        for piece in real(plan, records_per_task=records_per_task):
            more = (
                0 if piece.span.start else 3
            )  # by the second interval nothing has come in behind it
            span = OffsetRange(start=piece.span.start, end=piece.span.end + more)
            found.append(replace(piece, span=span))
        return tuple(found)

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
        silenced(),
        patch.object(input_splits, "split_plan", further),
        patch.object(attempt, "_account", as_planned),
    ):
        yield


@contextmanager
def loss_skipped_by_the_reader() -> Iterator[None]:
    """failOnDataLoss=false: what is gone by the time of the read counts as compacted away."""
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
            found = super().account
            span = self._split.span
            return replace(found, span=span, absent=found.absent + self.gone)

    with silenced(), patch.object(kafka_splits, "KafkaReading", Lenient):
        yield


def _rows(change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> AbstractContextManager[Any]:
    """Change the batches between the reader and the decoder, and let the account say what the reader said."""
    real_batches, real_account = tasks.coalesce, tasks._account

    def changed(batches: Any) -> Iterator[pa.RecordBatch]:
        return (change(batch) for batch in real_batches(batches))

    def as_read(piece: Any, read: Any, records: int, dead: int) -> Any:
        return real_account(piece, read, read.records - dead, dead)

    stack = ExitStack()
    stack.enter_context(patch.object(tasks, "coalesce", changed))
    stack.enter_context(patch.object(tasks, "_account", as_read))
    return stack


def tail_cut() -> AbstractContextManager[Any]:
    """The last record of each piece is not handed on (off by one at its end)."""
    return _rows(lambda batch: batch.slice(0, batch.num_rows - 1))


def deduplicated_by_content() -> AbstractContextManager[Any]:
    """A value that was seen before counts as a duplicate."""

    def first_ones(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen: dict[bytes | None, int] = {}
        for number, value in enumerate(batch.column("value").to_pylist()):
            seen.setdefault(value, number)
        return batch.take(pa.array(sorted(seen.values())))

    return _rows(first_ones)


def values_shifted() -> AbstractContextManager[Any]:
    """Values move down by one record: every offset is there once, with its neighbour's content."""

    def shifted(batch: pa.RecordBatch) -> pa.RecordBatch:
        order = pa.array([(n + 1) % batch.num_rows for n in range(batch.num_rows)])
        at = batch.schema.get_field_index("value")
        return batch.set_column(at, "value", batch.column("value").take(order))

    return _rows(shifted)
