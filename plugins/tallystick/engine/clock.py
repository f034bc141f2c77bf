"""The log's clock: for each record the largest timestamp of its partition up to it, as the ledger cut the log.

Intervals are cut by that clock, and every data record moves it: dead letters too, and those of aborted transactions,
which no job gets. So it is kept where all of them are seen. A boundary moves it as
well: where a partition was quiet, the boundary stands at its end of then, and what was sent late comes behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from tallystick.format.interval import Interval

LOG_TIME = "_log_time"
LOG_TIME_TYPE = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Where a part of the log begins that was cut by time: its instant, and by Kafka's topic names an offset each."""

    start: datetime
    offsets: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """A stretch of the log that is read as one: its time, and the ledger's boundaries inside it, in order."""

    interval: Interval
    inside: tuple[LogPart, ...] = ()

    def cuts(self, topic: str, partition: int) -> tuple[tuple[int, int], ...]:
        """Offset and milliseconds of each boundary inside, for one partition; one that it does not know is left out."""
        return tuple(
            (part.offsets[topic][partition], ms(part.start))
            for part in self.inside
            if partition < len(part.offsets.get(topic, ()))
        )


class SplitClock:
    """The clock of one piece of a stretch of one partition; batches come in order.

    `cuts` are the boundaries inside the stretch. `aborted` is what the reader has seen of aborted transactions: offset
    and milliseconds; it grows while batches are read. A timestamp at or after the next boundary cut nothing
    (microseconds for milliseconds): it moves no clock.
    """

    def __init__(
        self,
        interval: Interval,
        cuts: Sequence[tuple[int, int]],
        aborted: Sequence[tuple[int, int]],
    ) -> None:
        self.now_ms = ms(interval.start)
        self._places = np.array([offset for offset, _ in cuts], np.int64)
        # From the boundary before an offset up to the one behind it.
        edges = [self.now_ms, *(at for _, at in cuts), ms(interval.end)]
        self._floors, self._ends = np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)
        self._aborted, self._passed = aborted, 0

    def column(self, batch: pa.RecordBatch, positions: np.ndarray) -> pa.Array:
        """The clock at the records of a batch that stand at `positions`, as far as this piece knows."""
        offsets = np.asarray(batch.column("offset").cast(pa.int64()), np.int64)
        times = np.asarray(batch.column("timestamp").cast(pa.int64()), np.int64)
        since = self._aborted_up_to(int(offsets[-1]))
        rows = np.arange(len(offsets))
        if since:
            places, moments = np.array(since, np.int64).T
            order = np.argsort(np.concatenate([offsets, places]), kind="stable")
            times = np.concatenate([times, moments])[order]
            rows = np.argsort(order, kind="stable")[: len(offsets)]
            offsets = np.concatenate([offsets, places])[order]
        reached = self._reached(offsets, times)
        return pa.array(reached[rows][positions] * 1_000).cast(LOG_TIME_TYPE)

    def end_ms(self) -> int:
        """The clock at the piece's end, once all batches were taken: where the next piece of the partition begins."""
        left = self._aborted_up_to(None)
        if left:
            places, moments = np.array(left, np.int64).T
            self._reached(places, moments)
        return self.now_ms

    def _aborted_up_to(self, last: int | None) -> list[tuple[int, int]]:
        found = [one for one in self._aborted[self._passed :] if last is None or one[0] <= last]
        self._passed += len(found)
        return found

    def _reached(self, offsets: np.ndarray, times: np.ndarray) -> np.ndarray:
        part = np.searchsorted(self._places, offsets, side="right")
        floors = self._floors[part]
        counted = np.maximum(np.where(times < self._ends[part], times, floors), floors)
        counted[0] = max(int(counted[0]), self.now_ms)
        reached = np.maximum.accumulate(counted)
        self.now_ms = int(reached[-1])
        return reached


def ms(at: datetime) -> int:
    """An instant as Kafka has it."""
    return round(at.timestamp() * 1000)
