"""Tumbling and hopping windows by event time: closed when the log's clock has passed their end by the allowed lateness.

A record is late for a window that is already closed: its log time is the window's end plus the lateness, or later. It is
not dropped: late rows are corrections of closed windows, which the job keeps as separate rows. A record is outside if its
event time is missing, or further ahead of the log than allowed: when its window closes, the lookback could not find the
record, so the job gets it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.clock import LOG_TIME
from tallystick.errors import InvalidPipeline
from tallystick.stateful.aggregates import Aggregates, merged, partial
from tallystick.stateful.columns import EPOCH, TIME, int64s, require_keys

WINDOW_START = "window_start"
WINDOW_END = "window_end"
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The definition of windows of length `size`; one begins every `slide` since 1970 (None: every `size`).

    `lateness`: how long after a window's end its records may come. `ahead`: how far an event may be ahead of the log.
    """

    size: timedelta
    slide: timedelta | None = None
    lateness: timedelta = timedelta(0)
    ahead: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.size < _US or self.every < _US or self.size % self.every:
            raise InvalidPipeline(
                f"windows: expected a size that is a multiple of the slide, found size {self.size} and slide "
                f"{self.every}.",
                hint="use a size that is a multiple of the slide.",
            )
        if min(self.lateness, self.ahead) < timedelta(0):
            raise InvalidPipeline(
                f"windows: expected no negative duration, found lateness={self.lateness} and ahead={self.ahead}.",
                hint="use durations of zero or more.",
            )

    @property
    def every(self) -> timedelta:
        """The time from one window's start to the next one's."""
        return self.slide or self.size

    @property
    def back(self) -> timedelta:
        """The minimum lookback of a job with such windows."""
        return self.size + self.lateness + self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Partials:
    """The result of an interval's records: `on_time` partial rows, `late` rows for closed windows, records `outside`."""

    on_time: pa.Table
    late: pa.Table
    outside: pa.Table


def inside(records: pa.Table, time: str, ahead: timedelta) -> tuple[pa.Table, pa.Table]:
    """Split records with `_log_time` into those that have an event time which is not too far ahead, and the others."""
    early = pc.subtract(records[time].cast(TIME), records[LOG_TIME])
    fits = pc.fill_null(
        pc.less_equal(early.cast(pa.int64()), pa.scalar(ahead // _US, pa.int64())), False
    )
    return records.filter(fits), records.filter(pc.invert(fits))


def window_partials(
    records: pa.Table, windows: Windows, key: Sequence[str], time: str, aggregates: Aggregates
) -> Partials:
    """Return the partial rows of an interval: per window and key, `window_start`, the key and the aggregates.

    `records`: all records of the interval, with `_log_time`; `time` names the event time. Raises InvalidPipeline if a key
    is null.
    """
    require_keys(records, key)
    fit, outside = inside(records, time, windows.ahead)
    size, every = windows.size // _US, windows.every // _US
    events, log_times = int64s(fit[time].cast(TIME)), int64s(fit[LOG_TIME])
    newest = events - events % every
    copies = size // every
    rows = np.tile(np.arange(fit.num_rows), copies)
    starts = np.concatenate([newest - i * every for i in range(copies)])
    spread = fit.take(pa.array(rows)).append_column(
        pa.field(WINDOW_START, TIME), pa.array(starts).cast(TIME)
    )
    late = starts + size + windows.lateness // _US <= log_times[rows]
    by = [WINDOW_START, *key]
    return Partials(
        on_time=partial(spread.filter(pa.array(~late)), by, aggregates),
        late=partial(spread.filter(pa.array(late)), by, aggregates),
        outside=outside,
    )


def closed_windows(
    partials: pa.Table,
    windows: Windows,
    key: Sequence[str],
    aggregates: Aggregates,
    *,
    start: datetime,
    end: datetime,
) -> pa.Table:
    """Return the windows that the interval [start, end) closes, from its own on-time rows and the earlier ones.

    The earlier rows are those of [start - back, start). The interval closes a window if the window's end plus the
    lateness is after `start`, and not after `end`.
    """
    size = windows.size // _US
    due = int64s(partials[WINDOW_START].cast(TIME)) + size + windows.lateness // _US
    now = ((start - EPOCH) // _US < due) & (due <= (end - EPOCH) // _US)
    found = merged(partials.filter(pa.array(now)), [WINDOW_START, *key], aggregates)
    ends = int64s(found[WINDOW_START].cast(TIME)) + size
    return found.add_column(1, pa.field(WINDOW_END, TIME), pa.array(ends).cast(TIME))
