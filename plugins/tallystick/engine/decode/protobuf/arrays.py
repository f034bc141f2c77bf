"""Builds the Arrow arrays of a message's fields from the values that `parse` found, and the reasons for dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.conform import repeated_keys
from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.protobuf import parse as wire
from tallystick.engine.decode.protobuf import texts
from tallystick.engine.decode.protobuf.kinds import (
    BINARY,
    BOOLEAN,
    ENTRY,
    ENUM,
    LIST,
    MAP,
    NUMBER,
    STRUCT,
    TEXT,
    TIMESTAMP,
    WRAPPER,
)
from tallystick.engine.decode.protobuf.program import Array
from tallystick.engine.decode.protobuf.slots import MessageSlots
from tallystick.engine.decode.protobuf.tree import MessageNode, MessageTree
from tallystick.engine.decode.source import SourceRows
from tallystick.tables.calendar import END_US, FIRST_US, ONLY_THESE

_SECOND_US = 1_000_000
_SECOND_NS = 1_000_000_000
_EXCERPT_BYTES_MAX = 40
# Numbers of an enum in a range up to this are looked up in a table.
_TABLE_MAX = 1 << 12


class MessageArrays:
    """One batch's arrays. The first reason of a record is kept."""

    def __init__(self, tree: MessageTree, text: Array, offsets: Array, slots: MessageSlots) -> None:
        self._tree = tree
        self._text = text
        self._offsets = offsets
        self._slots = slots
        self._dead: dict[int, Reason] = {}
        self._replaced: dict[int, Array] = {}

    def rows(self) -> SourceRows:
        """Return one struct per record, and the reasons of the dead ones."""
        self._add_faults()
        found = self._struct(self._tree.root)
        return SourceRows(rows=found, dead=self._dead)

    # ------------------------------------------------------------ what was found

    def _count(self, node: MessageNode) -> int:
        return int(self._slots.used[node.scope])

    def _values(self, node: MessageNode) -> Array:
        begin = int(self._slots.base[node.number])
        found: Array = self._slots.values[begin : begin + self._count(node)]
        return found

    def _present(self, node: MessageNode) -> Array:
        begin = int(self._slots.base[node.number])
        found: Array = self._slots.present[begin : begin + self._count(node)]
        return found

    def _records(self, scope: int) -> Array:
        """Return the record of each slot of a scope; -1 for slots inside of replaced entries of maps."""
        above = self._tree.lists[scope]
        if above is None:
            found: Array = np.arange(int(self._slots.used[0]))
            return found
        records = np.repeat(self._records(above.scope), self._values(above))
        if scope in self._replaced:
            records[self._replaced[scope]] = -1
        return records

    # ------------------------------------------------------------ reasons

    def _refuse(
        self, node: MessageNode, wrong: Array, kind: str, detail: Callable[[int], str]
    ) -> None:
        """Add a reason for each record with a slot in `wrong`; `detail` returns the text for a slot."""
        slots = np.flatnonzero(wrong)
        records = self._records(node.scope)[slots]
        for record, slot in zip(records.tolist(), slots.tolist(), strict=True):
            if record >= 0 and record not in self._dead:
                self._dead[record] = Reason(kind=kind, detail=detail(slot), field=node.place)

    def _add_faults(self) -> None:
        found = self._slots
        for row in np.flatnonzero(found.faults).tolist():
            at = int(found.fault_at[row]) - int(self._offsets[row])
            size = int(self._offsets[row + 1]) - int(self._offsets[row])
            known = int(found.fault_nodes[row])
            place = self._tree.nodes[known].place if known < len(self._tree.nodes) else ""
            kind, detail = _fault(
                int(found.faults[row]),
                at,
                int(found.fault_found[row]),
                f"{found.fault_left[row]} of {size}",
            )
            self._dead[row] = Reason(kind=kind, detail=detail, field=place or None)

    # ------------------------------------------------------------ arrays

    def _array(self, node: MessageNode) -> pa.Array:
        """Return the values of a node, one per slot of its scope."""
        if node.is_required:
            self._require(node)
        found = self._readers[node.form](self, node)
        if node.default is not None and found.null_count:
            default = node.default
            if node.form == ENUM:
                default = node.enum.values_by_number[default].name
            found = pc.fill_null(found, pa.scalar(default, found.type))
        return found

    def _require(self, node: MessageNode) -> None:
        absent = self._present(node) == 0
        above = self._tree.nodes[node.above]
        # The value of a map's entry is an empty message if it is absent.
        if node.above and self._tree.nodes[above.above].form != ENTRY:
            absent &= self._present(above) != 0
        if absent.any():
            self._refuse(node, absent, "missing", lambda _: "the field is required and absent")

    def _bitmap(self, node: MessageNode) -> pa.Buffer | None:
        """Return the validity of a node's slots; None if no slot is null."""
        if not node.is_nullable and node.default is None:
            return None
        present = self._present(node)
        if present.all():
            return None
        return pa.py_buffer(np.packbits(present, bitorder="little").tobytes())

    def _made(self, node: MessageNode, kind: pa.DataType, *buffers: Array) -> pa.Array:
        filled = [pa.py_buffer(np.ascontiguousarray(one)) for one in buffers]
        return pa.Array.from_buffers(kind, self._count(node), [self._bitmap(node), *filled])

    def _struct(self, node: MessageNode) -> pa.StructArray:
        return pa.Array.from_buffers(
            node.type,
            self._count(node),
            [None if node.number == 0 else self._bitmap(node)],
            children=[self._array(part) for part in node.read_parts],
        )

    def _numbers(self, node: MessageNode) -> pa.Array:
        values = self._values(node)
        width = node.type.bit_width // 8
        return self._made(node, node.type, values if width == 8 else values.astype(f"i{width}"))

    def _booleans(self, node: MessageNode) -> pa.Array:
        bits = np.packbits(self._values(node) != 0, bitorder="little")
        return self._made(node, pa.bool_(), bits)

    def _binaries(self, node: MessageNode) -> pa.Array:
        spans = self._values(node)
        offsets = np.empty(len(spans) + 1, np.int32)
        texts.measure_texts(spans, offsets)
        out = np.empty(int(offsets[-1]), np.uint8)
        texts.copy_texts(self._text, spans, out)
        return self._made(node, pa.binary(), offsets, out)

    def _texts(self, node: MessageNode) -> pa.Array:
        found = self._binaries(node)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            problems = {
                slot: problem
                for slot, value in enumerate(found.to_pylist())
                if value is not None and (problem := _utf8_problem(value))
            }
        wrong = np.zeros(len(found), np.bool_)
        wrong[list(problems)] = True
        self._refuse(node, wrong, "utf8", lambda slot: problems[slot])
        self._values(node)[wrong] = 0
        return self._binaries(node).cast(pa.string())

    def _enums(self, node: MessageNode) -> pa.Array:
        numbers = self._values(node)
        known = np.array(sorted(node.enum.values_by_number), np.int64)
        low, span = int(known[0]), int(known[-1] - known[0]) + 1
        if span <= _TABLE_MAX:
            table = np.full(span + 1, -1, np.int64)
            table[known - low] = np.arange(len(known))
            shifted = numbers - low
            # The last place of the table is that of all numbers outside of the range.
            places = table[np.where((shifted < 0) | (shifted >= span), span, shifted)]
        else:
            places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            places[known[places] != numbers] = -1
        # An absent value is 0, which is not a number of every enum.
        wrong = (places < 0) & (self._present(node) != 0)
        if wrong.any():
            name = node.enum.full_name
            self._refuse(
                node,
                wrong,
                "enum",
                lambda slot: f"expected the number of a value of {name}, found {numbers[slot]}",
            )
        names = pa.array([node.enum.values_by_number[one].name for one in known.tolist()])
        found = names.take(pa.array(np.maximum(places, 0)))
        bitmap = self._bitmap(node)
        if bitmap is None:
            return found
        return pa.Array.from_buffers(pa.string(), len(found), [bitmap, *found.buffers()[1:]])

    def _timestamps(self, node: MessageNode) -> pa.Array:
        seconds, nanos = (
            self._values(next(p for p in node.parts if p.name == name))
            for name in ("seconds", "nanos")
        )
        outside = (seconds < FIRST_US // _SECOND_US) | (seconds >= END_US // _SECOND_US)
        outside |= (nanos < 0) | (nanos >= _SECOND_NS)
        if outside.any():
            self._refuse(
                node,
                outside,
                "range",
                lambda slot: (
                    f"{seconds[slot]} seconds since 1970 and {nanos[slot]} nanoseconds {ONLY_THESE}"
                    if 0 <= nanos[slot] < _SECOND_NS
                    else f"expected 0 to 999999999 nanoseconds, found {nanos[slot]}"
                ),
            )
        inexact = (nanos % 1000 != 0) & ~outside
        if inexact.any():
            self._refuse(
                node,
                inexact,
                "inexact",
                lambda slot: f"expected whole microseconds, found {nanos[slot]} nanoseconds",
            )
        micros = np.where(outside, 0, seconds) * _SECOND_US + np.where(outside, 0, nanos) // 1000
        return self._made(node, node.type, micros)

    def _wrapped(self, node: MessageNode) -> pa.Array:
        """Return the values of a wrapper message, which is null if the message is absent."""
        found = self._array(node.parts[0])
        bitmap = self._bitmap(node)
        if bitmap is None:
            return found
        return pa.Array.from_buffers(found.type, len(found), [bitmap, *found.buffers()[1:]])

    def _list(self, node: MessageNode) -> pa.Array:
        (element,) = node.parts
        return self._repeated(node, self._values(node), self._array(element))

    def _map(self, node: MessageNode) -> pa.Array:
        """Return maps of each key's last entry."""
        key, item = node.parts[0].parts
        lengths = self._values(node)
        replaced = self._replaced_entries(key, lengths)
        self._replaced[node.inner] = replaced
        keys, items = self._array(key), self._array(item)
        if replaced.any():
            maps = np.repeat(np.arange(len(lengths)), lengths)
            lengths = lengths - np.bincount(maps[replaced], minlength=len(lengths))
            kept = pa.array(~replaced)
            keys, items = keys.filter(kept), items.filter(kept)
        entry = pa.struct([node.type.key_field, node.type.item_field])
        entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
        return self._repeated(node, lengths, entries)

    def _replaced_entries(self, key: MessageNode, lengths: Array) -> Array:
        """Return for each entry whether a later one of its map has the same key."""
        is_text = key.form == TEXT
        keys = self._values(key)
        replaced = np.zeros(len(keys), np.bool_)
        if texts.mark_replaced(self._text, keys, is_text, lengths, replaced):
            found = self._binaries(key) if is_text else pa.array(keys)
            backwards = pa.array(np.arange(len(keys))[::-1])
            earlier = repeated_keys(found.take(backwards), lengths[::-1])
            replaced[len(keys) - 1 - earlier] = True
        return replaced

    def _repeated(self, node: MessageNode, lengths: Array, inside: pa.Array) -> pa.Array:
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.Array.from_buffers(
            node.type, len(lengths), [None, pa.py_buffer(offsets)], children=[inside]
        )

    _readers: ClassVar[dict[int, Callable[[Any, MessageNode], pa.Array]]] = {
        NUMBER: _numbers,
        BOOLEAN: _booleans,
        TEXT: _texts,
        BINARY: _binaries,
        ENUM: _enums,
        STRUCT: _struct,
        TIMESTAMP: _timestamps,
        WRAPPER: _wrapped,
        LIST: _list,
        MAP: _map,
    }


def _utf8_problem(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        part = value[error.start : error.start + _EXCERPT_BYTES_MAX]
        return f"byte {error.start} of the text is not UTF-8, found {part.hex()}"
    return None


def _fault(kind: int, at: int, found: int, left: str) -> tuple[str, str]:
    """Return the kind and detail of a record's fault, in the field that begins at byte `at`."""
    if kind == wire.TRUNCATED:
        if found:
            return "truncated", f"byte {at}: expected {found} bytes more, found {left}"
        return "truncated", f"byte {at}: the bytes end inside of a number or a group"
    if kind == wire.LONG_NUMBER:
        return "varint", f"byte {at}: expected a number of at most 10 bytes, found more"
    if kind == wire.BAD_TAG:
        if found < 0:
            return "tag", f"byte {at}: expected a tag of 32 bits, found more"
        return "tag", f"byte {at}: found field number {found >> 3} with wire type {found & 7}"
    if kind == wire.TOO_DEEP:
        return "depth", f"byte {at}: nested deeper than {wire.DEPTH_MAX}"
    if kind == wire.TOO_MANY:
        return "size", f"more than {ELEMENTS_MAX} elements of lists and maps"
    return "size", f"the value has {found} bytes, more than {VALUE_BYTES_MAX}"
