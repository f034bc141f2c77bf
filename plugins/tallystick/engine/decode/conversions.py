"""Converts primitive values of a format's own types to the type of a column, without changing a value.

A value that the column's type cannot hold is refused with a reason, as in JSON: `range`, `inexact`, `time`, `type`. If no
value of the format's type is a value of the column's type, there is no conversion.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.decode import halves
from tallystick.engine.decode.decoder import Reason, shorten
from tallystick.engine.decode.json import instants
from tallystick.engine.decode.json.exact import text_converter
from tallystick.engine.decode.json.leaves import FoundField, leaf_reader, plain
from tallystick.engine.decode.json.parsed import EXCERPT_CHARS_MAX, JsonNumber, MismatchError
from tallystick.engine.decode.json.scan import FALSE, FRACTION, NULL, PLAIN, TRUE, Array
from tallystick.format.types import decimal_size, fixed_bytes
from tallystick.pipeline import Column
from tallystick.pipeline.columns import JSON_TEXT
from tallystick.pipeline.time_formats import EPOCH_DAYS, EPOCH_FACTORS
from tallystick.tables.calendar import END_DAY, END_US, FIRST_DAY, FIRST_US
from tallystick.tables.schema import arrow_type

Reasons = dict[int, Reason]
Conversion = Callable[[pa.Array, Reasons], pa.Array]
"""Converts an array; refused slots are null in the result, and get a reason unless they have one."""

_JSON_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_WIDE = Context(prec=100)
_DAY_US = 86_400_000_000
_TEXT_TYPES = ("date", "timestamp", "timestamptz", "time", "uuid")


def conversion(column: Column, found: pa.DataType, place: str, *, texts: bool) -> Conversion | None:
    """Return the conversion from a format's primitive type to a column's, or None if there is none.

    `texts`: all values of the format are text, so that numbers are read from strings, too. `place`: as a reason names it.
    """
    kinds = pa.types
    if column.parse == JSON_TEXT:
        return None
    if kinds.is_null(found):
        return lambda values, _: pa.nulls(len(values), arrow_type(column.type))
    if kinds.is_string(found):
        if column.type == "string":
            return _unchanged
        if texts or column.type in _TEXT_TYPES or decimal_size(column.type):
            return _FromText(column, place).convert
        return None
    if kinds.is_integer(found):
        return _from_integer(column, found, place)
    if kinds.is_floating(found):
        return _Floating(column, place).convert if column.type in ("float", "double") else None
    if kinds.is_timestamp(found):
        zoned = found.tz is not None
        same = column.type == ("timestamptz" if zoned else "timestamp")
        return _Instants(column, place).convert if same else None
    if kinds.is_decimal(found):
        return _DecimalValues(column, place).convert if decimal_size(column.type) else None
    return _from_other(column, found, place)


def _from_integer(column: Column, found: pa.DataType, place: str) -> Conversion | None:
    if column.type in ("int", "long"):
        return _Integers(column, place).convert
    if column.type in ("float", "double"):
        return _Floating(column, place).convert
    if decimal_size(column.type):
        return _DecimalValues(column, place).convert
    if instants.takes_numbers(column):
        return _Epochs(column, place).convert
    return None


def _from_other(column: Column, found: pa.DataType, place: str) -> Conversion | None:
    kinds, wanted = pa.types, arrow_type(column.type)
    if found in (pa.date32(), pa.time64("us")):
        return _Limited(column, place).convert if found == wanted else None
    if found == wanted:
        return _unchanged
    length = 16 if column.type == "uuid" else fixed_bytes(column.type)
    if kinds.is_fixed_size_binary(found):
        fits = kinds.is_binary(wanted) or found.byte_width == length
        return _Bytes(column, place).convert if fits else None
    if kinds.is_binary(found) and (kinds.is_binary(wanted) or length is not None):
        return _Bytes(column, place).convert
    if found == pa.uuid() and column.type == "string":
        return lambda values, _: pa.array(
            [None if v is None else str(v) for v in values.to_pylist()], pa.string()
        )
    return None


def _unchanged(values: pa.Array, _: Reasons) -> pa.Array:
    return values


class _Refusing:
    """A conversion that refuses single values; `place` is the column as a reason names it."""

    def __init__(self, column: Column, place: str) -> None:
        self.column = column
        self.place = place
        self.wanted = arrow_type(column.type)

    def refuse(
        self, values: pa.Array, bad: Array, reasons: Reasons, kind: str, detail: str
    ) -> pa.Array:
        """Return the values with null in the slots that are `bad`, which get a reason."""
        slots = np.flatnonzero(bad)
        if not slots.size:
            return values
        for slot in slots.tolist():
            text = shown(values[slot])
            reasons.setdefault(slot, Reason(kind=kind, detail=f"{text} {detail}", field=self.place))
        return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)


class _Integers(_Refusing):
    """Whole numbers for an int or a long; refused if they are out of its range."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        if values.type == self.wanted:
            return values
        bits = 32 if self.column.type == "int" else 64
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        bad = _outside(values, low, high)
        article = "an int" if bits == 32 else "a long"
        return self.refuse(values, bad, reasons, "range", f"does not fit {article}").cast(
            self.wanted
        )


