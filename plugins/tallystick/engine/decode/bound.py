"""Reads the declared columns from rows in the types of their format: paths, conversions, and required values.

The same rules hold for all formats with a schema (Avro, Protobuf) or with fields of text (CSV). They are those of JSON:
docs/reference/declaration.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.conform import elements_of, entries_of, repeated_keys, without_nulls
from tallystick.engine.decode.conversions import Conversion, Reasons, conversion
from tallystick.engine.decode.decoder import Decoded, Reason, shorten
from tallystick.engine.decode.json.leaves import bitmap
from tallystick.engine.decode.json.scan import Array
from tallystick.engine.decode.source import SourceRows, kept_and_dead
from tallystick.format.types import LIST, MAP, STRUCT
from tallystick.pipeline import Column
from tallystick.pipeline.paths import path_text
from tallystick.tables.schema import (
    arrow_field,
    arrow_schema,
    column_type,
    is_list,
    no_rows,
    type_name,
)

_Step = Callable[[pa.Array, Reasons], pa.Array]
PLACE_CHARS_MAX = 80


class UnboundError(ValueError):
    """A column that no value of a schema has, or has in a type that is never one of the column's."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(str(reason))


class Bound:
    """The columns of a format, bound to the types of its rows.

    Raises UnboundError if a required column is missing there, or if a column has a type that does not fit. `texts`: all
    values of the format are text, so that numbers are read from strings, too.
    """

    def __init__(
        self, columns: Sequence[Column], source: pa.StructType, *, texts: bool = False
    ) -> None:
        self._parts = tuple(_BoundPart(c, source, "", texts=texts) for c in columns)
        self._schema = arrow_schema(columns)

    @property
    def empty(self) -> pa.Table:
        """The table of no rows."""
        return no_rows(self._schema)

    def decoded(self, found: SourceRows) -> Decoded:
        """Return the rows and the dead letters of a batch."""
        reasons: Reasons = dict(found.dead)
        arrays = [part.read(found.rows, reasons) for part in self._parts]
        return kept_and_dead(pa.Table.from_arrays(arrays, schema=self._schema), reasons)


class _BoundPart:
    """A column, or a part of a nested one: the way to its value in a struct, and its conversion."""

    def __init__(self, column: Column, source: pa.DataType, above: str, *, texts: bool) -> None:
        self.place = shorten(f"{above}{path_text(column.path)}", PLACE_CHARS_MAX)
        self._column = column
        self._steps: list[_Step] = []
        kind: pa.DataType | None = source
        for step in column.path:
            kind = self._step(kind, step) if kind is not None else None
        self._convert: Conversion
        if kind is None:
            if column.required:
                raise UnboundError(
                    Reason(
                        kind="missing", detail="required, and not in the schema", field=self.place
                    )
                )
            wanted = column_type(column)
            self._steps = []
            self._convert = lambda values, _: pa.nulls(len(values), wanted)
        else:
            self._convert = _conversion(column, kind, self.place, texts=texts)

    def _step(self, kind: pa.DataType, step: str | int) -> pa.DataType | None:
        """Add one step of the path; return the type that it leads to, or None if the schema does not have it."""
        if isinstance(step, int):
            if not is_list(kind):
                raise self._mismatch(f"expected a list at [{step}], found {_named(kind)}")
            self._steps.append(lambda values, _: _element(values, step))
            return kind.value_type
        if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
            self._steps.append(lambda values, reasons: _entry(values, step, self.place, reasons))
            return kind.item_type
        if not pa.types.is_struct(kind):
            raise self._mismatch(f"expected a struct with the field {step!r}, found {_named(kind)}")
        number = kind.get_field_index(step)
        if number < 0:
            return None
        self._steps.append(lambda values, _: _field(values, number))
        return kind.field(number).type

    def _mismatch(self, detail: str) -> UnboundError:
        return UnboundError(Reason(kind="type", detail=detail, field=self.place))

    def read(self, rows: pa.Array, reasons: Reasons) -> pa.Array:
        """Return the column's values, one per slot of `rows`; slots that are refused get a reason."""
        values = rows
        for step in self._steps:
            values = step(values, reasons)
        found = self._convert(values, reasons)
        if self._column.required and found.null_count:
            absent = np.asarray(found.is_null()) & np.asarray(rows.is_valid())
            _require(absent, self.place, reasons)
        return found


def _require(absent: Array, place: str, reasons: Reasons) -> None:
    for slot in np.flatnonzero(absent).tolist():
        reasons.setdefault(slot, Reason(kind="null", detail="required and null", field=place))


def _conversion(column: Column, kind: pa.DataType, place: str, *, texts: bool) -> Conversion:
    """Return the conversion of a column's values, at any depth; raises UnboundError."""
    kinds = pa.types
    found: Conversion | None = None
    if kinds.is_null(kind):
        wanted = column_type(column)
        return lambda values, _: pa.nulls(len(values), wanted)
    if kinds.is_dictionary(kind):
        inner = _conversion(column, kind.value_type, place, texts=texts)
        return lambda values, reasons: inner(values.dictionary_decode(), reasons)
    if column.type == STRUCT:
        found = _Structs(column, kind, place, texts=texts).read if kinds.is_struct(kind) else None
    elif column.type == LIST:
        found = _Lists(column, kind, place, texts=texts).read if is_list(kind) else None
    elif column.type == MAP:
        found = _Maps(column, kind, place, texts=texts).read if kinds.is_map(kind) else None
    elif not kinds.is_nested(kind):
        found = conversion(column, kind, place, texts=texts)
    if found is None:
        detail = f"expected {column.text}, found {_named(kind)}"
        raise UnboundError(Reason(kind="type", detail=detail, field=place))
    return found


