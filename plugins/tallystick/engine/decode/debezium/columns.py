"""The columns that are read of a change event, in the types of the event, and their conversion to the declared columns.

Most columns are read as they are declared. Two types are not those of the event:

    decimal, in JSON as base64    bytes of the unscaled number, big-endian, as in Kafka Connect's type Decimal
    date with epoch_days          days since 1970, as in io.debezium.time.Date
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.avro.kernel import read_decimals
from tallystick.engine.decode.conversions import Conversion, Reasons, conversion
from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.json.leaves import bitmap
from tallystick.engine.decode.json.scan import Array
from tallystick.format.types import decimal_size
from tallystick.pipeline import Column, Debezium
from tallystick.pipeline.paths import escaped
from tallystick.pipeline.time_formats import EPOCH_DAYS
from tallystick.tables.schema import arrow_field

OP, TS_MS, TS_US, BEFORE, AFTER = "op", "ts_ms", "ts_us", "before", "after"
_DIGITS = 38


class EventColumns:
    """What is read of the events of one format. `above`: the path of the event in the record, with a dot at its end.

    `first` is read of every record: all fields of the event are optional there, because events of other kinds do not have
    them. `deleted` is read of the records of deletions. Both have the state of the row as one struct.
    """

    def __init__(self, debezium: Debezium, *, above: str = "") -> None:
        self.rows = tuple(debezium.columns or ())
        self.event = tuple(debezium.event)
        self.before = debezium.before
        self.has_time = debezium.ts is not None
        self._above = above
        self._base64 = debezium.decimals == "base64"
        times = [
            Column(TS_MS, "timestamptz", False, f"{above}ts_ms", parse="epoch_ms"),
            Column(TS_US, "timestamptz", False, f"{above}ts_us", parse="epoch_us"),
        ]
        beyond = [
            replace(
                self._read_as(column, base64=False),
                name=event_name(number),
                source=f"{above}{_source(column)}",
                required=False,
                renamed_from=None,
            )
            for number, column in enumerate(self.event)
        ]
        optional = [replace(column, required=False) for column in self.rows]
        self.first = (
            Column(OP, "string", False, f"{above}op"),
            *(times if self.has_time else ()),
            *beyond,
            self._state(AFTER, self.rows),
            *(() if self.before is None else (self._state(BEFORE, optional),)),
        )
        self.deleted = (self._state(BEFORE, self.rows),)

    def _state(self, name: str, columns: Sequence[Column]) -> Column:
        fields = [
            replace(
                self._read_as(column, base64=self._base64),
                source=_source(column),
                renamed_from=None,
            )
            for column in columns
        ]
        return Column(name, "struct", False, f"{self._above}{name}", fields=fields)

    def place_of(self, state: str) -> str:
        """Return the place of the state of a row, as a dead letter names it."""
        return f"{self._above}{state}"

    def place(self, column: Column, state: str = "") -> str:
        """Return the place of a column of the row (in a state) or of the event, as a dead letter names it."""
        return f"{self._above}{state}{'.' if state else ''}{column.field}"

    @staticmethod
    def _read_as(column: Column, *, base64: bool) -> Column:
        if base64 and decimal_size(column.type):
            return replace(column, type="binary")
        if _has_days(column):
            return replace(column, type="int", parse=None)
        return column

    def converted(
        self, column: Column, values: pa.Array, place: str, reasons: Reasons, *, of_row: bool
    ) -> pa.Array:
        """Return the values of a column as they are declared; slots that are refused get a reason."""
        convert = self._conversion(column, place, of_row=of_row)
        return values if convert is None else convert(values, reasons)

    def _conversion(self, column: Column, place: str, *, of_row: bool) -> Conversion | None:
        if of_row and self._base64 and (size := decimal_size(column.type)):
            found = pa.decimal128(_DIGITS, size[1])
            return _after(_UnscaledNumbers(size[1], place).convert, column, found, place)
        if _has_days(column):
            return _after(_days, column, pa.date32(), place)
        return None

    def converted_rows(
        self, values: pa.StructArray, state: str, reasons: Reasons
    ) -> pa.StructArray:
        """Return the state of rows as a struct of the declared columns, each of which may be null."""
        fields = [arrow_field(replace(column, required=False)) for column in self.rows]
        children = [
            self.converted(column, found, self.place(column, state), reasons, of_row=True)
            for column, found in zip(self.rows, values.flatten(), strict=True)
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def event_name(number: int) -> str:
    """Return the name that a column of the event has until it is converted: its own name can be one of the event's."""
    return f"event_{number}"


def _source(column: Column) -> str:
    return escaped(column.name) if column.source is None else column.source


def _has_days(column: Column) -> bool:
    return column.type == "date" and column.parse == EPOCH_DAYS


def _after(
    read: Callable[[pa.Array, Reasons], pa.Array], column: Column, found: pa.DataType, place: str
) -> Conversion:
    """Return the conversion to the column's type of what `read` returns."""
    convert = conversion(column, found, place, texts=False)
    assert convert is not None  # a decimal is read for a decimal, a date for a date
    return lambda values, reasons: convert(read(values, reasons), reasons)


def _days(values: pa.Int32Array, _: Reasons) -> pa.Array:
    return values.cast(pa.date32())


class _UnscaledNumbers:
    """Unscaled numbers as bytes in two's complement, for a decimal with the declared scale."""

    def __init__(self, scale: int, place: str) -> None:
        self._type = pa.decimal128(_DIGITS, scale)
        self._place = place

    def convert(self, values: pa.BinaryArray, reasons: Reasons) -> pa.Array:
        count = len(values)
        _, offsets, content = values.buffers()
        text = np.frombuffer(content, np.uint8) if content else np.zeros(1, np.uint8)
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1]
        sizes = np.diff(ends).astype(np.int64)
        present = np.asarray(values.is_valid())
        out = np.zeros((count, 2), np.int64)
        bad = present & (sizes == 0)
        spans = ends[:-1].astype(np.int64) << 32 | sizes
        read_decimals(text, spans, present.astype(np.uint8), out, bad)
        bad |= present & _too_long(out)
        for slot in np.flatnonzero(bad).tolist():
            detail = f"expected a number of at most {_DIGITS} digits, found {sizes[slot]} bytes"
            reasons.setdefault(slot, Reason(kind="range", detail=detail, field=self._place))
        present &= ~bad
        valid = None if present.all() else bitmap(present)
        return pa.Array.from_buffers(self._type, count, [valid, pa.py_buffer(out)])


def _too_long(halves: Array) -> Array:
    """Return which numbers of 128 bits have more digits than a decimal can have."""
    found = np.zeros(len(halves), np.bool_)
    # Only numbers whose high half is near that of 10**38 are computed exactly.
    for slot in np.flatnonzero(np.abs(halves[:, 1]) >= (10**_DIGITS >> 64) - 1).tolist():
        low, high = int(halves[slot, 0]) & (1 << 64) - 1, int(halves[slot, 1])
        found[slot] = abs((high << 64) + low) >= 10**_DIGITS
    return found