class _Floating(_Refusing):
    """Numbers for a float or a double; refused if it would round them."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        if values.type == self.wanted:
            return values
        numbers = _numpy(values)
        kind = np.float32 if self.column.type == "float" else np.float64
        with np.errstate(over="ignore"):
            found = numbers.astype(kind)
        if np.issubdtype(numbers.dtype, np.integer):
            bad = ~_same_integers(numbers, found.astype(np.float64))
        else:
            bad = (found != numbers) & ~np.isnan(numbers)
        bad &= np.asarray(values.is_valid())
        kept = self.refuse(
            values, bad, reasons, "inexact", f"cannot be a {self.column.type} unrounded"
        )
        return kept.cast(self.wanted, safe=False)


def _same_integers(numbers: Array, found: Array) -> Array:
    """Return where doubles are equal to whole numbers; one outside of the type is not converted: C defines no result."""
    unsigned = numbers.dtype == np.uint64
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    wide = np.uint64 if unsigned else np.int64
    inside = (found >= low) & (found < high)
    same: Array = inside & (np.where(inside, found, 0).astype(wide) == numbers.astype(wide))
    return same


class _DecimalValues(_Refusing):
    """Decimals and whole numbers for a decimal; refused if they have more digits than it, before or after the point."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        if values.type == self.wanted:
            return values
        precision, scale = decimal_size(self.column.type) or (0, 0)
        if pa.types.is_integer(values.type):
            largest = 10 ** (precision - scale) - 1
            kept = self._out_of_range(values, _outside(values, -largest, largest), reasons)
            return kept.cast(pa.decimal128(20, 0)).cast(self.wanted)
        shift = scale - values.type.scale
        if shift < 0:
            # Truncated and back: what is not equal has decimals that the column's type does not have.
            short = values.cast(pa.decimal128(38, scale), safe=False)
            differs = pc.not_equal(short.cast(values.type, safe=False), values)
            bad = np.asarray(pc.fill_null(differs, False))
            values = self.refuse(values, bad, reasons, "inexact", f"has more than {scale} decimals")
        # Arrow's cast does not notice each overflow, so what is cast is known to fit.
        digits = precision - shift
        if digits < 38:
            limit = Decimal(10 ** max(digits, 0)).scaleb(-values.type.scale, _WIDE)
            over = pc.greater_equal(pc.abs(values), pa.scalar(limit, values.type))
            bad = np.asarray(pc.fill_null(over, False))
            values = self._out_of_range(values, bad, reasons)
        return values.cast(self.wanted)

    def _out_of_range(self, values: pa.Array, bad: Array, reasons: Reasons) -> pa.Array:
        return self.refuse(values, bad, reasons, "range", f"does not fit a {self.column.type}")


