"""The times that a table may contain: years 1 to 9999. The decoder has the same bounds.

An Iceberg timestamp is any 64-bit count of microseconds, and readers differ outside these years. Spark and DuckDB
continue to the year 294,000, Python's datetime (PyIceberg, `collect()`) ends at 9999, and the hour of the largest
timestamps does not fit the 32 bits of a partition value. Within these years all readers return the same value.
"""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

DAY_US = 86_400_000_000
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_DAY = date(1, 1, 1).toordinal() - EPOCH_ORDINAL
END_DAY = date(9999, 12, 31).toordinal() + 1 - EPOCH_ORDINAL
FIRST_US = FIRST_DAY * DAY_US
END_US = END_DAY * DAY_US
ONLY_THESE = "lies outside the years 1 to 9999"


def outside_calendar(values: pa.ChunkedArray | pa.Array) -> str | None:
    """Return a value outside the years 1 to 9999, as a number with its unit; None if there is none.

    `values` are dates or timestamps in microseconds. The result for other types is None.
    """
    kinds = pa.types
    if kinds.is_date32(values.type):
        numbers, first, end, unit = values.cast(pa.int32()), FIRST_DAY, END_DAY, "days"
    elif kinds.is_timestamp(values.type) and values.type.unit == "us":
        numbers, first, end, unit = values.cast(pa.int64()), FIRST_US, END_US, "microseconds"
    else:
        return None
    found = pc.min_max(numbers).as_py()
    for value in (found["max"], found["min"]):
        if value is not None and not first <= value < end:
            return f"{value} {unit} since 1970"
    return None
