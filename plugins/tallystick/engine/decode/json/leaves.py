"""Reads the primitive values that were found in a batch's bytes into Arrow arrays, one column at a time.

A reader marks the slots that it cannot prove; `exact` decodes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.json import instants
from tallystick.engine.decode.json import read as json_read
from tallystick.engine.decode.json import scan as json_scan
from tallystick.engine.decode.json.exact import INT_BITS, converter
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.scan import Array
from tallystick.format.types import decimal_size, fixed_bytes
from tallystick.pipeline import Column
from tallystick.pipeline.columns import JSON_TEXT
from tallystick.pipeline.time_formats import EPOCH_DAYS, EPOCH_FACTORS
from tallystick.tables.calendar import END_DAY, END_US, FIRST_DAY, FIRST_US
from tallystick.tables.schema import arrow_type

ALL_KINDS = (1 << json_scan.ARRAY + 1) - 1
_FLOAT_NORMAL_MIN = float(np.finfo(np.float32).smallest_normal)
_TIMES = ("timestamp", "timestamptz")
_NUMPY = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "date": np.int32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundField:
    """One place in each slot of its scope, and the slots that only the exact rules may decode."""

    text: Array
    kinds: Array
    begins: Array
    sizes: Array
    needs_exact: Array

    @property
    def valid(self) -> Array:
        return self.kinds > json_scan.NULL


def bitmap(valid: Array) -> pa.Buffer:
    """Return the validity bitmap of an Arrow array: one bit per slot."""
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def leaf_array(found: FoundField, kind: pa.DataType, *buffers: Array) -> pa.Array:
    """Return the Arrow array of values that have been read into buffers."""
    valid = found.valid
    present = None if valid.all() else bitmap(valid)
    return pa.Array.from_buffers(kind, len(valid), [present, *(pa.py_buffer(b) for b in buffers)])


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNumber:
    """How a number of JSON becomes a whole number of a column: times 10**scale, in [low, high], of an Arrow type."""

    kind: str
    scale: int
    low: int
    high: int

    def array(self, found: FoundField, out: Array) -> pa.Array:
        """Return the Arrow array of numbers."""
        return leaf_array(
            found, arrow_type(self.kind), out.astype(_NUMPY.get(self.kind, np.int64), copy=False)
        )


def whole_number(column: Column) -> WholeNumber | None:
    """Return how a column's numbers are read, if it has whole numbers: integers, or times since 1970."""
    kind, parse = column.type, column.parse
    if kind in INT_BITS:
        half = 1 << INT_BITS[kind] - 1
        return WholeNumber(kind=kind, scale=0, low=-half, high=half - 1)
    if kind in _TIMES and parse in EPOCH_FACTORS:
        scale = len(str(EPOCH_FACTORS[parse])) - 1
        return WholeNumber(kind=kind, scale=scale, low=FIRST_US, high=END_US - 1)
    if kind == "date" and parse == EPOCH_DAYS:
        return WholeNumber(kind=kind, scale=0, low=FIRST_DAY, high=END_DAY - 1)
    return None


def leaf_reader(column: Column, *, is_key: bool = False) -> Callable[[FoundField], pa.Array]:
    """Return the function that reads one field into `column`'s Arrow array and marks the rows that it cannot prove."""
    kind = column.type
    if (number := whole_number(column)) is not None:
        return lambda found: _scaled(found, number, strings=is_key)
    if decimal_size(kind):
        return lambda found: _decimals(found, kind)
    if kind in {"float", "double"}:
        return lambda found: _doubles(found, kind)
    if kind == "boolean":
        return _booleans
    if kind == "string":
        return _texts if column.parse == JSON_TEXT else lambda found: _strings(found, pa.string())
    if kind == "uuid":
        return _uuids
    if kind == "time":
        return _times_of_day
    if kind == "binary" or fixed_bytes(kind):
        return lambda found: _through_text(found, column)
    return _time_reader(column)


def provable_kinds(column: Column) -> int:
    """Return the kinds of values that the reader of a field may prove, as a set of bits; of other columns, all kinds."""
    kind = column.type
    if kind in INT_BITS or kind in {"float", "double"}:
        kinds = [json_scan.INTEGER, json_scan.FRACTION]
    elif decimal_size(kind):
        kinds = [json_scan.INTEGER, json_scan.FRACTION, json_scan.PLAIN]
    elif kind == "boolean":
        kinds = [json_scan.TRUE, json_scan.FALSE]
    elif kind == "string" and column.parse != JSON_TEXT:
        kinds = [json_scan.PLAIN, json_scan.ESCAPED]
    else:
        return ALL_KINDS
    return sum(1 << one for one in (json_scan.NULL, *kinds))


def _time_reader(column: Column) -> Callable[[FoundField], pa.Array]:
    kind = column.type
    if column.parse in (None, "iso8601"):
        return _dates if kind == "date" else lambda found: _times(found, kind)
    if instants.takes_numbers(column):
        return _unproven(kind)
    return lambda found: _through_text(found, column)


def _scaled(found: FoundField, number: WholeNumber, *, strings: bool) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    json_read.read_scaled(
        found.text,
        found.kinds,
        found.begins,
        found.sizes,
        number.scale,
        strings,
        number.low,
        number.high,
        out,
        found.needs_exact,
    )
    return number.array(found, out)


