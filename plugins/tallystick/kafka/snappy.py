"""Snappy as Kafka's clients write it: a single block, or a sequence of blocks in the framing of Java's snappy library.

The framing (xerial's SnappyOutputStream, which Kafka's Java client and most others use) is a header of 16 bytes (a magic,
a version, the oldest version that can read it), then blocks. Each block follows its length, a big-endian integer of 4
bytes. A block's first bytes are its decompressed length. If streams were concatenated, the next header follows a block
in place of a length, and is skipped, as in Java's SnappyInputStream.
"""

from __future__ import annotations

import struct
from typing import Final

import cramjam

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEAD_BYTES: Final = 16
_READS_SINCE: Final = 1  # the framing's only version so far
_LENGTH = struct.Struct(">i")


def decompress_into(packed: memoryview, room: bytearray) -> int:
    """Decompress into `room` and return the number of decompressed bytes.

    Raises cramjam.DecompressionError if the bytes are broken, or if `room` is too small.
    """
    if bytes(packed[: len(_MAGIC)]) != _MAGIC:
        return _block(packed, memoryview(room))
    at = size = 0
    left = memoryview(room)
    while at < len(packed):
        if bytes(packed[at : at + len(_MAGIC)]) == _MAGIC:
            at = _behind_head(packed, at)
            continue
        length, at = _length_at(packed, at)
        size += _block(packed[at : at + length], left[size:])
        at += length
    return size


def _behind_head(packed: memoryview, at: int) -> int:
    if at + _HEAD_BYTES > len(packed):
        raise cramjam.DecompressionError("snappy: the header of the framing is incomplete")
    (since,) = _LENGTH.unpack_from(packed, at + 12)
    if since > _READS_SINCE:
        raise cramjam.DecompressionError(f"snappy: unsupported framing version {since}")
    return at + _HEAD_BYTES


def _length_at(packed: memoryview, at: int) -> tuple[int, int]:
    if at + _LENGTH.size > len(packed):
        raise cramjam.DecompressionError("snappy: the length of a block is incomplete")
    (length,) = _LENGTH.unpack_from(packed, at)
    at += _LENGTH.size
    if not 0 <= length <= len(packed) - at:
        raise cramjam.DecompressionError(
            f"snappy: expected a block of {length} bytes, found {len(packed) - at}"
        )
    return length, at


def _block(packed: memoryview, room: memoryview) -> int:
    # Check the claimed length first: never let it decide how much memory is used.
    if (claimed := cramjam.snappy.decompress_raw_len(packed)) > len(room):
        raise cramjam.DecompressionError(
            f"snappy: a block expands to {claimed} bytes, only {len(room)} are left"
        )
    return int(cramjam.snappy.decompress_raw_into(packed, room))
