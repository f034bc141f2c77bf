"""Snappy as Kafka clients write it: whole, concatenated, truncated and damaged."""

from __future__ import annotations

import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.kafka_batches import SNAPPY_HEAD, framed
from tallystick.kafka.snappy import decompress_into

PLAIN = bytes(range(256)) * 5
BARE = bytes(cramjam.snappy.compress_raw(PLAIN))


def decompressed(packed: bytes, room: int = 1 << 16) -> bytes:
    buffer = bytearray(room)
    return bytes(buffer[: decompress_into(memoryview(packed), buffer)])


@pytest.mark.parametrize(
    ("packed", "plain"),
    [
        (BARE, PLAIN),
        (framed(PLAIN), PLAIN),
        (framed(PLAIN) + framed(PLAIN), PLAIN * 2),
        (SNAPPY_HEAD, b""),
        (bytes(cramjam.snappy.compress_raw(b"")), b""),
    ],
    ids=["bare", "framed", "two streams", "a head alone", "an empty block"],
)
def test_what_clients_compress_is_decompressed(packed: bytes, plain: bytes) -> None:
    assert decompressed(packed) == plain
    assert decompressed(packed, room=len(plain)) == plain


@pytest.mark.parametrize("packed", [BARE, framed(PLAIN)], ids=["bare", "framed"])
def test_a_buffer_that_is_too_small_is_an_error(packed: bytes) -> None:
    with pytest.raises(cramjam.DecompressionError, match="expands to"):
        decompressed(packed, room=len(PLAIN) - 1)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (SNAPPY_HEAD[:11], "header of the framing is incomplete"),
        (SNAPPY_HEAD[:12] + struct.pack(">i", 2), "framing version 2"),
        (SNAPPY_HEAD + b"\0\0", "length of a block is incomplete"),
        (SNAPPY_HEAD + struct.pack(">i", -1), "expected a block of -1 bytes, found 0"),
        (SNAPPY_HEAD + struct.pack(">i", 9) + BARE[:8], "expected a block of 9 bytes, found 8"),
        (framed(PLAIN)[:-1], "expected a block of"),
        (BARE[:-1], "corrupt input"),
        (b"", "corrupt input"),
        (b"\xff\xff\xff\xff\xff\x0f", "larger than allowed"),
    ],
)
def test_damaged_bytes_are_refused(packed: bytes, message: str) -> None:
    with pytest.raises(cramjam.DecompressionError, match=message):
        decompressed(packed)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_input_writes_outside_its_buffer(noise: bytes, at: int) -> None:
    """Any input gives a result within the buffer, or DecompressionError."""
    whole = framed(PLAIN)
    for packed in (noise, SNAPPY_HEAD + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            assert len(decompressed(packed, room=len(PLAIN))) <= len(PLAIN)
        except cramjam.DecompressionError:
            pass
