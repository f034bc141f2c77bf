"""Decodes a batch of JSON values into the declared columns, exactly: rows, and dead letters with reasons.

Compiled kernels (`locate`, `read`) decode whole batches. If they cannot prove a value, `exact` decodes its record by
itself. Both give the same rows: a property test compares them. DuckDB's reader was the alternative. Even its strict mode
(1.5.5) accepts trailing commas and NaN, rounds 1.5 into an integer and reads "1" and true as 1, so that a second reader
would have to check each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.conform import conformed
from tallystick.engine.decode.decoder import Decoded, Decoder, Reason, schema_of
from tallystick.engine.decode.groups import NO_VALUE, FramedDecoder
from tallystick.engine.decode.halves import in_halves
from tallystick.engine.decode.json.arrays import column_array, require_values, rest_texts
from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.flat import FlatColumns
from tallystick.engine.decode.json.layout import Layout
from tallystick.engine.decode.json.leaves import plain
from tallystick.engine.decode.json.locate import locate
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX, MismatchError
from tallystick.engine.decode.json.scan import Array
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Format, Json
from tallystick.tables.schema import no_rows

# Arrow takes row by row, which is slow for strings and structs, and copies a run of rows as a whole. It is faster to copy
# the runs between the rows that are left out or added if these are at most one in so many.
FEW = 256


def json_decoder(declared: Format, registries: Sequence[PlannedRegistry] = ()) -> Decoder:
    """Return the decoder of a `json` format; raises InvalidPipeline for options that it does not have.

    `registries` have the schemas of a format with a registry.
    """
    json = Json.of(declared)
    if json.registry is None:
        return JsonDecoder(json)
    schemas = PlannedRegistry.schemas_of(registries, json.registry)
    content = JsonContent(json)
    return FramedDecoder(declared, schemas, lambda s: json_misfit(s) or content)


def json_misfit(schema: FrozenSchema) -> Reason | None:
    """Return why the values of a registered schema cannot be JSON texts; None if it is a JSON Schema.

    What the schema requires of the values is not checked: the columns of the format decide.
    """
    if schema.kind == "JSON":
        return None
    detail = f"expected a JSON Schema, found {schema.kind} as schema {schema.id}"
    return Reason(kind="schema", detail=detail)


class JsonDecoder:
    """A decoder of batches of one topic's values; one instance per task, no state between batches."""

    def __init__(self, decode: Json) -> None:
        self._columns = tuple(decode.columns)
        self._keep_tombstones = decode.tombstones == "keep"
        self._rest = decode.other_fields
        self._exact = ExactRow(self._columns, rest=self._rest)
        read = [c for c in self._columns if c.name != self._rest]
        self._layout = Layout(read, keep_rest=self._rest is not None)
        self._flat = FlatColumns.of(self._layout.places)
        self.schema = schema_of(decode.format)
        self._none = no_rows(self.schema)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values of a batch of records; the other columns are not read."""
        return self.decode_values(batch.column("value"))

    def decode_values(self, values: pa.BinaryArray, *, prefix: int = 0) -> Decoded:
        """Decode one value per record (null: a tombstone) into rows and dead letters; invalid values raise no error.

        `prefix`: the bytes of each value before its JSON text.
        """
        return in_halves(values, lambda part: self._decode_batch(part, prefix), self._none)

    def _decode_batch(self, values: pa.BinaryArray, prefix: int) -> Decoded:
        rows = len(values)
        needs_exact = _null(values).astype(np.uint8)
        found = locate(self._layout, values, needs_exact, bytes_max=VALUE_BYTES_MAX, prefix=prefix)
        # Of the records that `locate` has proven, the readers may leave some to the exact rules, too.
        kept = np.flatnonzero(needs_exact == 0)
        unread = np.zeros(len(kept), np.uint8)
        flat = self._flat.read(found, unread)
        arrays = {}
        for place in self._layout.places:
            require_values(place, found, unread)
            arrays[place.column.name] = column_array(place, found, unread, flat=flat)
        if self._rest is not None and self._layout.rest is not None:
            arrays[self._rest] = rest_texts(self._layout.rest, found)
        proven = pa.Table.from_arrays([arrays[c.name] for c in self._columns], schema=self.schema)
        if unread.any():
            proven = _without(proven, unread)
            needs_exact[kept[unread != 0]] = 1
            kept = kept[unread == 0]
        if len(kept) == rows:
            return Decoded(rows=proven, kept=kept, dead=np.empty(0, np.int64), reasons=())
        return self._decode_others(values, prefix, proven, kept, np.flatnonzero(needs_exact))

    def _decode_others(
        self, values: pa.BinaryArray, prefix: int, proven: pa.Table, good: Array, others: Array
    ) -> Decoded:
        """Add the records that are not proven, those at `others`, to those that are, at `good`."""
        late: list[int] = []
        late_rows: list[list[Any]] = []
        dead: list[int] = []
        reasons: list[Reason] = []
        texts = _texts(values, others, prefix)
        for position, text in zip(others.tolist(), texts, strict=True):
            found = self._decode_one(text)
            if isinstance(found, Reason):
                dead.append(position)
                reasons.append(found)
            else:
                late.append(position)
                late_rows.append(found)
        rows, kept = proven, good
        if late:
            positions = np.array(late, np.int64)
            before = np.searchsorted(good, positions)
            rows = _with(rows, self.table(late_rows), before)
            kept = np.insert(good, before, positions)
        return Decoded(rows=rows, kept=kept, dead=np.array(dead, np.int64), reasons=tuple(reasons))

    def _decode_one(self, text: bytes | None) -> list[Any] | Reason:
        if text is None:
            return [None] * len(self._columns) if self._keep_tombstones else NO_VALUE
        try:
            return self._exact.decode(text)
        except MismatchError as mismatch:
            return mismatch.reason

    def table(self, rows: list[list[Any]]) -> pa.Table:
        """Return rows of the exact decoder as a table of the declared columns."""
        if not rows:
            return no_rows(self.schema)
        arrays = [
            conformed(pa.array(cells, plain(field.type)), field.type, field.name)
            for cells, field in zip(zip(*rows, strict=True), self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _without(rows: pa.Table, marks: Array) -> pa.Table:
    """Return the rows of a table that are not marked."""
    marked = np.flatnonzero(marks)
    if len(marked) * FEW > len(rows):
        return rows.take(pa.array(np.flatnonzero(marks == 0)))
    batch = _batch(rows)
    edges = [-1, *marked.tolist(), len(rows)]
    runs = [batch.slice(left + 1, right - left - 1) for left, right in pairwise(edges)]
    return pa.Table.from_batches([pa.concat_batches(runs)])


def _with(rows: pa.Table, others: pa.Table, before: Array) -> pa.Table:
    """Return the rows of a table with others between them: `before` has the row after each of these, ascending."""
    if len(others) * FEW > len(rows):
        added = np.arange(len(rows), len(rows) + len(others))
        order = np.insert(np.arange(len(rows)), before, added)
        return pa.concat_tables([rows, others]).take(pa.array(order))
    batch, other = _batch(rows), _batch(others)
    edges = [0, *before.tolist(), len(rows)]
    runs = [batch.slice(left, right - left) for left, right in pairwise(edges)]
    # No other row follows the last run: its slice is empty.
    parts = [part for row, run in enumerate(runs) for part in (run, other.slice(row, 1))]
    return pa.Table.from_batches([pa.concat_batches(parts)])


def _batch(rows: pa.Table) -> pa.RecordBatch:
    [batch] = rows.combine_chunks().to_batches()
    return batch


def _null(values: pa.BinaryArray) -> Array:
    return np.asarray(values.is_null()) if values.null_count else np.zeros(len(values), np.bool_)


def _texts(values: pa.BinaryArray, positions: Array, prefix: int) -> Iterator[bytes | None]:
    """Yield the values at some positions without the prefix; None for null."""
    _, offsets, content = values.buffers()
    # The values are read from the buffer, because a scalar of pyarrow for each takes several times as long.
    read = memoryview(content if content is not None else b"")
    starts = np.frombuffer(offsets, np.int32)[values.offset :]
    begins, ends = starts[positions].tolist(), starts[positions + 1].tolist()
    null = _null(values)[positions].tolist()
    for begin, end, is_null in zip(begins, ends, null, strict=True):
        yield None if is_null else read[begin + prefix : end].tobytes()


class JsonContent:
    """A decoder of JSON texts that have other bytes before them."""

    def __init__(self, decode: Json) -> None:
        self._decoder = JsonDecoder(decode)

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        return self._decoder.decode_values(values, prefix=prefix)