def _named(kind: pa.DataType) -> str:
    return "null" if pa.types.is_null(kind) else type_name(kind)


class _Structs:
    def __init__(self, column: Column, kind: pa.StructType, place: str, *, texts: bool) -> None:
        self._parts = tuple(_BoundPart(p, kind, f"{place}.", texts=texts) for p in column.fields)
        self._fields = [arrow_field(p) for p in column.fields]

    def read(self, values: pa.StructArray, reasons: Reasons) -> pa.StructArray:
        children = []
        for part, field in zip(self._parts, self._fields, strict=True):
            child = part.read(values, reasons)
            children.append(child if field.nullable else without_nulls(child))
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=self._fields, mask=mask)


class _Lists:
    def __init__(self, column: Column, kind: pa.ListType, place: str, *, texts: bool) -> None:
        (element,) = column.fields
        self._place = f"{place}[]"
        self._required = element.required
        self._convert = _conversion(element, kind.value_type, self._place, texts=texts)
        self._type = column_type(column)

    def read(self, values: pa.ListArray, reasons: Reasons) -> pa.ListArray:
        inner: Reasons = {}
        lengths = _lengths(values)
        elements = self._convert(elements_of(values), inner)
        if self._required and elements.null_count:
            _require(np.asarray(elements.is_null()), self._place, inner)
            elements = without_nulls(elements)
        _pass_on(inner, lengths, reasons)
        return _repeated(values, self._type, lengths, elements)


class _Maps:
    def __init__(self, column: Column, kind: pa.MapType, place: str, *, texts: bool) -> None:
        key, value = column.fields
        self._place = place
        self._required = value.required
        # A map's key is a text in most formats: numbers are read from it, as in JSON.
        self._key = _conversion(key, kind.key_type, place, texts=True)
        self._value = _conversion(value, kind.item_type, f"{place}[]", texts=texts)
        self._fields = [arrow_field(key), arrow_field(value)]
        self._type = column_type(column)

    def read(self, values: pa.MapArray, reasons: Reasons) -> pa.MapArray:
        inner: Reasons = {}
        lengths = _lengths(values)
        entries = entries_of(values)
        keys = self._key(entries.field(0), inner)
        items = self._value(entries.field(1), inner)
        if self._required and items.null_count:
            _require(np.asarray(items.is_null()), f"{self._place}[]", inner)
            items = without_nulls(items)
        for slot in repeated_keys(keys, lengths).tolist():
            twice = Reason(kind="duplicate", detail="a key occurs twice", field=self._place)
            inner.setdefault(slot, twice)
        _pass_on(inner, lengths, reasons)
        children = [without_nulls(keys), items]
        return _repeated(
            values,
            self._type,
            lengths,
            pa.StructArray.from_arrays(children, fields=self._fields),
        )


def _lengths(values: pa.Array) -> Array:
    """Return the number of elements or entries per slot; 0 for null."""
    lengths: Array = np.diff(np.asarray(values.offsets))
    return np.where(np.asarray(values.is_valid()), lengths, 0) if values.null_count else lengths


def _pass_on(inner: Reasons, lengths: Array, reasons: Reasons) -> None:
    """Give the reasons of elements or entries to the slots that hold them."""
    if inner:
        parents = np.repeat(np.arange(len(lengths)), lengths)
        for slot in sorted(inner):
            reasons.setdefault(int(parents[slot]), inner[slot])


def _repeated(values: pa.Array, kind: pa.DataType, lengths: Array, inner: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    valid = bitmap(np.asarray(values.is_valid())) if values.null_count else None
    return pa.Array.from_buffers(
        kind, len(values), [valid, pa.py_buffer(offsets)], children=[inner]
    )


def _field(values: pa.StructArray, number: int) -> pa.Array:
    """Return a field's values; null where the struct is."""
    return pc.struct_field(values, [number]) if values.null_count else values.field(number)


def _element(values: pa.ListArray, position: int) -> pa.Array:
    """Return the element at a position of each list; null if the list is null or too short."""
    begins = np.asarray(values.offsets)[:-1].astype(np.int64)
    there = _lengths(values) > position
    return values.values.take(pa.array(begins + position, mask=~there))


def _entry(values: pa.MapArray, key: str, place: str, reasons: Reasons) -> pa.Array:
    """Return the value of a key in each map; null if the map is null or has no such key.

    A map that has the key twice is refused, as it is by a column that reads the whole map.
    """
    offsets = np.asarray(values.offsets)
    places = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(values.keys, key), False)))
    places = places[(places >= offsets[0]) & (places < offsets[-1])]
    slots = np.searchsorted(offsets, places, side="right") - 1
    for slot in slots[1:][slots[1:] == slots[:-1]].tolist():
        reasons.setdefault(slot, Reason(kind="duplicate", detail="a key occurs twice", field=place))
    taken = np.full(len(values), -1, np.int64)
    taken[slots] = places
    absent = (taken < 0) | np.asarray(values.is_null())
    return values.items.take(pa.array(taken, mask=absent))
