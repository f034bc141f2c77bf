"""State as a function of the log: what a job keeps over intervals, made of partial rows that each interval makes alone.

    duplicates   the first record of a key within a horizon stays
    windows      tumbling and hopping, by event time, with allowed lateness
    sessions     by a gap, by event time, with allowed lateness
    running      values from the beginning of the log up to an interval's end

Each has a pure function that makes an interval's partial rows of its records, and one that makes the results of those
rows and of the earlier ones. Both work on Arrow tables and on nothing else; `tallystick.spark.state` runs them key by key
on Spark. What decides is the log alone, never the order in which intervals ran, nor how the time was cut.
"""

from __future__ import annotations

from tallystick.engine.clock import LOG_TIME
from tallystick.stateful.aggregates import Aggregate, merged
from tallystick.stateful.duplicates import first_of, last_seen
from tallystick.stateful.sessions import Sessions, closed_sessions, session_partials
from tallystick.stateful.windows import Partials, Windows, closed_windows, window_partials

__all__ = [
    "LOG_TIME",
    "Aggregate",
    "Partials",
    "Sessions",
    "Windows",
    "closed_sessions",
    "closed_windows",
    "first_of",
    "last_seen",
    "merged",
    "session_partials",
    "window_partials",
]
