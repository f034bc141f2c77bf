"""Decodes records into Arrow columns: each byte is copied once, from the decompressed batch into its column's buffer.

Importing this module loads the compiled loops (`kernels`), or compiles them if there is no cache yet. Call `warm` in a
set-up to fill the cache.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tallystick.kafka.batches import Batch, damaged
from tallystick.kafka.kernels import (
    KEYS_FULL,
    OK,
    PROBLEMS,
    VALUES_FULL,
    decode_headers,
    decode_records,
)

TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
HEADER: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)
HEADERS: Final = pa.list_(pa.field("item", HEADER, nullable=False))
_FIELDS: Final = (
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
)
INT32_MAX: Final = 2**31 - 1
_UNUSED_SHARE: Final = 8
# Packed into the array's memory: to assign a tuple to an array of numpy takes several times as long.
_FIELDS_OF_BATCH: Final = struct.Struct("=8q")


def columns_schema(*, headers: bool) -> pa.Schema:
    """Return the columns of a read: offset, timestamp, key, value, and headers if requested."""
    return pa.schema(
        [*_FIELDS, pa.field("headers", HEADERS, nullable=False)] if headers else _FIELDS
    )


class _Binary:
    """The ends, bytes and validity of one binary column under construction."""

    def __init__(self, rows: int, bytes_room: int) -> None:
        self.buffer = pa.allocate_buffer(bytes_room, resizable=True)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.ends = np.empty(rows + 1, np.int32)
        self.ends[0] = 0
        self.valid = np.zeros(rows // 8 + 1, np.uint8)

    def grow(self, bytes_room: int) -> None:
        """Enlarge the buffer to at least `bytes_room` bytes, at least to twice its size, and keep its content."""
        room = max(bytes_room, 2 * self.bytes.size)
        del self.bytes
        self.buffer.resize(room, shrink_to_fit=False)
        self.bytes = np.frombuffer(self.buffer, np.uint8)

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        used = int(self.ends[rows])
        del self.bytes
        # Freeing the unused memory copies what is used, so it is freed only if little is used.
        self.buffer.resize(used, shrink_to_fit=used * _UNUSED_SHARE < self.buffer.size)
        nulls = rows - int(np.bitwise_count(self.valid).sum())
        valid = pa.py_buffer(self.valid) if nulls else None
        return pa.Array.from_buffers(
            kind, rows, [valid, pa.py_buffer(self.ends), self.buffer], nulls
        )


class Columns:
    """Arrow columns under construction. Add batches while they fit, then take all rows as one RecordBatch.

    `rows` and `bytes_room` are the limits; raises ValueError if `bytes_room` is too large for a binary column.
    """

    def __init__(self, *, rows: int, bytes_room: int, headers: bool) -> None:
        if bytes_room > INT32_MAX:
            raise ValueError(f"{bytes_room} bytes do not fit the offsets of a binary column")
        self.rows = 0
        self._rows_room = rows
        self._bytes_room = bytes_room
        self._bytes_taken = 0
        self._headers = _HeaderColumn(rows) if headers else None
        self._offsets = np.empty(rows, np.int64)
        self._timestamps = np.empty(rows, np.int64)
        # Keys are short; if they are not, the column grows.
        self._keys = _Binary(rows, bytes_room // 16)
        self._values = _Binary(rows, bytes_room)
        self._starts = np.empty(rows if headers else 1, np.int64)
        self._stops = np.empty_like(self._starts)
        self._header: Any = np.zeros(_FIELDS_OF_BATCH.size // 8, np.int64)
        # Prepared again if an array is replaced by a larger one; batches of few records come by the ten thousands.
        self._call: Any = None

    def fits(self, batch: Batch, records: memoryview) -> bool:
        """Return True if a batch fits."""
        return (
            self.rows + batch.count <= self._rows_room
            and self._bytes_taken + len(records) <= self._bytes_room
        )

    def add(self, batch: Batch, records: memoryview, *, start: int, end: int) -> int:
        """Add the records with start <= offset < end. Returns their number.

        Raises ValueError if the batch does not fit, LogDamaged if its records cannot be decoded.
        """
        if not self.fits(batch, records):
            raise ValueError("the batch does not fit")
        body = np.frombuffer(records, np.uint8)
        span = batch.end_offset - batch.base_offset
        times = (batch.base_timestamp, batch.max_timestamp, int(batch.append_time))
        _FIELDS_OF_BATCH.pack_into(
            self._header, 0, batch.count, batch.base_offset, span, *times, start, end
        )
        problem, row, found = self._decode(body)
        while problem in (KEYS_FULL, VALUES_FULL):
            full = self._keys if problem == KEYS_FULL else self._values
            self._call = None  # it holds the buffer
            full.grow(int(full.ends[self.rows]) + len(records))
            problem, row, found = self._decode(body)
        if problem == OK and self._headers is not None:
            problem = self._headers.add(body, self._starts, self._stops, self.rows, row, found)
        if problem != OK:
            raise damaged(batch.place, PROBLEMS[problem])
        added = row - self.rows
        self.rows = row
        self._bytes_taken += len(records)
        return added

    def _decode(self, body: Any) -> tuple[int, int, int]:
        if self._call is None:
            self._call = decode_records.prepared(
                body,
                self.rows,
                self._header,
                self._offsets,
                self._timestamps,
                self._keys.ends,
                self._keys.bytes,
                self._keys.valid,
                self._values.ends,
                self._values.bytes,
                self._values.valid,
                self._starts,
                self._stops,
                self._headers is not None,
            )
        else:
            self._call.replace(body, self.rows)
        problem, row, found, _ = self._call()
        return problem, row, found

    def take(self) -> pa.RecordBatch:
        """Return the added rows as one RecordBatch. The columns cannot be used afterwards."""
        rows = self.rows
        self._call = None  # it holds the buffers
        columns = [
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self._offsets[:rows])], 0),
            pa.Array.from_buffers(
                TIMESTAMP, rows, [None, pa.py_buffer(self._timestamps[:rows])], 0
            ),
            self._keys.array(rows, pa.binary()),
            self._values.array(rows, pa.binary()),
        ]
        if self._headers is not None:
            columns.append(self._headers.array(rows))
        return pa.RecordBatch.from_arrays(
            columns, schema=columns_schema(headers=self._headers is not None)
        )


class _HeaderColumn:
    """A column list<struct<key, value>> under construction; its buffers start small, because few records have headers."""

    def __init__(self, rows: int) -> None:
        self._list_ends = np.zeros(rows + 1, np.int32)
        self._count = 0
        self._key_ends = np.zeros(1, np.int32)
        self._value_ends = np.zeros(1, np.int32)
        self._key_bytes = np.empty(0, np.uint8)
        self._value_bytes = np.empty(0, np.uint8)
        self._valid = np.zeros(1, np.uint8)

    def add(self, body: Any, starts: Any, stops: Any, row: int, row_end: int, found: int) -> int:
        """Decode the headers of the rows from `row` to `row_end`. Returns the number of the problem, or OK."""
        if not found:
            self._list_ends[row + 1 : row_end + 1] = self._count
            return OK
        total = self._count + found
        self._key_ends = _grown(self._key_ends, total + 1)
        self._value_ends = _grown(self._value_ends, total + 1)
        self._valid = _grown(self._valid, total // 8 + 1)
        # The most that a batch can need; memory pages that are never written cost nothing.
        self._key_bytes = _grown(self._key_bytes, int(self._key_ends[self._count]) + body.size)
        self._value_bytes = _grown(
            self._value_bytes, int(self._value_ends[self._count]) + body.size
        )
        problem, count = decode_headers(
            body,
            starts,
            stops,
            row,
            row_end,
            self._list_ends,
            self._count,
            self._key_ends,
            self._key_bytes,
            self._value_ends,
            self._value_bytes,
            self._valid,
        )
        self._count = int(count)
        return int(problem)

    def array(self, rows: int) -> pa.Array:
        """Return the finished column."""
        n = self._count
        keys = _key_array(n, self._key_ends, self._key_bytes)
        nulls = n - int(np.bitwise_count(self._valid).sum())
        buffers = [pa.py_buffer(self._valid) if nulls else None]
        buffers += [pa.py_buffer(self._value_ends), pa.py_buffer(self._value_bytes)]
        values = pa.Array.from_buffers(pa.binary(), n, buffers, nulls)
        items = pa.StructArray.from_arrays(
            [keys, values], fields=[HEADER.field(0), HEADER.field(1)]
        )
        return pa.Array.from_buffers(
            HEADERS, rows, [None, pa.py_buffer(self._list_ends)], 0, 0, [items]
        )


def _key_array(n: int, ends: Any, content: Any) -> pa.Array:
    keys = pa.Array.from_buffers(
        pa.string(), n, [None, pa.py_buffer(ends), pa.py_buffer(content)], 0
    )
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        # Header keys are UTF-8 by specification, but some producers send other bytes. As in Kafka's own client, they
        # become U+FFFD.
        raw = pa.Array.from_buffers(pa.binary(), n, keys.buffers(), 0)
        return pa.array([one.as_py().decode("utf-8", errors="replace") for one in raw], pa.string())
    return keys


def _grown(array: Any, size: int) -> Any:
    """Return the array, or a copy with at least `size` elements, padded with zeros."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


def warm() -> None:
    """Compile, or load from the cache, all code that a read needs. Safe to repeat: it only loads a warm cache."""
    columns = Columns(rows=1, bytes_room=64, headers=True)
    columns.take()
