"""State as a function of the log: the state of a job over many intervals, made of the partial rows of each interval.

    duplicates   keep the first record of a key within a horizon
    windows      tumbling and hopping windows, by event time, with allowed lateness
    sessions     sessions that end with a gap, by event time, with allowed lateness
    running      values from the beginning of the log up to an interval's end

Each has two pure functions: one computes the partial rows of an interval from its records, the other computes the
results from these rows and the earlier ones. Both use only Arrow tables; `tallystick.spark.state` runs them key by key
on Spark. The results depend only on the log, not on the order in which intervals ran or on how time was divided into
intervals.
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
