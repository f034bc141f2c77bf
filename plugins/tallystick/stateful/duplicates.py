"""Deduplication over a horizon: a record is kept if no record with the same key came within the horizon before it.

A record is dropped if an earlier record of the same key, in log order, has a log time less than the horizon before its
own. Log order is log time, then topic, partition and offset. Dropped records count as earlier records too: if a key
recurs without a pause as long as the horizon, it is kept once. The result depends on records up to the horizon back, and
on no older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.clock import LOG_TIME
from tallystick.stateful.columns import TIME, int64s, keyed, require_keys

LAST_SEEN = "last_seen"
_US = timedelta(microseconds=1)


def last_seen(records: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the partial rows of an interval: each key with the log time of its last record, `last_seen`.

    Partial rows of one key merge to the latest. Raises InvalidPipeline if a key is null.
    """
    require_keys(records, key)
    found = records.select([*key, LOG_TIME]).group_by(list(key)).aggregate([(LOG_TIME, "max")])
    return found.rename_columns([*found.column_names[: len(key)], LAST_SEEN]).select(
        [*key, LAST_SEEN]
    )


def first_of(
    records: pa.Table, earlier: pa.Table, key: Sequence[str], horizon: timedelta
) -> pa.Table:
    """Return the records that are the first of their key within the horizon, in the given order.

    `records`: all records of an interval with these keys, with `_log_time`. `earlier`: the partial rows of
    [start - horizon, start). Raises InvalidPipeline if a key is null.
    """
    require_keys(records, key)
    count = records.num_rows
    both = pa.concat_tables(
        [
            records.select([*key]),
            earlier.select([*key]).cast(records.select([*key]).schema),
        ]
    )
    codes = keyed(both, key)
    times = np.concatenate([int64s(records[LOG_TIME]), int64s(earlier[LAST_SEEN].cast(TIME))])
    # If log times are equal, earlier rows come before records of the interval.
    own = np.concatenate([np.ones(count, np.int64), np.zeros(earlier.num_rows, np.int64)])
    order = np.lexsort((*_tie(records, earlier.num_rows), own, times, codes))
    near = np.zeros(len(order), bool)
    if len(order):
        same = codes[order][1:] == codes[order][:-1]
        near[1:] = same & (times[order][1:] - times[order][:-1] < horizon // _US)
    dropped = np.zeros(len(order), bool)
    dropped[order] = near
    return records.filter(pa.array(~dropped[:count]))


def _tie(records: pa.Table, earlier: int) -> tuple[np.ndarray, ...]:
    """Return the sort keys of records with equal key and log time: offset, partition, topic (the last sorts first)."""
    topics = pc.rank(records["_topic"], tiebreaker="dense") if records.num_rows else pa.array([])
    numbers = (
        int64s(records["_offset"]),
        int64s(records["_kafka_partition"]),
        np.asarray(topics.cast(pa.int64()), np.int64),
    )
    return tuple(np.concatenate([one, np.zeros(earlier, np.int64)]) for one in numbers)
