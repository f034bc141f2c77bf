"""Refuses times that receivers cannot read: parsers of JSON, databases and Python agree only on the years 1 to 9999.

A table in the lake stores 64 bits of microseconds: 292,000 years in either direction. If a job uses a wrong unit, its
times are soon outside these years (RFC 3339, section 1: "years between 0000 and 9999"; Python's datetime begins at 1).
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import OutputRefused
from tallystick.outputs.encoding import plain
from tallystick.outputs.port import Publication

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}


def check_times(publication: Publication) -> None:
    """Refuse a date or timestamp outside the years 1 to 9999 before anything is sent. Raises OutputRefused."""
    number = 0
    for batch in publication.rows.batches():
        check_batch(publication, batch, number)
        number += len(batch)


def check_batch(publication: Publication, batch: pa.RecordBatch, number: int) -> None:
    """Refuse such a time in one batch, whose first row has this number. Raises OutputRefused.

    The values are compared in their Arrow form, column by column.
    """
    for field in batch.schema:
        at = _outside(batch.column(field.name), field.type)
        if at is not None:
            raise _refused(publication, batch, field, at, number)


def _outside(column: pa.Array, kind: pa.DataType) -> int | None:
    """Return the index of the first value outside the years 1 to 9999, or None if there is none."""
    if pa.types.is_date(kind):
        first, last = pa.scalar(date.min, kind), pa.scalar(date.max, kind)
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":  # nanoseconds end in 2262
        zone = UTC if kind.tz else None
        first = pa.scalar(datetime.min.replace(tzinfo=zone), kind)
        last = pa.scalar(datetime.max.replace(tzinfo=zone), kind)
    else:
        return None
    at = pc.index(pc.or_(pc.less(column, first), pc.greater(column, last)), True).as_py()
    return None if at < 0 else int(at)


def _refused(
    publication: Publication, batch: pa.RecordBatch, field: pa.Field, at: int, number: int
) -> OutputRefused:
    value = batch.column(field.name)[at].value
    unit = "days" if pa.types.is_date(field.type) else _UNITS[field.type.unit]
    named = ", ".join(
        f"{name}={_shown(batch, name, at)}"
        for name in publication.identity
        if name in batch.schema.names and name != field.name
    )
    return OutputRefused(
        f"{publication}: row {number + at} ({named}), column {field.name!r}: expected the years 1 to 9999, which "
        "receivers "
        f"can read, found {value} {unit} since 1970.",
        hint="fix the job (correct a wrong unit, or make such a time null or its record a dead letter), and clear "
        "`plan`. Nothing of it was sent, and the tables are committed.",
    )


def _shown(batch: pa.RecordBatch, name: str, at: int) -> Any:
    try:
        return repr(plain(batch.column(name)[at].as_py()))
    except (OverflowError, ValueError):  # this value is outside the range, too
        return "?"
