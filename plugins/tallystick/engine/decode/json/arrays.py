"""Builds the Arrow arrays of a layout's columns from the values that `locate` found, at any depth.

A reader marks the slots that it cannot prove. Inside of a list or a map a slot is an element or entry: its record is
marked, and `exact` decodes the whole record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.conform import repeated_keys, without_nulls
from tallystick.engine.decode.json import instants
from tallystick.engine.decode.json import read as json_read
from tallystick.engine.decode.json import scan as json_scan
from tallystick.engine.decode.json.exact import INT_BITS, converter
from tallystick.engine.decode.json.layout import FIELDS, ColumnPlace, Node
from tallystick.engine.decode.json.locate import Found
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.scan import Array
from tallystick.format.types import LIST, MAP, STRUCT, decimal_size, fixed_bytes
from tallystick.pipeline import Column
from tallystick.pipeline.columns import JSON_TEXT
from tallystick.pipeline.time_formats import EPOCH_FACTORS
from tallystick.tables.calendar import END_US, FIRST_US
from tallystick.tables.schema import arrow_field, arrow_type, column_type

_FLOAT_NORMAL_MIN = float(np.finfo(np.float32).smallest_normal)
_NUMPY = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "date": np.int32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundField:
    """One place in each slot of its scope, and the slots that only the exact rules may decode."""

    text: Array
    kinds: Array
    begins: Array
    sizes: Array
    needs_exact: Array

    @property
    def valid(self) -> Array:
        return self.kinds > json_scan.NULL


def column_array(
    place: ColumnPlace, found: Found, needs_exact: Array, *, is_key: bool = False
) -> pa.Array:
    """Return the values of a column, one per slot of its scope; mark the slots that are not proven in `needs_exact`.

    `is_key`: the column is the key of a map, whose numbers are strings.
    """
    for node in place.above:
        _require(found.of(node.number, "kinds"), _container(node), needs_exact)
    column, number = place.column, place.node.number
    kinds = found.of(number, "kinds")
    if column.type == STRUCT:
        return _struct_array(place, found, kinds, needs_exact)
    if column.type in (LIST, MAP):
        return _repeated_array(place, found, kinds, needs_exact)
    return _reader(column, is_key=is_key)(
        _FoundField(
            text=found.text,
            kinds=kinds,
            begins=found.of(number, "begins"),
            sizes=found.of(number, "sizes"),
            needs_exact=needs_exact,
        )
    )


def require_values(place: ColumnPlace, found: Found, needs_exact: Array) -> None:
    """Mark the slots in which a required column has no value."""
    if place.column.required:
        needs_exact |= found.of(place.node.number, "kinds") <= json_scan.NULL


def _container(node: Node) -> int:
    return json_scan.OBJECT if node.mode == FIELDS else json_scan.ARRAY


def _require(kinds: Array, kind: int, needs_exact: Array) -> Array:
    """Return the slots that have a value of this kind; mark those that have one of another kind."""
    present: Array = kinds == kind
    needs_exact |= ~present & (kinds > json_scan.NULL)
    return present


def _struct_array(
    place: ColumnPlace, found: Found, kinds: Array, needs_exact: Array
) -> pa.StructArray:
    present = _require(kinds, json_scan.OBJECT, needs_exact)
    children = []
    for part in place.parts:
        if part.column.required:
            absent = found.of(part.node.number, "kinds") <= json_scan.NULL
            needs_exact |= present & absent
        child = column_array(part, found, needs_exact)
        children.append(without_nulls(child) if part.column.required else child)
    mask = None if present.all() else pa.array(~present)
    return pa.StructArray.from_arrays(
        children, fields=[arrow_field(p.column) for p in place.parts], mask=mask
    )


def _repeated_array(place: ColumnPlace, found: Found, kinds: Array, needs_exact: Array) -> pa.Array:
    is_map = place.column.type == MAP
    present = _require(kinds, json_scan.OBJECT if is_map else json_scan.ARRAY, needs_exact)
    lengths = np.where(present, found.of(place.node.number, "length"), 0)
    inner_exact = np.zeros(found.slots(place.node.inner), np.uint8)
    children = []
    for number, part in enumerate(place.parts):
        require_values(part, found, inner_exact)
        is_key = is_map and number == 0
        children.append(column_array(part, found, inner_exact, is_key=is_key))
    if is_map:
        inner_exact[repeated_keys(children[0], lengths)] = 1
    if inner_exact.any():
        slots = np.repeat(np.arange(len(lengths)), lengths)
        needs_exact[slots[inner_exact.astype(np.bool_)]] = 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    if is_map:
        fields = [arrow_field(p.column) for p in place.parts]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    bitmap = None if present.all() else _bitmap(present)
    return pa.Array.from_buffers(
        column_type(place.column),
        len(lengths),
        [bitmap, pa.py_buffer(offsets)],
        children=children,
    )


def rest_texts(node: Node, found: Found) -> pa.Array:
    """Return the entries of each record that no column reads, as the text of a JSON object."""
    assert node.key is not None
    number, value = node.key.number, node.value[0].number
    quoted = np.isin(found.of(value, "kinds"), (json_scan.PLAIN, json_scan.ESCAPED))
    ends = found.of(value, "begins") + found.of(value, "sizes") + quoted
    lengths = found.of(node.number, "length")
    offsets = np.zeros(len(lengths) + 1, np.int32)
    begins = found.of(number, "begins") - 1
    json_read.measure_rest(begins, ends, lengths, offsets)
    out = np.empty(int(offsets[-1]), np.uint8)
    json_read.copy_rest(found.text, begins, ends, lengths, offsets, out)
    return pa.Array.from_buffers(
        pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _bitmap(valid: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _array(found: _FoundField, kind: pa.DataType, *buffers: Array) -> pa.Array:
    valid = found.valid
    bitmap = None if valid.all() else _bitmap(valid)
    return pa.Array.from_buffers(kind, len(valid), [bitmap, *(pa.py_buffer(b) for b in buffers)])


def _reader(column: Column, *, is_key: bool = False) -> Callable[[_FoundField], pa.Array]:
    """Return the function that reads one field into `column`'s Arrow array and marks the rows that it cannot prove."""
    kind = column.type
    if kind in INT_BITS:
        bits = INT_BITS[kind]
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        return lambda found: _scaled(found, kind, 0, low, high, strings=is_key)
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


