"""Decodes a batch of JSON values into the declared columns, exactly: rows, and dead letters with reasons.

Compiled kernels (`scan`, `read`) decode whole batches. If they cannot prove a value, `exact` decodes it by itself. Both
give the same rows: a property test compares them. DuckDB's reader was the alternative. Even its strict mode (1.5.5)
accepts trailing commas and NaN, rounds 1.5 into an integer and reads "1" and true as 1, so that a second reader would
have to check each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, Decoder, Reason, schema_of
from tallystick.engine.decode.json import instants
from tallystick.engine.decode.json import read as json_read
from tallystick.engine.decode.json import scan as json_scan
from tallystick.engine.decode.json.exact import INT_BITS, VALUE_BYTES_MAX, ExactRow, MismatchError
from tallystick.engine.decode.json.scan import Array
from tallystick.pipeline import Column, Format, Json
from tallystick.pipeline.time_formats import EPOCH_FACTORS
from tallystick.tables.calendar import END_US, FIRST_US
from tallystick.tables.schema import arrow_type, decimal_size

_FLOAT_NORMAL_MIN = float(np.finfo(np.float32).smallest_normal)
TOMBSTONE = ("tombstone", "the value is null")
_NUMPY = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "date": np.int32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundField:
    """The position of one field in each row, and the rows that only the exact rules may decode."""

    text: Array
    kinds: Array
    begins: Array
    sizes: Array
    needs_exact: Array

    @property
    def valid(self) -> Array:
        return self.kinds > json_scan.NULL


def json_decoder(declared: Format) -> Decoder:
    """Return the decoder of a `json` format; raises InvalidPipeline for options that it does not have."""
    return JsonDecoder(Json.of(declared))


class JsonDecoder:
    """A decoder of batches of one topic's values; one instance per task, no state between batches."""

    def __init__(self, decode: Json) -> None:
        self._columns = tuple(decode.columns)
        self._keep_tombstones = decode.tombstones == "keep"
        self._exact = ExactRow(self._columns)
        self._fields = tuple(dict.fromkeys(c.field for c in self._columns))
        names = [f.encode() for f in self._fields]
        self._names = np.frombuffer(b"".join(names) or b"\0", np.uint8)
        self._name_starts = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._readers = tuple(_reader(c) for c in self._columns)
        self.schema = schema_of(decode.format)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values of a batch of records; the other columns are not read."""
        return self.decode_values(batch.column("value"))

    def decode_values(self, values: pa.BinaryArray) -> Decoded:
        """Decode one value per record (null: a tombstone) into rows and dead letters; invalid values raise no error."""
        text, offsets = _buffers(values)
        rows, fields = len(values), len(self._fields)
        kinds = np.zeros((fields, rows), np.uint8)
        begins, sizes = np.empty((fields, rows), np.int32), np.empty((fields, rows), np.int32)
        null = np.asarray(values.is_null()) if values.null_count else np.zeros(rows, np.bool_)
        needs_exact = null.astype(np.uint8)
        json_scan.find_fields(
            text,
            offsets,
            self._names,
            self._name_starts,
            VALUE_BYTES_MAX,
            kinds,
            begins,
            sizes,
            needs_exact,
        )
        arrays = []
        for column, read in zip(self._columns, self._readers, strict=True):
            at = self._fields.index(column.field)
            found = _FoundField(
                text=text,
                kinds=kinds[at],
                begins=begins[at],
                sizes=sizes[at],
                needs_exact=needs_exact,
            )
            if column.required:
                needs_exact |= ~found.valid
            arrays.append(read(found))
        proven = pa.Table.from_arrays(arrays, schema=self.schema)
        if not needs_exact.any():
            return Decoded(
                rows=proven, kept=np.arange(rows), dead=np.empty(0, np.int64), reasons=()
            )
        return self._decode_exactly(values, proven, needs_exact.astype(np.bool_), null)

    def _decode_exactly(
        self, values: pa.BinaryArray, proven: pa.Table, needs_exact: Array, null: Array
    ) -> Decoded:
        good = np.flatnonzero(~needs_exact)
        late: list[int] = []
        late_rows: list[list[Any]] = []
        dead: list[int] = []
        reasons: list[Reason] = []
        for position in np.flatnonzero(needs_exact).tolist():
            try:
                late_rows.append(
                    self._decode_one(None if null[position] else values[position].as_py())
                )
                late.append(position)
            except MismatchError as mismatch:
                dead.append(position)
                reasons.append(mismatch.reason)
        rows, kept = proven.take(pa.array(good)), good
        if late:
            kept = np.concatenate([good, np.array(late, np.int64)])
            order = np.argsort(kept, kind="stable")
            rows = pa.concat_tables([rows, self.table(late_rows)]).take(pa.array(order))
            kept = kept[order]
        return Decoded(rows=rows, kept=kept, dead=np.array(dead, np.int64), reasons=tuple(reasons))

    def _decode_one(self, value: bytes | None) -> list[Any]:
        if value is not None:
            return self._exact.decode(value)
        if self._keep_tombstones:
            return [None] * len(self._columns)
        raise MismatchError(*TOMBSTONE)

    def table(self, rows: list[list[Any]]) -> pa.Table:
        """Return rows of the exact decoder as a table of the declared columns."""
        if not rows:
            return self.schema.empty_table()
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(cells, _plain(field.type)).cast(field.type)
            for cells, field in zip(columns, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a column of exact rows: dates and times are counts of days and microseconds."""
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _buffers(values: pa.BinaryArray) -> tuple[Array, Array]:
    _, offsets, data = values.buffers()
    text = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    )
    if offsets is None or not offsets.size:
        return text, np.zeros(1, np.int32)
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return text, starts


def _array(found: _FoundField, kind: pa.DataType, *buffers: Array) -> pa.Array:
    valid = found.valid
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(valid), [bitmap, *(pa.py_buffer(b) for b in buffers)])


def _reader(column: Column) -> Callable[[_FoundField], pa.Array]:
    """Return the function that reads one field into `column`'s Arrow array and marks the rows that it cannot prove."""
    kind = column.type
    if kind in INT_BITS:
        bits = INT_BITS[kind]
        return lambda found: _scaled(found, kind, 0, -(1 << bits - 1), (1 << bits - 1) - 1)
    if decimal_size(kind):
        return lambda found: _decimals(found, kind)
    if kind in {"float", "double"}:
        return lambda found: _doubles(found, kind)
    if kind == "boolean":
        return _booleans
    if kind == "string":
        return lambda found: _strings(found, pa.string())
    if kind == "binary":
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


def _scaled(found: _FoundField, kind: str, scale: int, low: int, high: int) -> pa.Array:
    out = np.zeros(len(found.kinds), np.int64)
    json_read.read_scaled(
        found.text,
        found.kinds,
        found.begins,
        found.sizes,
        scale,
        False,
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


def _through_text(found: _FoundField, column: Column) -> pa.Array:
    """Read strings, then apply the exact rule to each: for base64 and strptime formats."""
    convert = ExactRow([column]).converter(0)
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
    return pa.array(cells, _plain(kind)).cast(kind)


def _unproven(kind: str) -> Callable[[_FoundField], pa.Array]:
    """Return a reader that leaves every value to the exact rules, for rare parse rules."""

    def read(found: _FoundField) -> pa.Array:
        found.needs_exact[found.valid] = 1
        return pa.nulls(len(found.kinds), arrow_type(kind))

    return read
