"""Reads batches of Avro records into Arrow arrays of Avro's own types, with a reason per record that is not valid.

The kinds of reasons are:

    truncated  a value runs past the end     trailing  bytes after the end of the record
    varint     a number is too long          length    a length is negative or wrong
    union      no such branch                enum      no such symbol
    boolean    a byte is neither 0 nor 1     depth     nested deeper than 64
    size       too many elements or bytes    utf8      a string is not UTF-8
    range      a decimal has more than 38 digits
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.conform import without_nulls
from tallystick.engine.decode import halves
from tallystick.engine.decode.avro import kernel
from tallystick.engine.decode.avro.kernel import SlotArrays, VerdictArrays
from tallystick.engine.decode.avro.program import AvroNode, Program
from tallystick.engine.decode.avro.schema import ARRAY, ENUM, FIXED, MAP, RECORD, UNION, avro_schema
from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.halves import ELEMENTS_MAX, check_slots
from tallystick.engine.decode.json.leaves import bitmap
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.json.scan import Array
from tallystick.engine.decode.source import SourceRows, Wanted

_VERDICTS = {
    kernel.TRUNCATED: ("truncated", "the value runs past the end of the record"),
    kernel.VARINT: ("varint", "the number has more bits than its type"),
    kernel.NEGATIVE: ("length", "the length is negative"),
    kernel.BLOCK: ("length", "the block has another size than it states"),
    kernel.BRANCH: ("union", "the union has no such branch"),
    kernel.SYMBOL: ("enum", "the enum has no such symbol"),
    kernel.BOOL: ("boolean", "the byte is neither 0 nor 1"),
    kernel.DEPTH: ("depth", f"nested deeper than {kernel.DEPTH_MAX}"),
    kernel.SIZE: ("size", f"the record has more than {ELEMENTS_MAX} elements"),
    kernel.EMPTY: ("size", f"the record has more than {kernel.EMPTY_MAX} elements without bytes"),
    kernel.TRAILING: ("trailing", "the record has more bytes than its schema describes"),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_NUMPY = {"int": np.int32, "long": np.int64, "date": np.int32}
_SLOT_BYTES = 13
_EMPTY = np.zeros(1, np.uint8)


class AvroReader:
    """A reader of the records of one schema.

    `fields` are those that are read; a value whose schema is no record has one field, `value`. `references`: the schemas
    whose names the schema uses. Raises InvalidPipeline if the schema is not valid.
    """

    def __init__(self, text: str, fields: Wanted, references: Iterable[str] = ()) -> None:
        self._program = Program(avro_schema(text, references), fields)
        self.schema: pa.StructType = _arrow_type(self._program.root)

    def read(self, values: pa.BinaryArray, *, prefix: int = 0) -> SourceRows:
        """Read a batch of values without null. `prefix`: the bytes of each value before its Avro content.

        Raises ManySlotsError if the records have too many elements together.
        """
        run = _AvroBatch(self._program, values, prefix)
        rows = run.array(self._program.root)
        return SourceRows(rows=rows, dead=run.reasons())


class _AvroBatch:
    """One batch, read by a program."""

    def __init__(self, program: Program, values: pa.BinaryArray, prefix: int) -> None:
        _, offsets, content = values.buffers()
        self._program = program
        self._rows = len(values)
        self._text = (
            np.frombuffer(content, np.uint8) if content is not None and content.size else _EMPTY
        )
        starts = np.zeros(1, np.int32)
        if offsets is not None and offsets.size:
            starts = np.frombuffer(offsets, np.int32)[values.offset :][: self._rows + 1]
        self._verdicts = VerdictArrays(
            code=np.zeros(self._rows, np.uint8),
            at=np.zeros(self._rows, np.int32),
            instruction=np.zeros(self._rows, np.int32),
        )
        sizes = np.diff(starts)
        self._verdicts.code[sizes > VALUE_BYTES_MAX] = kernel.SIZE
        self._verdicts.code[sizes < prefix] = kernel.TRUNCATED
        self._extra: dict[int, Reason] = {}
        capacity = np.full(program.scopes, max(self._rows, 16), np.int64)
        self._slots = self._room(capacity)
        self._slots.used[0] = self._rows
        row = 0
        while row < self._rows:
            row = kernel.read_records(
                self._text, starts, row, prefix, program.arrays, self._slots, self._verdicts
            )
            if row < self._rows:
                self._grow()
        # A slot of an inner scope belongs to a record; a bad string or decimal in it makes that record dead.
        self._owners: dict[int, Array] = {0: np.arange(self._rows)}

    def _room(self, capacity: Array) -> SlotArrays:
        scopes = self._program.arrays.scopes
        base = np.concatenate([[0], np.cumsum(capacity[scopes])]).astype(np.int64)
        total = int(base[-1])
        return SlotArrays(
            present=np.zeros(total, np.uint8),
            values=np.empty(total, np.int64),
            length=np.zeros(total if self._program.scopes > 1 else 0, np.int32),
            base=base,
            used=np.zeros(len(capacity), np.int64),
            capacity=capacity,
            full=np.zeros(len(capacity), np.bool_),
            before=np.zeros(len(capacity), np.int64),
        )

    def _grow(self) -> None:
        """Make room for four times as many slots in each scope that had no room."""
        old = self._slots
        capacity = np.where(old.full, old.capacity * 4, old.capacity)
        slots = int(capacity[self._program.arrays.scopes].sum())
        check_slots(slots * _SLOT_BYTES, self._rows)
        new = self._room(capacity)
        new.used[:] = old.used
        for node in self._program.nodes:
            before, after = int(old.base[node.number]), int(new.base[node.number])
            count = int(old.used[node.scope])
            for a, b in zip(old[:3], new[:3], strict=True):
                b[after : after + count] = a[before : before + count]
        self._slots = new

    def _of(self, number: int, what: str) -> Array:
        begin = int(self._slots.base[number])
        count = int(self._slots.used[self._program.nodes[number].scope])
        found: Array = getattr(self._slots, what)
        return found[begin : begin + count]

    def reasons(self) -> dict[int, Reason]:
        """Return the reason of each record that is dead."""
        found: dict[int, Reason] = {}
        for row in np.flatnonzero(self._verdicts.code).tolist():
            kind, detail = _VERDICTS[int(self._verdicts.code[row])]
            place = self._program.place(int(self._verdicts.instruction[row]))
            at = int(self._verdicts.at[row])
            found[row] = Reason(kind=kind, detail=f"{detail} (byte {at})", field=place or None)
        return {**self._extra, **found}

    def _refuse(self, node: AvroNode, slots: Array, kind: str, detail: str) -> None:
        owners = self._owners[node.scope]
        for slot in slots.tolist():
            reason = Reason(kind=kind, detail=detail, field=node.place)
            self._extra.setdefault(int(owners[slot]), reason)

    def array(self, node: AvroNode) -> pa.Array:
        """Return the values of a node, one per slot of its scope."""
        kind = node.type
        if kind.kind in (RECORD, UNION):
            return self._struct(node)
        if kind.kind in (ARRAY, MAP):
            return self._repeated(node)
        if kind.kind == "null":
            return pa.nulls(int(self._slots.used[node.scope]))
        present, values = self._of(node.number, "present"), self._of(node.number, "values")
        if kind.logical == "decimal":
            return self._decimals(node, present, values)
        if kind.kind in ("bytes", "string", FIXED):
            return self._bytes(node, present, values)
        return _numbers(node, present, values)

    def _struct(self, node: AvroNode) -> pa.StructArray:
        present = self._of(node.number, "present")
        children = [self.array(part) for _, part in node.parts]
        fields = [
            pa.field(name, child.type)
            for (name, _), child in zip(node.parts, children, strict=True)
        ]
        valid = None if node.number == 0 or present.all() else pa.array(present == 0)
        if not children:
            bits = None if valid is None else bitmap(present)
            return pa.Array.from_buffers(pa.struct([]), len(present), [bits], children=[])
        return pa.StructArray.from_arrays(children, fields=fields, mask=valid)

    def _repeated(self, node: AvroNode) -> pa.Array:
        present, lengths = self._of(node.number, "present"), self._of(node.number, "length")
        self._owners[node.inner] = np.repeat(self._owners[node.scope], lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        element = self.array(node.parts[0][1])
        kind: pa.DataType = pa.list_(element.type)
        if node.type.kind == MAP:
            keys = without_nulls(self.array(self._program.nodes[node.key]))
            kind = pa.map_(pa.string(), element.type)
            element = pa.StructArray.from_arrays(
                [keys, element], fields=[kind.key_field, kind.item_field]
            )
        valid = None if present.all() else bitmap(present)
        return pa.Array.from_buffers(
            kind, len(lengths), [valid, pa.py_buffer(offsets)], children=[element]
        )

    def _bytes(self, node: AvroNode, present: Array, spans: Array) -> pa.Array:
        sizes = np.where(present, spans & 0xFFFFFFFF, 0)
        valid = None if present.all() else bitmap(present)
        if node.type.kind == FIXED:
            return self._fixed(node, present, spans)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        out = np.empty(int(offsets[-1]), np.uint8)
        kernel.copy_bytes(self._text, spans, offsets, out)
        found = pa.Array.from_buffers(
            pa.binary(), len(spans), [valid, pa.py_buffer(offsets), pa.py_buffer(out)]
        )
        return found if node.type.kind == "bytes" else self._strings(node, found)

    def _strings(self, node: AvroNode, values: pa.BinaryArray) -> pa.StringArray:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            # Arrow validates a whole column; only one with an invalid string is searched.
            cells = values.to_pylist()
            bad = np.array([not _is_utf8(cell) for cell in cells])
            self._refuse(node, np.flatnonzero(bad), "utf8", "the string is not UTF-8")
            # Not null: a map's key cannot be null.
            return pc.if_else(pa.array(bad), b"", values).cast(pa.string())

    def _fixed(self, node: AvroNode, present: Array, spans: Array) -> pa.Array:
        size = node.type.size
        if size * len(spans) > halves.SLOT_BYTES_MAX:
            raise halves.ManySlotsError
        out = np.zeros((len(spans), size), np.uint8)
        there = np.flatnonzero(present)
        places = (spans[there] >> 32)[:, None] + np.arange(size)
        out[there] = self._text[places]
        valid = None if present.all() else bitmap(present)
        found = pa.Array.from_buffers(pa.binary(size), len(spans), [valid, pa.py_buffer(out)])
        return found.cast(pa.uuid()) if node.type.logical == "uuid" else found

    def _decimals(self, node: AvroNode, present: Array, spans: Array) -> pa.Array:
        out = np.zeros((len(spans), 2), np.int64)
        bad = np.zeros(len(spans), np.bool_)
        kernel.read_decimals(self._text, spans, present, out, bad)
        if bad.any():
            self._refuse(node, np.flatnonzero(bad), "range", "the decimal has more than 38 digits")
            out[bad] = 0
        valid = None if present.all() else bitmap(present)
        kind = pa.decimal128(38, node.type.scale)
        return pa.Array.from_buffers(kind, len(spans), [valid, pa.py_buffer(out)])


def _is_utf8(cell: bytes | None) -> bool:
    try:
        return cell is None or cell.decode() is not None
    except UnicodeDecodeError:
        return False


def _numbers(node: AvroNode, present: Array, values: Array) -> pa.Array:
    kind = _arrow_type(node)
    valid = None if present.all() else bitmap(present)
    if node.type.kind == ENUM:
        indices = pa.array(np.where(present, values, 0).astype(np.int32), mask=present == 0)
        return pa.DictionaryArray.from_arrays(indices, pa.array(node.type.symbols)).cast(
            pa.string()
        )
    if node.type.kind == "boolean":
        packed = np.packbits(np.where(present, values, 0).astype(np.bool_), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(packed)])
    if node.type.logical == "time-millis":
        values = values * 1_000
    if node.type.kind == "float":
        values = values.astype(np.uint32)
    elif kind in (pa.int32(), pa.date32()):
        values = values.astype(np.int32)
    return pa.Array.from_buffers(
        kind, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _arrow_type(node: AvroNode) -> pa.DataType:
    """Return the Arrow type of a node's values."""
    kind = node.type
    if kind.kind in (RECORD, UNION):
        return pa.struct([pa.field(name, _arrow_type(part)) for name, part in node.parts])
    if kind.kind == ARRAY:
        return pa.list_(_arrow_type(node.parts[0][1]))
    if kind.kind == MAP:
        return pa.map_(pa.string(), _arrow_type(node.parts[0][1]))
    if kind.logical.startswith(("timestamp-", "local-timestamp-")):
        name, _, unit = kind.logical.rpartition("-")
        return pa.timestamp(_UNITS[unit], tz=None if name.startswith("local") else "UTC")
    logical = {
        "date": pa.date32(),
        "time-millis": pa.time64("us"),
        "time-micros": pa.time64("us"),
        "decimal": pa.decimal128(38, kind.scale),
        "uuid": pa.uuid() if kind.kind == FIXED else pa.string(),
    }
    if kind.logical:
        return logical[kind.logical]
    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        ENUM: pa.string(),
        FIXED: pa.binary(kind.size) if kind.size else pa.binary(),
    }[kind.kind]
