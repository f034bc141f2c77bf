"""The log's clock within a piece: for each record the largest timestamp up to it, as far as the piece goes.

Intervals are cut by that clock, and every data record moves it: dead letters too, and those of aborted transactions,
which no job gets (2-protocol: Boundaries, exactly). So it is kept where all of them are seen. `tallystick.state.log_time`
joins a partition's pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa

from tallystick.protocol.interval import Interval

CLOCK = "_clock"
CLOCK_TYPE = pa.timestamp("us", tz="UTC")


class PieceClock:
    """The clock of one piece of some interval's part of the log; batches come in order.

    `aborted` is what the reader has seen of aborted transactions: offset and milliseconds; it grows while batches are
    read. A timestamp at or after the interval's end cuts no interval (microseconds for milliseconds): it moves no clock.
    """

    def __init__(self, interval: Interval, aborted: Sequence[tuple[int, int]]) -> None:
        self._now, self._end = _ms(interval.start), _ms(interval.end)
        self._aborted, self._passed = aborted, 0

    def column(self, batch: pa.RecordBatch, positions: np.ndarray) -> pa.Array:
        """The clock at the records of a batch that stand at `positions`."""
        offsets = np.asarray(batch.column("offset").cast(pa.int64()), np.int64)
        times = np.asarray(batch.column("timestamp").cast(pa.int64()), np.int64)
        since = [one for one in self._aborted[self._passed :] if one[0] <= offsets[-1]]
        self._passed += len(since)
        rows = np.arange(len(offsets))
        if since:
            places, moments = np.array(since, np.int64).T
            order = np.argsort(np.concatenate([offsets, places]), kind="stable")
            times = np.concatenate([times, moments])[order]
            rows = np.argsort(order, kind="stable")[: len(offsets)]
        times = np.where(times < self._end, times, self._now)
        reached = np.maximum.accumulate(np.maximum(times, self._now))
        self._now = int(reached[-1])
        return pa.array(reached[rows][positions] * 1_000).cast(CLOCK_TYPE)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
