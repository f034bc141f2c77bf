"""Compiled loops over record bytes, with explicit bounds checks and no Python object per record.

Their first call links the code that the machine has cached, or compiles it (`tallystick.runtime.compiled`). The functions
take only numbers and arrays, and return the number of a problem (`PROBLEMS`).
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tallystick.runtime.compiled import (
    FLAG,
    INT32S_OUT,
    INT64S,
    INT64S_OUT,
    NUMBER,
    UINT8S,
    UINT8S_OUT,
    LoopGroup,
    part,
)
from tallystick.runtime.intrinsics import copy_bytes

OK: Final = 0
KEYS_FULL: Final = 8
VALUES_FULL: Final = 9
PROBLEMS: Final = {
    1: "a number has no end",
    2: "a record's length does not fit",
    3: "its offsets are not ascending, or lie outside its span",
    4: "a key's length does not fit",
    5: "a value's length does not fit",
    6: "a header does not fit",
    7: "bytes follow its last record",
}

# The functions have the types of their decorators, which mypy does not see.
loops: Any = LoopGroup(__name__)


@part
def read_varint(body, at, end):
    """Return a zigzag varint in [at, end) as (value, position after it); the position is -1 if it does not end there."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = body[at]
        at += 1
        value |= np.uint64(byte & np.uint8(0x7F)) << shift
        if byte < np.uint8(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@loops.loop(
    UINT8S,  # body: the records of one batch
    NUMBER,  # row to write first
    INT64S,  # header: count, base offset, offsets spanned, base timestamp, append timestamp, use it?, start, end
    INT64S_OUT,  # offsets
    INT64S_OUT,  # timestamps
    INT32S_OUT,  # key ends, one longer than there are rows
    UINT8S_OUT,  # key bytes
    UINT8S_OUT,  # key validity
    INT32S_OUT,  # value ends
    UINT8S_OUT,  # value bytes
    UINT8S_OUT,  # value validity
    INT64S_OUT,  # header starts: the position of each row's headers in the body
    INT64S_OUT,  # header stops: the end of the row's record, which is the end of its headers
    FLAG,  # True to decode headers
    results=4,
)
def decode_records(  # noqa: C901, PLR0912, PLR0915 - one pass over one record's fields, in wire order
    body,
    row,
    header,
    offsets,
    timestamps,
    key_ends,
    key_bytes,
    key_valid,
    value_ends,
    value_bytes,
    value_valid,
    header_starts,
    header_stops,
    want_headers,
):
    """Decode one batch into columns, without records outside [start, end).

    Returns (problem, next row, headers found, position). The caller has made room for `count` rows from `row` on; this
    function checks the room for bytes. Safe to repeat: it writes the same batch to the same rows.
    """
    count, base, span, base_ts = header[0], header[1], header[2], header[3]
    append_ts, use_append, start, end = header[4], header[5], header[6], header[7]
    size = np.int64(body.size)
    at = np.int64(0)
    before = np.int64(-1)
    found = np.int64(0)
    k = np.int64(key_ends[row])
    v = np.int64(value_ends[row])
    for _ in range(count):
        length, at = read_varint(body, at, size)
        if at < 0:
            return 1, row, found, at
        if length < 6 or length > size - at:
            return 2, row, found, at
        stop = at + length
        ts_delta, at = read_varint(body, at + 1, stop)
        if at < 0:
            return 1, row, found, at
        delta, at = read_varint(body, at, stop)
        if at < 0:
            return 1, row, found, at
        if delta <= before or delta >= span:
            return 3, row, found, at
        before = delta
        key_length, at = read_varint(body, at, stop)
        if at < 0:
            return 1, row, found, at
        if key_length < -1 or key_length > stop - at:
            return 4, row, found, at
        key_at = at
        if key_length > 0:
            at += key_length
        value_length, at = read_varint(body, at, stop)
        if at < 0:
            return 1, row, found, at
        if value_length < -1 or value_length > stop - at:
            return 5, row, found, at
        value_at = at
        if value_length > 0:
            at += value_length
        headers_at = at
        headers, at = read_varint(body, at, stop)
        if at < 0:
            return 1, row, found, at
        # Each header takes at least two bytes, for the lengths of its key and its value.
        if headers < 0 or headers > (stop - at) // 2 or (headers == 0 and at != stop):
            return 6, row, found, at
        at = stop
        offset = base + delta
        if offset < start or offset >= end:
            continue
        if key_length > key_bytes.size - k:
            return 8, row, found, at
        if value_length > value_bytes.size - v:
            return 9, row, found, at
        offsets[row] = offset
        timestamps[row] = append_ts if use_append else base_ts + ts_delta
        if key_length >= 0:
            key_valid[row >> 3] |= np.uint8(1 << (row & 7))
            if key_length > 0:
                copy_bytes(key_bytes, k, body, key_at, key_length)
                k += key_length
        if value_length >= 0:
            value_valid[row >> 3] |= np.uint8(1 << (row & 7))
            if value_length > 0:
                copy_bytes(value_bytes, v, body, value_at, value_length)
                v += value_length
        if want_headers:
            header_starts[row] = headers_at
            header_stops[row] = stop
            found += headers
        row += 1
        key_ends[row] = k
        value_ends[row] = v
    if at != size:
        return 7, row, found, at
    return 0, row, found, at


@loops.loop(
    UINT8S,  # body
    INT64S,  # header starts, of the rows from `row` to `row_end`
    INT64S,  # header stops, of the same rows
    NUMBER,
    NUMBER,
    INT32S_OUT,  # list ends, by row
    NUMBER,  # header to write first
    INT32S_OUT,  # key ends, by header
    UINT8S_OUT,
    INT32S_OUT,  # value ends, by header
    UINT8S_OUT,
    UINT8S_OUT,  # value validity, by header
    results=2,
)
def decode_headers(
    body,
    starts,
    stops,
    row,
    row_end,
    list_ends,
    n,
    key_ends,
    key_bytes,
    value_ends,
    value_bytes,
    value_valid,
):
    """Decode the headers of the rows that `decode_records` wrote; returns (problem, next header).

    The caller has made room for the counted headers, and for as many bytes as the body has. This room is enough: each
    record's headers end with the record (message format v2), so no byte is copied twice. It is checked nevertheless.
    """
    k = np.int64(key_ends[n])
    v = np.int64(value_ends[n])
    for r in range(row, row_end):
        stop = stops[r]
        count, at = read_varint(body, starts[r], stop)
        if at < 0:
            return 1, n
        for _ in range(count):
            length, at = read_varint(body, at, stop)
            # A header key is never null (KIP-82).
            if at < 0 or length < 0 or length > stop - at or length > key_bytes.size - k:
                return 6, n
            copy_bytes(key_bytes, k, body, at, length)
            k += length
            at += length
            length, at = read_varint(body, at, stop)
            if at < 0 or length < -1 or length > stop - at or length > value_bytes.size - v:
                return 6, n
            if length >= 0:
                value_valid[n >> 3] |= np.uint8(1 << (n & 7))
                copy_bytes(value_bytes, v, body, at, length)
                v += length
                at += length
            n += 1
            key_ends[n] = k
            value_ends[n] = v
        if at != stop:
            return 6, n
        list_ends[r + 1] = n
    return 0, n
