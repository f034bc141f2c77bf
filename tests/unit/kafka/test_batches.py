"""Record batches of the log: read correctly, or refused with the reason."""

from __future__ import annotations

import struct

import pytest

from support.kafka_batches import CODECS, Sent, batch, control, resealed
from tallystick.errors import LogDamaged
from tallystick.kafka.batches import Scratch, each_record, ends_by_abort, walk

PLACE = "topic 't' partition 3"
PACKED = [codec for codec in CODECS if codec != "none"]


def whole(*parts: bytes) -> list[tuple[int, int]]:
    return [(each.base_offset, each.end_offset) for each in walk(b"".join(parts), place=PLACE)]


def test_walk_yields_whole_batches_in_order_and_omits_a_truncated_one() -> None:
    first, second = batch(Sent(), Sent(), base=7), batch(Sent(), base=9)
    assert whole(first, second) == [(7, 9), (9, 10)]
    for length in range(len(second)):
        assert whole(first, second[:length]) == [(7, 9)]


def test_the_header_has_epoch_flags_and_producer() -> None:
    raw = batch(Sent(), base=5, epoch=4, producer_id=99, transactional=True, flags=0x08)
    (read,) = walk(raw, place=PLACE)
    assert (read.leader_epoch, read.producer_id, read.transactional, read.append_time) == (
        4,
        99,
        True,
        True,
    )
    assert not read.control
    assert read.dense


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_each_codec_are_read(codec: str) -> None:
    records = [Sent(key=b"k%d" % i, value=b"v" * i, timestamp=1_000 + i) for i in range(50)]
    (read,) = walk(batch(*records, base=100, codec=codec), place=PLACE)
    found = list(each_record(read, Scratch().records(read)))
    assert found == [(100 + i, 1_000 + i, b"k%d" % i) for i in range(50)]


def test_an_unknown_codec_is_refused_by_number() -> None:
    (read,) = walk(batch(Sent(), flags=6), place=PLACE)
    with pytest.raises(LogDamaged, match="expected one of the codecs none, g"):
        Scratch().records(read)


@pytest.mark.parametrize(
    ("magic", "message"),
    [
        (0, "expected message format v2, found v0 from before Kafka 0.11"),
        (1, "found v1 from before"),
        (3, "found v3"),
    ],
)
def test_other_message_formats_are_refused_by_name(magic: int, message: str) -> None:
    with pytest.raises(LogDamaged, match=rf"{message}.*Next: "):
        whole(batch(Sent(), magic=magic))


def test_a_flipped_bit_fails_the_checksum() -> None:
    raw = bytearray(batch(Sent(value=b"something"), base=4))
    raw[-3] ^= 1
    with pytest.raises(LogDamaged, match=r"partition 3 batch at offset 4 is damaged: its checksum"):
        whole(bytes(raw))


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_an_impossible_length_is_damage(length: int) -> None:
    raw = bytearray(batch(Sent()))
    struct.pack_into(">i", raw, 8, length)
    with pytest.raises(LogDamaged, match=f"length field is {length}"):
        whole(bytes(raw))


@pytest.mark.parametrize(
    ("base", "last_delta", "count", "message"),
    [
        (-1, 0, 1, "spans offsets -1"),
        (2**63 - 1, 0, 1, "spans offsets"),
        (0, -1, 0, "spans offsets 0 to 0 . -1"),
        (0, 0, 2, "expected at most 1 records for its offsets, found 2"),
        (0, 0, -1, "found -1"),
    ],
)
def test_impossible_spans_are_damage(base: int, last_delta: int, count: int, message: str) -> None:
    with pytest.raises(LogDamaged, match=message):
        whole(batch(Sent(), base=base, last_delta=last_delta, count=count))


def test_more_records_than_bytes_is_damage_before_memory_is_allocated() -> None:
    (read,) = walk(batch(Sent(), last_delta=2**30, count=2**30), place=PLACE)
    with pytest.raises(LogDamaged, match=r"1073741824 records do not fit into \d+ bytes"):
        Scratch().records(read)


@pytest.mark.parametrize("codec", PACKED)
def test_a_decompression_bomb_is_refused_at_the_limit(codec: str) -> None:
    (read,) = walk(batch(body=bytes(4 << 20), codec=codec), place=PLACE)
    assert len(read.body) < 512 << 10
    with pytest.raises(LogDamaged, match="broken, or expand to more than 1048576 bytes"):
        Scratch(bytes_max=1 << 20).records(read)
    assert len(Scratch(bytes_max=4 << 20).records(read)) == 4 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_broken_compressed_bytes_are_damage(codec: str) -> None:
    raw = bytearray(batch(*[Sent(value=bytes(range(200)))] * 9, codec=codec))
    raw[61:75] = bytes(14)
    (read,) = walk(resealed(raw), place=PLACE)
    with pytest.raises(LogDamaged, match=f"bytes of {codec.split(maxsplit=1)[0]} are broken"):
        Scratch(bytes_max=1 << 20).records(read)


def test_markers_of_abort_and_commit_are_distinguished() -> None:
    for abort in (True, False):
        (read,) = walk(control(abort=abort, base=3, producer_id=8), place=PLACE)
        assert read.control
        assert ends_by_abort(read, Scratch().records(read)) is abort


def test_a_control_batch_without_a_transaction_marker_has_no_outcome() -> None:
    """A control record of another type, and a batch whose marker was compacted away."""
    for raw in (
        batch(Sent(key=bytes([0, 0, 0, 2])), flags=0x20),
        batch(base=3, last_delta=0, producer_id=8, transactional=True, flags=0x20),
    ):
        (read,) = walk(raw, place=PLACE)
        assert ends_by_abort(read, Scratch().records(read)) is None


def test_a_marker_without_a_type_is_damage() -> None:
    (read,) = walk(batch(Sent(key=b"\0"), flags=0x20), place=PLACE)
    with pytest.raises(LogDamaged, match="control record has no type"):
        ends_by_abort(read, Scratch().records(read))


def test_a_compacted_batch_keeps_its_span() -> None:
    raw = batch(Sent(delta=2), Sent(delta=5), base=10, last_delta=9)
    (read,) = walk(raw, place=PLACE)
    assert (read.base_offset, read.end_offset, read.dense) == (10, 20, False)
    assert [offset for offset, _, _ in each_record(read, read.body)] == [12, 15]


def test_append_time_topics_give_each_record_the_brokers_time() -> None:
    raw = bytearray(batch(Sent(timestamp=5), Sent(timestamp=6), flags=0x08))
    struct.pack_into(">q", raw, 35, 777)
    (read,) = walk(resealed(raw), place=PLACE)
    assert [ts for _, ts, _ in each_record(read, read.body)] == [777, 777]
