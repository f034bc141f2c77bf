"""Builds the Arrow arrays of a layout's columns from the values that `locate` found, at any depth.

A reader marks the slots that it cannot prove. Inside of a list or a map a slot is an element or entry: its record is
marked, and `exact` decodes the whole record.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from tallystick.engine.conform import repeated_keys, without_nulls
from tallystick.engine.decode.json import read as json_read
from tallystick.engine.decode.json import scan as json_scan
from tallystick.engine.decode.json.layout import FIELDS, ColumnPlace, Node
from tallystick.engine.decode.json.leaves import bitmap, leaf_reader
from tallystick.engine.decode.json.locate import Found
from tallystick.engine.decode.json.scan import Array
from tallystick.format.types import LIST, MAP, STRUCT
from tallystick.tables.schema import arrow_field, column_type


def column_array(
    place: ColumnPlace,
    found: Found,
    needs_exact: Array,
    *,
    is_key: bool = False,
    flat: Mapping[ColumnPlace, pa.Array] = MappingProxyType({}),
) -> pa.Array:
    """Return the values of a column, one per slot of its scope; mark the slots that are not proven in `needs_exact`.

    `is_key`: the column is the key of a map, whose numbers are strings. `flat`: the columns that have been read.
    """
    for node in place.above:
        _require(found.of(node.number, "kinds"), _container(node), needs_exact)
    column, number = place.column, place.node.number
    kinds = found.of(number, "kinds")
    if column.type == STRUCT:
        return _struct_array(place, found, kinds, needs_exact, flat)
    if column.type in (LIST, MAP):
        return _repeated_array(place, found, kinds, needs_exact)
    if place in flat:
        return flat[place]
    return leaf_reader(column, is_key=is_key)(found.field(number, needs_exact))


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
    place: ColumnPlace,
    found: Found,
    kinds: Array,
    needs_exact: Array,
    flat: Mapping[ColumnPlace, pa.Array],
) -> pa.StructArray:
    present = _require(kinds, json_scan.OBJECT, needs_exact)
    children = []
    for part in place.parts:
        if part.column.required:
            absent = found.of(part.node.number, "kinds") <= json_scan.NULL
            needs_exact |= present & absent
        child = column_array(part, found, needs_exact, flat=flat)
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
    valid = None if present.all() else bitmap(present)
    return pa.Array.from_buffers(
        column_type(place.column),
        len(lengths),
        [valid, pa.py_buffer(offsets)],
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
