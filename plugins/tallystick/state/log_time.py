"""Log time: the clock of a log, which never goes back along a partition and never depends on who reads it when.

A record's log time is the largest timestamp of its partition up to it. The log is cut into intervals by just that clock:
the first record at or after an instant begins the next interval. So every record's log time lies in its interval, and
"all records within an hour before this one" lie in the intervals that reach into that hour.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.state.columns import EPOCH, TIME, int64s, keyed

LOG_TIME = "_log_time"
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Where a part of the log begins that was cut by time: its instant, and by Kafka's topic names an offset each."""

    start: datetime
    offsets: Mapping[str, tuple[int, ...]]


def with_log_time(records: pa.Table, parts: Sequence[LogPart]) -> pa.Table:
    """Return the records with the column `_log_time`, microseconds UTC, in the order that they came in.

    `records` hold all records of each of their partitions, in any order, with `_topic`, `_kafka_partition`, `_offset` and
    `_timestamp`. `parts` say where intervals begin: what set a boundary may be no record of the job's (a dead letter, an
    aborted one), and no log time lies before it.
    """
    offsets = int64s(records["_offset"])
    times = int64s(pc.fill_null(records["_timestamp"].cast(TIME), EPOCH))
    places = keyed(records, ("_topic", "_kafka_partition"))
    times = np.maximum(times, _floors(records, offsets, parts))
    order = np.lexsort((offsets, places))
    found = np.empty(len(times), np.int64)
    edges = np.flatnonzero(np.diff(places[order], prepend=-1, append=-1))
    for first, last in itertools.pairwise(edges):
        mine = order[first:last]
        found[mine] = np.maximum.accumulate(times[mine])
    return records.append_column(pa.field(LOG_TIME, TIME), pa.array(found).cast(TIME))


def _floors(records: pa.Table, offsets: np.ndarray, parts: Sequence[LogPart]) -> np.ndarray:
    """The instant at which each record's part of the log begins."""
    floors = np.zeros(len(offsets), np.int64)
    ordered = sorted(parts, key=lambda part: part.start)
    topics = records["_topic"].to_numpy(zero_copy_only=False)
    partitions = int64s(records["_kafka_partition"])
    for part in ordered:
        at = (part.start - EPOCH) // _US
        for topic, firsts in part.offsets.items():
            # A partition that joined since begins in the part that knows it.
            known = np.array([*firsts, 0], np.int64)
            mine = (topics == topic) & (partitions < len(firsts))
            reached = offsets >= known[np.minimum(partitions, len(firsts))]
            floors[mine & reached] = at
    return floors
