"""Record batches as stored in the log: headers, checksums, decompression (message format v2, KIP-98).

This module parses bytes from a network. It checks a length before it uses it, and limits memory before it allocates it.
Bytes that do not fit raise LogDamaged with their place. `decode` decodes record fields (compiled); this module reads the
records of the few batches that planning and accounting need in plain Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import cramjam
import google_crc32c

from tallystick.errors import LogDamaged
from tallystick.kafka import snappy

HEADER_BYTES: Final = 61
# The smallest record of format v2: length, attributes, two deltas, two null lengths, no headers.
RECORD_BYTES_MIN: Final = 7
RECORDS_BYTES_MAX: Final = 512 << 20
OFFSET_MAX: Final = 2**63 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12  # the length field counts the bytes from here on
_CRC_FROM = 21
_MAGIC_AT = 16
_SUPPORTED_MAGIC = 2
_CODEC_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_CONTROL_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1
_FIRST_GUESS = 6  # JSON compresses to a third or less; the buffer grows if 6 times the compressed size is too small


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One record batch: its header, and its records (`body`, still compressed).

    It spans `base_offset <= offset < end_offset`, even if compaction has left fewer records than offsets, or none.
    """

    place: str
    base_offset: int
    end_offset: int
    leader_epoch: int
    codec: int
    transactional: bool
    control: bool
    append_time: bool
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    count: int
    body: memoryview

    @property
    def dense(self) -> bool:
        """True if every offset of the span has a record."""
        return self.count == self.end_offset - self.base_offset


def walk(records: bytes, *, place: str, verify: bool = True) -> Iterator[Batch]:
    """Yield the whole batches of a fetch answer, checksums verified, without an incomplete last one, which Kafka allows.

    `place` names topic and partition in errors. Raises LogDamaged if the bytes are anything but v2 batches.
    """
    whole = memoryview(records)
    at, size = 0, len(whole)
    reached = 0
    while size - at > _MAGIC_AT:
        batch, at = _batch_at(records, whole, at, place=place, verify=verify)
        if batch is None:
            return
        if batch.base_offset < reached:
            raise damaged(batch.place, f"the batch before it reached to offset {reached}")
        reached = batch.end_offset
        yield batch


def _batch_at(
    records: bytes, whole: memoryview, at: int, *, place: str, verify: bool
) -> tuple[Batch | None, int]:
    """Return the batch at a position (None: incomplete) and the position after it. `whole` is a view of `records`."""
    base_offset, length = struct.unpack_from(">qi", whole, at)
    where = f"{place} batch at offset {base_offset}"
    magic = whole[at + _MAGIC_AT]
    if magic != _SUPPORTED_MAGIC:
        raise _unsupported_format(where, magic)
    if length < HEADER_BYTES - _LENGTH_FROM:
        raise damaged(where, f"its length field is {length} bytes")
    end = at + _LENGTH_FROM + length
    if end > len(whole):
        return None, end
    fields = _HEADER.unpack_from(whole, at)
    (
        _,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_delta,
        base_ts,
        max_ts,
        producer_id,
        _,
        _,
        count,
    ) = fields
    # The checksum library takes no views; this copy costs less than decoding the records once.
    if verify and google_crc32c.value(records[at + _CRC_FROM : end]) != crc:
        raise damaged(where, "its checksum does not match")
    if base_offset < 0 or last_delta < 0 or base_offset + last_delta >= OFFSET_MAX:
        raise damaged(where, f"it spans offsets {base_offset} to {base_offset} + {last_delta}")
    if not 0 <= count <= last_delta + 1:
        raise damaged(
            where, f"expected at most {last_delta + 1} records for its offsets, found {count}"
        )
    return (
        Batch(
            place=where,
            base_offset=base_offset,
            end_offset=base_offset + last_delta + 1,
            leader_epoch=leader_epoch,
            codec=attributes & _CODEC_MASK,
            transactional=bool(attributes & _TRANSACTIONAL),
            control=bool(attributes & _CONTROL),
            append_time=bool(attributes & _APPEND_TIME),
            base_timestamp=base_ts,
            max_timestamp=max_ts,
            producer_id=producer_id,
            count=count,
            body=whole[at + HEADER_BYTES : end],
        ),
        end,
    )


