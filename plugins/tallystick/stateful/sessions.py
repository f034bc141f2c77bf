"""Sessions by event time: events of one key with less than a gap between them, closed when the log has passed them.

A session is closed when the log's clock has passed its last event by the gap plus the allowed lateness. A record is late
if its event time is more than the lateness before its log time. Only a late record could belong to a closed session, and
the job gets it back. A session ends at a multiple of `longest` since 1970 at the latest, as sessions of web analytics end
at midnight. Without this limit, a session could reach back without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from tallystick.engine.clock import LOG_TIME
from tallystick.errors import InvalidPipeline
from tallystick.stateful.aggregates import Aggregates, merged, partial
from tallystick.stateful.columns import EPOCH, TIME, int64s, keyed, require_keys, running_max
from tallystick.stateful.windows import Partials, inside

SESSION_START = "session_start"
SESSION_END = "session_end"
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The definition of sessions: events with less than `gap` between them; none crosses a multiple of `longest`.

    `lateness`: how long after its time an event may come. `ahead`: how far an event may be ahead of the log.
    """

    gap: timedelta
    longest: timedelta = timedelta(days=1)
    lateness: timedelta = timedelta(0)
    ahead: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if (
            self.gap < _US
            or self.longest < self.gap
            or min(self.lateness, self.ahead) < timedelta(0)
        ):
            raise InvalidPipeline(
                f"sessions: gap={self.gap}, longest={self.longest}, lateness={self.lateness}, ahead={self.ahead} are "
                "out of range.",
                hint="use a gap above zero, a longest session of at least the gap, and no negative duration.",
            )

    @property
    def back(self) -> timedelta:
        """The minimum lookback of a job with such sessions."""
        return self.longest + self.gap + self.lateness + self.ahead


def session_partials(
    records: pa.Table, sessions: Sessions, key: Sequence[str], time: str, aggregates: Aggregates
) -> Partials:
    """Return the partial rows of an interval: per key and run of events `session_start`, `session_end`, the aggregates.

    `records`: all records of the interval, with `_log_time`; `time` names the event time. The result has records, not
    partial rows, in `late` and `outside`. Raises InvalidPipeline if a key is null.
    """
    require_keys(records, key)
    fit, outside = inside(records, time, sessions.ahead)
    events = int64s(fit[time].cast(TIME))
    late = pa.array(events + sessions.lateness // _US < int64s(fit[LOG_TIME]))
    on_time = fit.filter(pa.array(~np.asarray(late)))
    at = on_time[time].cast(TIME)
    runs = on_time.append_column(SESSION_START, at).append_column(SESSION_END, at)
    marked = _marked(on_time, *_joined(runs, sessions, key))
    return Partials(
        on_time=partial(marked, [*key, SESSION_START, SESSION_END], aggregates),
        late=fit.filter(late),
        outside=outside,
    )


def closed_sessions(
    partials: pa.Table,
    sessions: Sessions,
    key: Sequence[str],
    aggregates: Aggregates,
    *,
    start: datetime,
    end: datetime,
) -> pa.Table:
    """Return the sessions that the interval [start, end) closes, from its own partial rows and the earlier ones.

    The earlier rows are those of [start - back, start). The interval closes a session if the session's end plus the gap
    plus the lateness is after `start`, and not after `end`.
    """
    starts, ends = _joined(partials, sessions, key)
    due = ends + (sessions.gap + sessions.lateness) // _US
    now = ((start - EPOCH) // _US < due) & (due <= (end - EPOCH) // _US)
    rows = partials.select([*key, *aggregates])
    marked = _marked(rows, starts, ends).filter(pa.array(now))
    return merged(marked, [*key, SESSION_START, SESSION_END], aggregates)


def _marked(rows: pa.Table, starts: np.ndarray, ends: np.ndarray) -> pa.Table:
    """Return the rows, each with the start and the end of its session."""
    return rows.append_column(
        pa.field(SESSION_START, TIME), pa.array(starts).cast(TIME)
    ).append_column(pa.field(SESSION_END, TIME), pa.array(ends).cast(TIME))


def _joined(
    runs: pa.Table, sessions: Sessions, key: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the end of the session of each run of events."""
    count = runs.num_rows
    if not count:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    starts = int64s(runs[SESSION_START].cast(TIME))
    ends = int64s(runs[SESSION_END].cast(TIME))
    cells = starts // (sessions.longest // _US)
    # One number per key and span of `longest`, so that no session crosses the edge of a span.
    groups = np.unique(np.stack([keyed(runs, key), cells]), axis=1, return_inverse=True)[1].reshape(
        -1
    )
    order = np.lexsort((ends, starts, groups))
    mine, first, last = groups[order], starts[order], ends[order]
    reached = running_max(mine, last)
    begins = np.ones(count, bool)
    begins[1:] = (mine[1:] != mine[:-1]) | (first[1:] - reached[:-1] >= sessions.gap // _US)
    number = np.cumsum(begins) - 1
    edges = np.flatnonzero(begins)
    session_starts = np.minimum.reduceat(first, edges)
    session_ends = np.maximum.reduceat(last, edges)
    numbers = np.empty(count, np.int64)
    numbers[order] = number
    return session_starts[numbers], session_ends[numbers]
