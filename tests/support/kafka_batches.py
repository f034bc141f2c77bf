"""Record batches for tests, built by kafka-python's builder and then changed: codec, epoch, flags, checksum."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cramjam
import google_crc32c
import lz4.frame
from kafka.record.default_records import DefaultRecordBatchBuilder

# A codec's number in a batch's attributes; snappy is written with or without a framing.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy in frames": 2, "lz4": 3, "zstd": 4}
SNAPPY_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
FRAME_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One record of a producer. `delta`: its offset in the batch (None: the next)."""

    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 1_000
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=list)
    delta: int | None = None


def batch(
    *records: Sent,
    base: int = 0,
    codec: str = "none",
    epoch: int = 0,
    producer_id: int = -1,
    transactional: bool = False,
    last_delta: int | None = None,
    flags: int = 0,
    magic: int = 2,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """Return the bytes of one batch; its checksum is right even if other fields are changed."""
    builder = DefaultRecordBatchBuilder(
        2,
        0,
        transactional,
        producer_id,
        0 if producer_id >= 0 else -1,
        0 if producer_id >= 0 else -1,
        1 << 30,
    )
    next_delta = 0
    for record in records:
        delta = next_delta if record.delta is None else record.delta
        next_delta = delta + 1
        builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    raw = bytearray(builder.build())
    plain = bytes(raw[61:]) if body is None else body
    packed = _packed(plain, codec)
    del raw[61:]
    raw += packed
    (attributes,) = struct.unpack_from(">h", raw, 21)
    struct.pack_into(">h", raw, 21, attributes | CODECS[codec] | flags)
    if last_delta is not None:
        struct.pack_into(">i", raw, 23, last_delta)
    if count is not None:
        struct.pack_into(">i", raw, 57, count)
    struct.pack_into(">qiib", raw, 0, base, len(raw) - 12, epoch, magic)
    return resealed(raw)


def resealed(raw: bytearray) -> bytes:
    """Return the batch with the checksum of its current bytes."""
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


def control(*, abort: bool, base: int, producer_id: int) -> bytes:
    """Return a transaction marker as a broker writes it (KIP-98)."""
    marker = Sent(key=struct.pack(">hh", 0, 0 if abort else 1), value=struct.pack(">hi", 0, 0))
    return batch(marker, base=base, producer_id=producer_id, transactional=True, flags=0x20)


def framed(plain: bytes) -> bytes:
    """Return Snappy in the framing of Java's library, in blocks far smaller than its 32 KiB."""
    blocks = (plain[at : at + FRAME_BYTES] for at in range(0, len(plain), FRAME_BYTES))
    packed = (bytes(cramjam.snappy.compress_raw(block)) for block in blocks)
    return SNAPPY_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in packed)


def _packed(plain: bytes, codec: str) -> bytes:
    compress: Any = {
        "none": lambda raw: raw,
        "gzip": cramjam.gzip.compress,
        "snappy": cramjam.snappy.compress_raw,
        "snappy in frames": framed,
        # Independent blocks: brokers refuse linked ones.
        "lz4": lambda raw: lz4.frame.compress(raw, block_linked=False),
        "zstd": cramjam.zstd.compress,
    }[codec]
    return bytes(compress(plain))
