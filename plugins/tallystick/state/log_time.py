"""Log time: the clock of a log, which never goes back along a partition and never depends on who reads it when.

A record's log time is the largest timestamp of its partition up to it, of all data records: dead letters and those of
aborted transactions too. The log is cut into intervals by just that clock: the first record at or after an instant
begins the next interval. So every record's log time lies in its interval, and "all records within an hour before this
one" lie in the intervals that reach into that hour. (A record that claims to be of a later time than its interval's end
moves no clock.)
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from tallystick.engine.clock import CLOCK
from tallystick.state.columns import TIME, int64s, keyed

LOG_TIME = "_log_time"


def with_log_time(records: pa.Table) -> pa.Table:
    """Return the records with the column `_log_time`, microseconds UTC, in the order that they came in.

    `records` hold all records of each of their partitions, in any order, with `_topic`, `_kafka_partition`, `_offset` and
    `_clock`, the log's clock within the piece that they were read in.
    """
    offsets, times = int64s(records["_offset"]), int64s(records[CLOCK].cast(TIME))
    places = keyed(records, ("_topic", "_kafka_partition"))
    order = np.lexsort((offsets, places))
    found = np.empty(len(times), np.int64)
    edges = np.flatnonzero(np.diff(places[order], prepend=-1, append=-1))
    for first, last in itertools.pairwise(edges):
        mine = order[first:last]
        found[mine] = np.maximum.accumulate(times[mine])
    return records.append_column(pa.field(LOG_TIME, TIME), pa.array(found).cast(TIME))