def _decimals(found: FoundField, kind: str) -> pa.Array:
    precision, scale = decimal_size(kind) or (0, 0)
    high = min(10**precision - 1, (1 << 63) - 1)
    # An Arrow decimal has 128 bits, little-endian: the low half is the value, the high half repeats its sign.
    out = np.zeros((len(found.kinds), 2), np.int64)
    low_half = np.zeros(len(found.kinds), np.int64)
    json_read.read_scaled(
        found.text,
        found.kinds,
        found.begins,
        found.sizes,
        scale,
        True,
        -high,
        high,
        low_half,
        found.needs_exact,
    )
    out[:, 0], out[:, 1] = low_half, low_half >> 63
    return leaf_array(found, arrow_type(kind), out)


def _doubles(found: FoundField, kind: str) -> pa.Array:
    out = np.zeros(len(found.kinds), np.float64)
    hard = np.zeros(len(found.kinds), np.uint8)
    json_read.read_doubles(
        found.text, found.kinds, found.begins, found.sizes, out, hard, found.needs_exact
    )
    return doubles(found, kind, out, hard)


def doubles(found: FoundField, kind: str, out: Array, hard: Array) -> pa.Array:
    """Return the Arrow array of doubles or floats; those that are `hard` are read again."""
    for row in np.flatnonzero(hard).tolist():
        begin = found.begins[row]
        out[row] = float(found.text[begin : begin + found.sizes[row]].tobytes())
    if kind == "float":
        # If a double is halfway between two floats, the digits that it lost determine the rounding. Below the smallest
        # normal float, halfway has another bit pattern; this is rare. The exact rules decode both.
        halfway = out.view(np.int64) & 0x1FFF_FFFF == 0x1000_0000
        tiny = (out != 0) & (np.abs(out) < _FLOAT_NORMAL_MIN)
        found.needs_exact[halfway | tiny] = 1
        with np.errstate(over="ignore"):
            out = out.astype(np.float32)
    found.needs_exact[~np.isfinite(out)] = 1
    return leaf_array(found, arrow_type(kind), out)


def _booleans(found: FoundField) -> pa.Array:
    true = found.kinds == json_scan.TRUE
    found.needs_exact[found.valid & ~true & (found.kinds != json_scan.FALSE)] = 1
    return leaf_array(found, pa.bool_(), np.packbits(true, bitorder="little"))


def _strings(found: FoundField, kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(found.kinds) + 1, np.int32)
    json_read.measure_strings(
        found.text, found.kinds, found.begins, found.sizes, offsets, found.needs_exact
    )
    out = np.empty(int(offsets[-1]), np.uint8)
    json_read.copy_strings(found.text, found.kinds, found.begins, offsets, found.sizes, out)
    return leaf_array(found, kind, offsets, out)


def _dates(found: FoundField) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int32)
    json_read.read_dates(found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact)
    return leaf_array(found, pa.date32(), out)


def _times(found: FoundField, kind: str) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    zoned = kind == "timestamptz"
    json_read.read_times(
        found.text, found.kinds, found.begins, found.sizes, zoned, out, found.needs_exact
    )
    return leaf_array(found, arrow_type(kind), out)


def _texts(found: FoundField) -> pa.Array:
    """Copy the JSON text of values of any kind."""
    quoted = np.isin(found.kinds, (json_scan.PLAIN, json_scan.ESCAPED)).astype(np.int32)
    begins, sizes = found.begins - quoted, np.where(found.valid, found.sizes + 2 * quoted, 0)
    sizes[found.needs_exact.astype(np.bool_)] = 0
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    out = np.empty(int(offsets[-1]), np.uint8)
    json_read.copy_spans(found.text, begins, offsets, out)
    return leaf_array(found, pa.string(), offsets, out)


def _uuids(found: FoundField) -> pa.Array:
    out = np.zeros((len(found.kinds), 16), np.uint8)
    json_read.read_uuids(found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact)
    return leaf_array(found, pa.binary(16), out).cast(pa.uuid())


def _times_of_day(found: FoundField) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    json_read.read_times_of_day(
        found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact
    )
    return leaf_array(found, pa.time64("us"), out)


def _through_text(found: FoundField, column: Column) -> pa.Array:
    """Read strings, then apply the exact rule to each: for base64 and strptime formats."""
    convert = converter(column)
    cells: list[Any] = _strings(found, pa.string()).to_pylist()
    for row, cell in enumerate(cells):
        if found.needs_exact[row]:
            cells[row] = None
        elif cell is not None:
            try:
                cells[row] = convert(cell)
            except MismatchError:
                found.needs_exact[row], cells[row] = 1, None
    kind = arrow_type(column.type)
    return pa.array(cells, plain(kind)).cast(kind)


def _unproven(kind: str) -> Callable[[FoundField], pa.Array]:
    """Return a reader that leaves every value to the exact rules, for rare parse rules."""

    def read(found: FoundField) -> pa.Array:
        found.needs_exact[found.valid] = 1
        return pa.nulls(len(found.kinds), arrow_type(kind))

    return read


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of exact values: dates and times are counts of days and microseconds, a uuid is bytes."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return pa.binary(16) if kind == pa.uuid() else kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))