def _time_reader(column: Column) -> Callable[[_FoundField], pa.Array]:
    kind = column.type
    if column.parse in EPOCH_FACTORS and kind != "date":
        scale = len(str(EPOCH_FACTORS[column.parse])) - 1
        return lambda found: _scaled(found, kind, scale, FIRST_US, END_US - 1)
    if column.parse in (None, "iso8601"):
        return _dates if kind == "date" else lambda found: _times(found, kind)
    if instants.takes_numbers(column):
        return _unproven(kind)
    return lambda found: _through_text(found, column)


def _scaled(
    found: _FoundField, kind: str, scale: int, low: int, high: int, *, strings: bool = False
) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    json_read.read_scaled(
        found.text,
        found.kinds,
        found.begins,
        found.sizes,
        scale,
        strings,
        low,
        high,
        out,
        found.needs_exact,
    )
    return _array(found, arrow_type(kind), out.astype(_NUMPY.get(kind, np.int64), copy=False))


def _decimals(found: _FoundField, kind: str) -> pa.Array:
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
    return _array(found, arrow_type(kind), out)


def _doubles(found: _FoundField, kind: str) -> pa.Array:
    out = np.zeros(len(found.kinds), np.float64)
    hard = np.zeros(len(found.kinds), np.uint8)
    json_read.read_doubles(
        found.text, found.kinds, found.begins, found.sizes, out, hard, found.needs_exact
    )
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
    return _array(found, arrow_type(kind), out)


def _booleans(found: _FoundField) -> pa.Array:
    true = found.kinds == json_scan.TRUE
    found.needs_exact[found.valid & ~true & (found.kinds != json_scan.FALSE)] = 1
    return _array(found, pa.bool_(), np.packbits(true, bitorder="little"))


def _strings(found: _FoundField, kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(found.kinds) + 1, np.int32)
    json_read.measure_strings(
        found.text, found.kinds, found.begins, found.sizes, offsets, found.needs_exact
    )
    out = np.empty(int(offsets[-1]), np.uint8)
    json_read.copy_strings(found.text, found.kinds, found.begins, offsets, found.sizes, out)
    return _array(found, kind, offsets, out)


def _dates(found: _FoundField) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int32)
    json_read.read_dates(found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact)
    return _array(found, pa.date32(), out)


def _times(found: _FoundField, kind: str) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    zoned = kind == "timestamptz"
    json_read.read_times(
        found.text, found.kinds, found.begins, found.sizes, zoned, out, found.needs_exact
    )
    return _array(found, arrow_type(kind), out)


def _texts(found: _FoundField) -> pa.Array:
    """Copy the JSON text of values of any kind."""
    quoted = np.isin(found.kinds, (json_scan.PLAIN, json_scan.ESCAPED)).astype(np.int32)
    begins, sizes = found.begins - quoted, np.where(found.valid, found.sizes + 2 * quoted, 0)
    sizes[found.needs_exact.astype(np.bool_)] = 0
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    out = np.empty(int(offsets[-1]), np.uint8)
    json_read.copy_spans(found.text, begins, offsets, out)
    return _array(found, pa.string(), offsets, out)


def _uuids(found: _FoundField) -> pa.Array:
    out = np.zeros((len(found.kinds), 16), np.uint8)
    json_read.read_uuids(found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact)
    return _array(found, pa.binary(16), out).cast(pa.uuid())


def _times_of_day(found: _FoundField) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    json_read.read_times_of_day(
        found.text, found.kinds, found.begins, found.sizes, out, found.needs_exact
    )
    return _array(found, pa.time64("us"), out)


def _through_text(found: _FoundField, column: Column) -> pa.Array:
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


def _unproven(kind: str) -> Callable[[_FoundField], pa.Array]:
    """Return a reader that leaves every value to the exact rules, for rare parse rules."""

    def read(found: _FoundField) -> pa.Array:
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