class _Instants(_Refusing):
    """Times of any unit in microseconds; refused outside the years 1 to 9999, and if they are finer."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        unit = values.type.unit
        counts = values.cast(pa.int64())
        if unit == "ns":
            finer = _numpy(counts) % 1_000 != 0
            counts = self.refuse(
                counts, finer, reasons, "inexact", "ns is finer than a microsecond"
            )
            return self._microseconds(_floored(counts, 1_000), reasons)
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
        return _scaled_up(self, counts, factor, reasons, unit)

    def _microseconds(self, counts: pa.Array, reasons: Reasons) -> pa.Array:
        return _scaled_up(self, counts, 1, reasons, "us")


class _Limited(_Refusing):
    """Dates, which are refused outside the years 1 to 9999, and times of day, refused outside of one day."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        if self.column.type == "date":
            bad = _outside(values.cast(pa.int32()), FIRST_DAY, END_DAY - 1)
            return self.refuse(
                values, bad, reasons, "range", "days lies outside the years 1 to 9999"
            )
        bad = _outside(values.cast(pa.int64()), 0, _DAY_US - 1)
        return self.refuse(values, bad, reasons, "range", "microseconds is no time of day")


class _Epochs(_Refusing):
    """Whole numbers by the column's parse rule."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        factor = EPOCH_FACTORS.get(self.column.parse or "")
        if factor is not None and self.column.type != "date":
            kept = values if values.type == pa.int64() else _as_long(values)
            return _scaled_up(self, kept, factor, reasons, "")
        if self.column.parse == EPOCH_DAYS:
            bad = _outside(values, FIRST_DAY, END_DAY - 1)
            detail = "days lies outside the years 1 to 9999"
            return (
                self.refuse(values, bad, reasons, "range", detail)
                .cast(pa.int32())
                .cast(self.wanted)
            )
        parse = instants.parser(self.column)
        return _each(self, values, lambda cell: parse(str(cell)), reasons)


def _scaled_up(
    checked: _Refusing, counts: pa.Array, factor: int, reasons: Reasons, unit: str
) -> pa.Array:
    """Return counts times `factor` as microseconds; those outside the years 1 to 9999 are refused."""
    bad = _outside(counts, -(-FIRST_US // factor), (END_US - 1) // factor)
    detail = f"{unit} lies outside the years 1 to 9999".strip()
    kept = checked.refuse(counts, bad, reasons, "range", detail)
    return (pc.multiply(kept, factor) if factor > 1 else kept).cast(checked.wanted)


class _Bytes(_Refusing):
    """Bytes for a binary, a fixed or a uuid; refused if they have another length."""

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        length = 16 if self.column.type == "uuid" else fixed_bytes(self.column.type)
        if length is None:
            return values.cast(pa.binary())
        if len(values) * length > halves.SLOT_BYTES_MAX:
            raise halves.ManySlotsError
        if not pa.types.is_fixed_size_binary(values.type):
            sizes = pc.fill_null(pc.binary_length(values), length)
            bad = np.asarray(sizes) != length
            values = self.refuse(values, bad, reasons, "range", f"has not {length} bytes")
            values = values.cast(pa.binary(length))
        return values if values.type == self.wanted else values.cast(self.wanted)


class _FromText(_Refusing):
    """Texts by the rules of JSON strings; numbers by the syntax of JSON numbers."""

    def __init__(self, column: Column, place: str) -> None:
        super().__init__(column, place)
        self._read = leaf_reader(column, is_key=True)
        self._exact = text_converter(column, place)

    def convert(self, values: pa.Array, reasons: Reasons) -> pa.Array:
        unproven = np.zeros(len(values), np.uint8)
        out = self._read(self._found(values, unproven))
        slots = np.flatnonzero(unproven)
        if not slots.size:
            return out
        cells: dict[int, Any] = {}
        for slot in slots.tolist():
            try:
                cells[slot] = self._exact(values[slot].as_py())
            except MismatchError as mismatch:
                reasons.setdefault(slot, mismatch.reason)
        late = pa.array([cells.get(slot) for slot in slots.tolist()], plain(self.wanted))
        places = np.arange(len(values))
        places[slots] = len(values) + np.arange(len(slots))
        return pa.concat_arrays([out, late.cast(self.wanted)]).take(pa.array(places))

    def _found(self, values: pa.Array, unproven: Array) -> FoundField:
        _, offsets, content = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        valid = np.asarray(values.is_valid())
        kind = np.full(len(values), PLAIN, np.uint8)
        if self.column.type in ("float", "double") or instants.takes_numbers(self.column):
            numbers = pc.fill_null(pc.match_substring_regex(values, _JSON_NUMBER), False)
            kind[np.asarray(numbers)] = FRACTION
        if self.column.type == "boolean":
            for literal, found in (("true", TRUE), ("false", FALSE)):
                kind[np.asarray(pc.fill_null(pc.equal(values, literal), False))] = found
        text = np.frombuffer(content, np.uint8) if content else np.zeros(1, np.uint8)
        return FoundField(
            text=text,
            kinds=np.where(valid, kind, np.uint8(NULL)),
            begins=ends[:-1],
            sizes=np.diff(ends),
            needs_exact=unproven,
        )


def _each(
    checked: _Refusing, values: pa.Array, convert: Callable[[Any], Any], reasons: Reasons
) -> pa.Array:
    """Convert value by value, for rules that are rare."""
    cells: list[Any] = []
    for slot, cell in enumerate(values.to_pylist()):
        try:
            cells.append(None if cell is None else convert(cell))
        except instants.NoInstantError as error:
            cells.append(None)
            detail = f"{shown(values[slot])} {error}"
            reasons.setdefault(slot, Reason(kind=error.kind, detail=detail, field=checked.place))
    return pa.array(cells, plain(checked.wanted)).cast(checked.wanted)


def _as_long(values: pa.Array) -> pa.Array:
    """Return whole numbers of 64 bits; larger ones become the largest, which lies outside of every calendar."""
    return (
        pc.min_element_wise(values, pa.scalar((1 << 63) - 1, values.type)).cast(pa.int64())
        if (values.type == pa.uint64())
        else values.cast(pa.int64())
    )


def _outside(values: pa.Array, low: int, high: int) -> Array:
    numbers = _numpy(values)
    info = np.iinfo(numbers.dtype)
    bad = np.zeros(len(numbers), np.bool_)
    if info.min < low:
        bad |= numbers < low
    if info.max > high:
        bad |= numbers > high
    return bad


def _floored(counts: pa.Array, factor: int) -> pa.Array:
    """Return counts divided by `factor`, of which they are multiples."""
    return pc.divide(counts, factor)


def _numpy(values: pa.Array) -> Array:
    """Return numbers without a copy; 0 in place of nulls."""
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(0, values.type))
    found: Array = values.to_numpy(zero_copy_only=False)
    return found


def shown(value: pa.Scalar) -> str:
    """Return a value in the form that the detail of a reason has."""
    cell = value.value if pa.types.is_temporal(value.type) else value.as_py()
    if isinstance(cell, str):
        return json.dumps(shorten(cell, EXCERPT_CHARS_MAX))
    if isinstance(cell, bytes):
        return f"0x{shorten(cell.hex(), EXCERPT_CHARS_MAX)}"
    if isinstance(cell, UUID | int | float | Decimal | JsonNumber):
        return shorten(str(cell), EXCERPT_CHARS_MAX)
    return shorten(repr(cell), EXCERPT_CHARS_MAX)