class Scratch:
    """A growing buffer for decompressed records; the next batch overwrites the records of the one before."""

    def __init__(self, bytes_max: int = RECORDS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray(0)

    def records(self, batch: Batch) -> memoryview:
        """Return the batch's records, decompressed.

        Raises LogDamaged if the codec is unknown, the bytes are broken, or there are too many or too few of them.
        """
        decompress_into = _codec(batch)
        records = self._decompressed(batch, decompress_into) if decompress_into else batch.body
        if len(records) < batch.count * RECORD_BYTES_MIN:
            raise damaged(
                batch.place, f"{batch.count} records do not fit into {len(records)} bytes"
            )
        return records

    def _decompressed(
        self, batch: Batch, decompress_into: Callable[[memoryview, bytearray], int]
    ) -> memoryview:
        wanted = min(
            max(len(batch.body) * _FIRST_GUESS, len(self._buffer), 64 << 10), self._bytes_max
        )
        while True:
            if len(self._buffer) < wanted:
                self._buffer = bytearray(wanted)
            try:
                size = decompress_into(batch.body, self._buffer)
            except cramjam.DecompressionError as error:
                # The library raises the same error for a small buffer and for broken data. Broken data still fails
                # when the buffer has its full size.
                if len(self._buffer) >= self._bytes_max:
                    raise damaged(
                        batch.place,
                        f"its {len(batch.body)} bytes of {_CODEC_NAMES[batch.codec]} are broken, or expand to more than "
                        f"{self._bytes_max} bytes ({error})",
                    ) from None
                wanted = min(len(self._buffer) * 4, self._bytes_max)
            else:
                return memoryview(self._buffer)[:size]


def _codec(batch: Batch) -> Callable[[memoryview, bytearray], int] | None:
    """Return the function that decompresses a batch into a buffer, None without compression. Add new codecs here.

    Raises LogDamaged if the codec is unknown.
    """
    # cramjam has no types; if it is not installed for mypy, the ignores are unused.
    match batch.codec:
        case 0:
            return None
        case 1:
            return cramjam.gzip.decompress_into  # type: ignore[no-any-return, unused-ignore]
        case 2:
            return snappy.decompress_into
        case 3:
            return cramjam.lz4.decompress_into  # type: ignore[no-any-return, unused-ignore]
        case 4:
            return cramjam.zstd.decompress_into  # type: ignore[no-any-return, unused-ignore]
    known = ", ".join(_CODEC_NAMES.values())
    raise LogDamaged(
        f"{batch.place}: expected one of the codecs {known}, found codec number {batch.codec}.",
        hint="update tallystick, or check the partition with kafka-dump-log.sh --deep-iteration.",
    )


def _unsupported_format(where: str, magic: int) -> LogDamaged:
    if magic in (0, 1):
        return LogDamaged(
            f"{where}: expected message format v2, found v{magic} from before Kafka 0.11.",
            hint="copy the topic with a producer of version 0.11 or newer.",
        )
    return LogDamaged(
        f"{where}: expected message format v2, found v{magic}.",
        hint="update tallystick, or check the partition with kafka-dump-log.sh --deep-iteration.",
    )


def damaged(where: str, why: str) -> LogDamaged:
    """Build the LogDamaged error for invalid bytes."""
    return LogDamaged(
        f"{where} is damaged: {why}.",
        hint="check the partition with kafka-dump-log.sh --deep-iteration on its leader; nothing was committed.",
    )


def each_record(batch: Batch, records: memoryview) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (offset, timestamp in ms, key) of each record, in plain Python: use it if speed does not matter."""
    at, before = 0, -1
    for _ in range(batch.count):
        length, at = _varint(batch, records, at)
        end = at + length
        if length < RECORD_BYTES_MIN - 1 or end > len(records):
            raise damaged(batch.place, f"a record of {length} bytes does not fit")
        ts_delta, at = _varint(batch, records, at + 1)  # one byte of attributes, unused since v2
        offset_delta, at = _varint(batch, records, at)
        if not before < offset_delta < batch.end_offset - batch.base_offset:
            raise damaged(batch.place, f"offset delta {offset_delta} follows {before}")
        before = offset_delta
        key_length, at = _varint(batch, records, at)
        if key_length < -1 or at + max(key_length, 0) > end:
            raise damaged(batch.place, f"a key of {key_length} bytes does not fit")
        key = bytes(records[at : at + key_length]) if key_length >= 0 else None
        timestamp = batch.max_timestamp if batch.append_time else batch.base_timestamp + ts_delta
        yield batch.base_offset + offset_delta, timestamp, key
        at = end
    if at != len(records):
        raise damaged(batch.place, f"{len(records) - at} bytes follow its last record")


def ends_by_abort(batch: Batch, records: memoryview) -> bool | None:
    """Return True if a control batch ends its producer's transaction by ABORT, False if by COMMIT.

    Returns None for another kind of control record, and if compaction has removed the marker from its batch.
    """
    for _, _, key in each_record(batch, records):
        if key is None or len(key) < _CONTROL_KEY.size:
            raise damaged(batch.place, "its control record has no type")
        return {_ABORT: True, _COMMIT: False}.get(_CONTROL_KEY.unpack_from(key)[1])
    return None


def _varint(batch: Batch, records: memoryview, at: int) -> tuple[int, int]:
    """Read a zigzag varint of at most ten bytes; returns (value, position after it)."""
    value = shift = 0
    while at < len(records) and shift < 70:
        byte = records[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise damaged(batch.place, "a number has no end")
