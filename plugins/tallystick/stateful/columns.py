"""Converts columns to numbers: keys, instants, and the cumulative maximum within groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import InvalidPipeline

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")


def int64s(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column without nulls as 64-bit numbers; instants are in microseconds."""
    return np.asarray(column.cast(pa.int64()).combine_chunks(), np.int64)


def keyed(rows: pa.Table, key: Sequence[str]) -> np.ndarray:
    """Return one number per row, from 0; rows have the same number if their key columns are equal, nulls included."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in key:
        column = rows[name].combine_chunks()
        found = pc.dictionary_encode(column, null_encoding="encode").indices
        own = np.asarray(found.cast(pa.int64()), np.int64)
        codes = codes * (int(own.max(initial=0)) + 1) + own
        # Make the numbers dense again, so that the product with the next column fits 64 bits.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return codes


def require_keys(records: pa.Table, key: Sequence[str]) -> None:
    """Refuse a null in a key column, because it has no state. Raises InvalidPipeline naming the first such record."""
    for name in key:
        missing = pc.is_null(records[name])
        if pc.any(missing).as_py():
            row = records.filter(missing).slice(0, 1).to_pylist()[0]
            raise InvalidPipeline(
                f"key column {name!r}: expected a value, found null in {row['_topic']}[{row['_kafka_partition']}] at "
                f"offset {row['_offset']}.",
                hint="drop such records in the transform, or write them to a table of their own.",
            )


def running_max(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the largest value of each row's group up to that row; `groups` must be ascending."""
    if not len(values):
        return values
    ranks = np.unique(values, return_inverse=True)
    one = len(ranks[0]) + 1
    reached = np.maximum.accumulate(groups * one + ranks[1].reshape(-1))
    return np.asarray(ranks[0][reached - groups * one])
