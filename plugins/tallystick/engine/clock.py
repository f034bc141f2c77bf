"""The log's clock: for each record, the largest timestamp of its partition up to that record.

The ledger's boundaries split the log by this clock. Every data record advances it, including dead letters and records of
aborted transactions, which no job gets. So the clock is computed while the log is read, when all of these are available.
A boundary advances it too: if a partition was idle, the boundary is at the end that the partition had at that time, and
records that were sent late come after it.
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
    """The boundary at which a part of the log begins: its instant, and its offsets by Kafka's topic name."""

    start: datetime
    offsets: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """A span of the log that is read as one: its interval, and the ledger's boundaries inside it, in order."""

    interval: Interval
    inside: tuple[LogPart, ...] = ()

    def cuts(self, topic: str, partition: int) -> tuple[tuple[int, int], ...]:
        """Return one partition's (offset, milliseconds) at each boundary inside; skip boundaries that do not have it."""
        return tuple(
            (part.offsets[topic][partition], ms(part.start))
            for part in self.inside
            if partition < len(part.offsets.get(topic, ()))
        )


class SplitClock:
    """The clock of one input split of a log span; batches come in order.

    `cuts`: the boundaries inside the span. `aborted`: offset and milliseconds of the aborted records that the reader
    passed; it grows while batches are read. If a timestamp is at or after the next boundary (for example microseconds
    sent as milliseconds), it did not count when the log was split, so it does not advance the clock.
    """

    def __init__(
        self,
        interval: Interval,
        cuts: Sequence[tuple[int, int]],
        aborted: Sequence[tuple[int, int]],
    ) -> None:
        self.now_ms = ms(interval.start)
        self._places = np.array([offset for offset, _ in cuts], np.int64)
        # For each part between two boundaries: the clock at its start, and the instant of its end.
        edges = [self.now_ms, *(at for _, at in cuts), ms(interval.end)]
        self._floors, self._ends = np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)
        self._aborted, self._passed = aborted, 0

    def column(self, batch: pa.RecordBatch, positions: np.ndarray) -> pa.Array:
        """Return the log time of the records of a batch at `positions`, computed from this split alone."""
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
        """Return the clock at the split's end, after all batches are read: the partition's next split begins with it."""
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
    """Return an instant as Kafka's milliseconds since 1970."""
    return round(at.timestamp() * 1000)
