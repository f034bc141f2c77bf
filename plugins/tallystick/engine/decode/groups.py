"""Decodes the values of a batch in groups: those of one schema at a time, tombstones and unreadable ones apart.

In Confluent's wire format a value begins with a zero byte and the id of its schema in four bytes, big-endian. A Protobuf
value then has the position of its message in the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, Positions, Reason, schema_of
from tallystick.engine.decode.json.scan import Array
from tallystick.errors import listed
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Format
from tallystick.tables.schema import no_rows

HEADER_BYTES = 5
IDS_SHOWN = 20
NO_VALUE = Reason(kind="tombstone", detail="the value is null")


class ContentDecoder(Protocol):
    """A decoder of values of one schema."""

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        ...


class PlainDecoder:
    """A decoder of values that all have one schema."""

    def __init__(self, declared: Format, content: ContentDecoder) -> None:
        self._parts = _Parts(declared)
        self._content = content

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values of a batch of records; the other columns are not read."""
        values = batch.column("value")
        if not values.null_count:
            return self._content.decode(values, prefix=0)
        parts = self._parts.of(values)
        there = np.flatnonzero(np.asarray(values.is_valid()))
        parts.add(there, self._content.decode(values.take(pa.array(there)), prefix=0))
        return parts.joined()


class FramedDecoder:
    """A decoder of values in Confluent's wire format.

    `schemas` are those of the plan, by id. `content_of` returns the decoder of a schema, or the reason why its values
    cannot be read into the columns; it is called once per schema that a task finds.
    """

    def __init__(
        self,
        declared: Format,
        schemas: Mapping[int, FrozenSchema],
        content_of: Callable[[FrozenSchema], ContentDecoder | Reason],
    ) -> None:
        self._parts = _Parts(declared)
        self._schemas = schemas
        self._content_of = content_of
        self._contents: dict[int, ContentDecoder | Reason] = {}
        self._known = listed(sorted(schemas)[:IDS_SHOWN]) if schemas else "none"

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values of a batch of records; the other columns are not read."""
        values = batch.column("value")
        ids = schema_ids(values)
        if len(ids) and (ids == ids[0]).all() and int(ids[0]) in self._schemas:
            content = self._content(int(ids[0]))
            if not isinstance(content, Reason):
                return content.decode(values, prefix=HEADER_BYTES)
        parts = self._parts.of(values)
        for positions in _grouped(ids):
            number = int(ids[positions[0]])
            if number == _UNFRAMED or (number >= 0 and number not in self._schemas):
                # Values can have any ids, so their reasons are not kept.
                for position in positions.tolist():
                    parts.refuse(np.array([position]), self._unreadable(values, position, number))
            elif number >= 0:
                content = self._content(number)
                if isinstance(content, Reason):
                    parts.refuse(positions, content)
                else:
                    taken = values.take(pa.array(positions))
                    parts.add(positions, content.decode(taken, prefix=HEADER_BYTES))
        return parts.joined()

    def _unreadable(self, values: pa.BinaryArray, position: int, number: int) -> Reason:
        if number == _UNFRAMED:
            return _unframed(values[position].as_py())
        detail = f"expected a schema id of the plan ({self._known}), found {number}"
        return Reason(kind="schema_id", detail=detail)

    def _content(self, number: int) -> ContentDecoder | Reason:
        if number not in self._contents:
            self._contents[number] = self._content_of(self._schemas[number])
        return self._contents[number]


def _grouped(ids: Array) -> list[Positions]:
    """Return the positions of each id, ascending."""
    if not len(ids):
        return []
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)


_NULL, _UNFRAMED = -1, -2


def schema_ids(values: pa.BinaryArray) -> Array:
    """Return the schema id of each value in the wire format; -1 for null, -2 for a value that is not in it."""
    _, offsets, content = values.buffers()
    ids = np.full(len(values), _UNFRAMED, np.int64)
    if content is not None and content.size:
        text = np.frombuffer(content, np.uint8)
        starts = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
        begins = starts[:-1].astype(np.int64)
        large = np.flatnonzero(np.diff(starts) >= HEADER_BYTES)
        framed = large[text[begins[large]] == 0]
        at = begins[framed]
        number = np.zeros(len(framed), np.int64)
        for byte in range(1, HEADER_BYTES):
            number = number << 8 | text[at + byte]
        # An id is a signed integer of four bytes, which no registry gives below zero.
        ids[framed] = np.where(number < 1 << 31, number, _UNFRAMED)
    if values.null_count:
        ids[np.asarray(values.is_null())] = _NULL
    return ids


def _unframed(value: bytes) -> Reason:
    if len(value) < HEADER_BYTES:
        detail = f"expected a zero byte and a schema id, found {len(value)} bytes"
    elif value[0]:
        detail = f"expected a zero byte as the first, found 0x{value[:8].hex()}"
    else:
        detail = f"expected a schema id from 0 to 2147483647, found 0x{value[1:5].hex()}"
    return Reason(kind="magic", detail=detail)


class _Parts:
    """How the parts of a batch are joined: rows in the order of the records."""

    def __init__(self, declared: Format) -> None:
        self._schema = schema_of(declared)
        self._keeps_tombstones = declared.options.get("tombstones") == "keep"

    def of(self, values: pa.BinaryArray) -> BatchParts:
        """Return the parts of one batch, with the rows or dead letters of its tombstones."""
        parts = BatchParts(len(values), self._schema)
        if values.null_count:
            null = np.flatnonzero(np.asarray(values.is_null()))
            if self._keeps_tombstones:
                parts.add_nulls(null)
            else:
                parts.refuse(null, NO_VALUE)
        return parts


class BatchParts:
    """The parts of one batch: rows and dead letters by their positions."""

    def __init__(self, rows: int, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._kept: list[Positions] = []
        self._dead: dict[int, Reason] = {}

    def add(self, positions: Positions, decoded: Decoded) -> None:
        """Add the result of the values at `positions`."""
        self._tables.append(decoded.rows)
        self._kept.append(positions[decoded.kept])
        self._dead.update(zip(positions[decoded.dead].tolist(), decoded.reasons, strict=True))

    def add_nulls(self, positions: Positions) -> None:
        """Add rows whose columns are all null."""
        nulls = [pa.nulls(len(positions), field.type) for field in self._schema]
        self._tables.append(pa.Table.from_arrays(nulls, schema=self._schema))
        self._kept.append(positions)

    def refuse(self, positions: Positions, reason: Reason) -> None:
        """Add dead letters of one reason."""
        self._dead.update(dict.fromkeys(positions.tolist(), reason))

    def joined(self) -> Decoded:
        """Return all parts as one result."""
        kept = np.concatenate([np.empty(0, np.int64), *self._kept])
        rows = pa.concat_tables([no_rows(self._schema), *self._tables]).combine_chunks()
        order = np.argsort(kept, kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            rows, kept = rows.take(pa.array(order)), kept[order]
        dead = sorted(self._dead)
        return Decoded(
            rows=rows,
            kept=kept,
            dead=np.array(dead, np.int64),
            reasons=tuple(self._dead[position] for position in dead),
        )
