"""Snappy as clients of Kafka write it, whole, one after another, cut off and bent."""

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


def unpacked(packed: bytes, room: int = 1 << 16) -> bytes:
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
def test_what_clients_write_comes_back(packed: bytes, plain: bytes) -> None:
    assert unpacked(packed) == plain
    assert unpacked(packed, room=len(plain)) == plain


@pytest.mark.parametrize("packed", [BARE, framed(PLAIN)], ids=["bare", "framed"])
def test_too_little_room_is_said_and_nothing_is_cut(packed: bytes) -> None:
    with pytest.raises(cramjam.DecompressionError, match="becomes"):
        unpacked(packed, room=len(PLAIN) - 1)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (SNAPPY_HEAD[:11], "head is cut off"),
        (SNAPPY_HEAD[:12] + struct.pack(">i", 2), "of version 2"),
        (SNAPPY_HEAD + b"\0\0", "length is cut off"),
        (SNAPPY_HEAD + struct.pack(">i", -1), "a block of -1 bytes, 0 are left"),
        (SNAPPY_HEAD + struct.pack(">i", 9) + BARE[:8], "a block of 9 bytes, 8 are left"),
        (framed(PLAIN)[:-1], "are left"),
        (BARE[:-1], "corrupt input"),
        (b"", "corrupt input"),
        (b"\xff\xff\xff\xff\xff\x0f", "larger than allowed"),
    ],
)
def test_bent_bytes_are_refused(packed: bytes, said: str) -> None:
    with pytest.raises(cramjam.DecompressionError, match=said):
        unpacked(packed)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_bytes_write_outside_their_room(noise: bytes, at: int) -> None:
    """Whatever stands there, it is an answer within the room, or the one error."""
    whole = framed(PLAIN)
    for packed in (noise, SNAPPY_HEAD + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            assert len(unpacked(packed, room=len(PLAIN))) <= len(PLAIN)
        except cramjam.DecompressionError:
            pass
