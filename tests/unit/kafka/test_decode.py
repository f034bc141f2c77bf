"""Compiled decoding: the same columns as kafka-python decodes, or an error, for any input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from support.kafka_batches import CODECS, Sent, batch, resealed
from tallystick.errors import LogDamaged
from tallystick.kafka import kernels
from tallystick.kafka.batches import Scratch, walk
from tallystick.kafka.decode import Columns, columns_schema

ALL = {"start": 0, "end": 2**62}


def columns(
    raw: bytes, *, headers: bool = False, room: int = 1 << 16, **span: int
) -> pa.RecordBatch:
    scratch = Scratch(bytes_max=1 << 22)
    batches = list(walk(raw, place="t[0]"))
    target = Columns(rows=sum(each.count for each in batches) + 1, bytes_room=room, headers=headers)
    for each in batches:
        target.add(each, scratch.records(each), **(span or ALL))
    decoded = target.take()
    decoded.validate(full=True)
    return decoded


def rows(decoded: pa.RecordBatch) -> list[tuple[Any, ...]]:
    values = [
        column.cast(pa.int64()).to_pylist() if name == "timestamp" else column.to_pylist()
        for name, column in zip(decoded.schema.names, decoded.columns, strict=True)
    ]
    return list(zip(*values, strict=True))


def test_null_is_not_empty() -> None:
    sent = [Sent(key=None, value=None), Sent(key=b"", value=b""), Sent(key=b"k", value=b"v")]
    assert rows(columns(batch(*sent))) == [
        (0, 1_000, None, None),
        (1, 1_000, b"", b""),
        (2, 1_000, b"k", b"v"),
    ]


def test_columns_have_the_documented_types() -> None:
    assert columns(batch(Sent())).schema == columns_schema(headers=False)
    with_headers = columns_schema(headers=True)
    assert columns(batch(Sent()), headers=True).schema == with_headers
    assert str(with_headers.field("headers").type) == (
        "list<item: struct<key: string not null, value: binary> not null>"
    )
    assert with_headers.field("timestamp").type == pa.timestamp("ms", tz="UTC")


def test_a_range_inside_a_batch_excludes_other_offsets() -> None:
    raw = batch(
        *[Sent(value=b"%d" % i, key=None if i % 2 else b"k") for i in range(20)],
        base=100,
        codec="lz4",
    )
    decoded = columns(raw, start=103, end=117)
    assert decoded["offset"].to_pylist() == list(range(103, 117))
    assert decoded["value"].to_pylist() == [b"%d" % i for i in range(3, 17)]
    assert decoded["key"].null_count == 7


def test_headers_keep_order_duplicates_nulls_and_any_bytes() -> None:
    sent = [
        Sent(headers=[("a", b"1"), ("a", b"2"), ("", None), ("ü", b"")]),
        Sent(headers=[]),
        Sent(headers=[(f"h{i}", bytes([i % 256]) * i) for i in range(300)]),
    ]
    raw = batch(*sent) + batch(Sent(headers=[("z", b"last")]), base=3)
    found = columns(raw, headers=True, room=1 << 20)["headers"].to_pylist()
    assert found[0] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": b"2"},
        {"key": "", "value": None},
        {"key": "ü", "value": b""},
    ]
    assert found[1] == []
    assert [header["key"] for header in found[2]] == [f"h{i}" for i in range(300)]
    assert found[3] == [{"key": "z", "value": b"last"}]


def test_a_header_key_that_is_not_utf8_is_decoded_with_replacement() -> None:
    raw = bytearray(batch(Sent(headers=[("key", b"1")])))
    at = raw.index(b"key")
    raw[at : at + 3] = b"\xffey"
    (found,) = columns(resealed(raw), headers=True)["headers"].to_pylist()
    assert found == [{"key": "\N{REPLACEMENT CHARACTER}ey", "value": b"1"}]


def test_headers_that_are_not_requested_are_skipped() -> None:
    raw = batch(Sent(headers=[("a", b"1")]), Sent(value=b"next"))
    assert columns(raw)["value"].to_pylist() == [b"v", b"next"]


def test_the_buffer_grows_for_large_keys() -> None:
    sent = [Sent(key=bytes([i]) * 5_000, value=b"v") for i in range(10)]
    decoded = columns(batch(*sent[:5]) + batch(*sent[5:], base=5), room=64 << 10)
    assert decoded["key"].to_pylist() == [each.key for each in sent]


def test_negative_and_large_timestamps_are_unchanged() -> None:
    sent = [Sent(timestamp=ts) for ts in (-1, 0, 2**53, -(2**40))]
    assert columns(batch(*sent))["timestamp"].cast(pa.int64()).to_pylist() == [
        -1,
        0,
        2**53,
        -(2**40),
    ]


def test_columns_refuse_more_bytes_than_a_binary_column_can_address() -> None:
    with pytest.raises(ValueError, match="do not fit the offsets of a binary column"):
        Columns(rows=1, bytes_room=2**31, headers=False)


record = st.builds(
    Sent,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=80),
    timestamp=st.integers(-(2**40), 2**50),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(
    sent=st.lists(record, min_size=1, max_size=30),
    codec=st.sampled_from(sorted(CODECS)),
    base=st.integers(0, 2**40),
    limits=st.tuples(st.integers(-3, 33), st.integers(-3, 33)),
)
def test_decoded_columns_equal_those_of_kafka_python(
    sent: list[Sent], codec: str, base: int, limits: tuple[int, int]
) -> None:
    start, end = base + min(limits), base + max(limits)
    decoded = columns(batch(*sent, base=base, codec=codec), headers=True, start=start, end=end)
    plain = DefaultRecordBatch(batch(*sent, base=base))
    expected = [
        (r.offset, r.timestamp, r.key, r.value, [{"key": k, "value": v} for k, v in r.headers])
        for r in plain
        if start <= r.offset < end
    ]
    assert rows(decoded) == expected


def varint(value: int) -> bytes:
    """Return the zigzag varint of Kafka."""
    value = (value << 1) ^ (value >> 63)
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def with_headers(count: int, headers: bytes) -> bytes:
    """Return a batch of records without key and value, with `headers` as their header section and a valid checksum."""
    body = b""
    for delta in range(count):
        fields = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(-1) + headers
        body += varint(len(fields)) + fields
    return batch(body=body, count=count, last_delta=count - 1)


# Each record claims one header whose key has as many bytes as all following records: together far more than exist.
BEYOND_ITS_END = with_headers(4_000, varint(1) + varint(7_944))
SHORT_OF_ITS_END = with_headers(3, varint(1) + varint(1) + b"k" + varint(-1) + b"behind")


@pytest.mark.parametrize(
    "headers",
    [
        varint(1) + varint(7_944),
        varint(1) + varint(2) + b"k",
        varint(1) + varint(0) + varint(2) + b"v",
        varint(1) + varint(1) + b"k" + varint(-1) + b"behind",
        varint(2) + varint(1) + b"k" + varint(-1),
        varint(1) + varint(-1) + varint(-1),
        varint(1) + varint(0) + varint(-2),
    ],
    ids=[
        "a key far beyond its record",
        "a key one byte beyond",
        "a value one byte beyond",
        "bytes behind the last header",
        "fewer headers than counted",
        "a key that is null",
        "a value of negative length",
    ],
)
def test_headers_beyond_the_end_of_their_record_are_damage(headers: bytes) -> None:
    with pytest.raises(LogDamaged, match=r"damaged: a (header does not fit|number has no end)"):
        columns(with_headers(4_000, headers), headers=True, room=1 << 20)


FUZZED: Sequence[bytes] = [
    BEYOND_ITS_END,
    SHORT_OF_ITS_END,
    batch(*[Sent(key=b"k", value=b"x" * i, headers=[("h", b"1")] * (i % 3)) for i in range(12)]),
    batch(*[Sent(key=None, value=None) for _ in range(5)]),
    batch(*[Sent(delta=3 * i, timestamp=i * 1_000_000) for i in range(6)], last_delta=40),
]


@settings(max_examples=600, deadline=None)
@example(which=0, edits=[], shorter=0)
@example(which=1, edits=[], shorter=0)
@example(which=2, edits=[(61, 255)], shorter=0)
@given(
    which=st.integers(0, len(FUZZED) - 1),
    edits=st.lists(st.tuples(st.integers(21, 400), st.integers(0, 255)), max_size=6),
    shorter=st.integers(0, 60),
)
def test_damaged_bytes_give_columns_or_log_damaged(
    which: int, edits: list[tuple[int, int]], shorter: int
) -> None:
    """The checksum is corrected, so that the bytes reach the decoder: an attacker could do that, too."""
    raw = bytearray(FUZZED[which])
    raw = raw[: max(61, len(raw) - shorter)]
    for at, byte in edits:
        raw[at % (len(raw) - 21) + 21] = byte
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    try:
        decoded = columns(resealed(raw), headers=True)
    except LogDamaged:
        return
    offsets = decoded["offset"].to_pylist()
    assert offsets == sorted(set(offsets))


@settings(max_examples=600, deadline=None)
@given(
    body=st.binary(max_size=200),
    count=st.integers(0, 40),
    span=st.integers(1, 50),
    headers=st.booleans(),
)
def test_compiled_loops_stay_inside_their_arrays(
    body: bytes, count: int, span: int, headers: bool
) -> None:
    """Guard bytes after every output remain unchanged, for any body and any claimed count."""
    rows_room = count
    room = 50  # less than a body may need: the loops must check it
    guard = 64
    ints = {
        name: np.full(rows_room + guard, 77, np.int64)
        for name in ("offsets", "times", "starts", "stops")
    }
    ends = {name: np.full(rows_room + 1 + guard, 77, np.int32) for name in ("key", "value")}
    content = {name: np.full(room + guard, 77, np.uint8) for name in ("key", "value")}
    valid = {name: np.full(rows_room // 8 + 1 + guard, 77, np.uint8) for name in ("key", "value")}
    for name in ("key", "value"):
        ends[name][0] = 0
        valid[name][: rows_room // 8 + 1] = 0
    problem, row, found, _ = kernels.decode_records(
        np.frombuffer(body, np.uint8),
        0,
        np.array([count, 1_000, span, 5, 6, 0, 0, 2**62], np.int64),
        ints["offsets"][:rows_room],
        ints["times"][:rows_room],
        ends["key"][: rows_room + 1],
        content["key"][:room],
        valid["key"][: rows_room // 8 + 1],
        ends["value"][: rows_room + 1],
        content["value"][:room],
        valid["value"][: rows_room // 8 + 1],
        ints["starts"][:rows_room],
        ints["stops"][:rows_room],
        headers,
    )
    assert 0 <= row <= count
    assert 0 <= problem <= kernels.VALUES_FULL
    assert 0 <= found <= len(body)
    for array in (*ints.values(), *ends.values(), *content.values(), *valid.values()):
        assert (array[-guard:] == 77).all()
