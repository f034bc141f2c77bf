"""Rare and valid batches on a real broker: each is read as confluent-kafka's consumer reads it."""

from __future__ import annotations

import random
import time

import pytest

from support.brokers import TestBroker, read_while_cleaning, send
from support.golden_topics import Row, consumed, rows_of
from support.kafka_batches import CODECS, Sent, batch
from support.raw_produce import produce_raw
from tallystick.errors import LogDamaged
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.accounting import ReadAccount
from tallystick.kafka.batches import Batch, walk
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.wire import FetchOrder
from tallystick_devstack.process import wait_until

COMPACTION = {
    "cleanup_policy": "compact",
    "segment_ms": 100,
    "min_cleanable_dirty_ratio": 0.001,
    "delete_retention_ms": 100,
}


def read(
    broker: TestBroker, topic: str, end: int, *, compacted: bool = False, start: int = 0
) -> tuple[list[Row], ReadAccount]:
    with KafkaClient(broker.settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    reader = RangeReader(
        broker.settings,
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        compacted=compacted,
        headers=True,
    )
    found = list(rows_of(reader.read(0, OffsetRange(start=start, end=end))))
    return found, reader.account


def batches_of(broker: TestBroker, topic: str, end: int) -> list[Batch]:
    """Return every batch of the log."""
    found: list[Batch] = []
    with KafkaClient(broker.settings) as client:
        layout = client.layout(topic)
        while not found or found[-1].end_offset < end:
            order = FetchOrder(
                layout=layout,
                partition=0,
                offset=found[-1].end_offset if found else 0,
                bytes_max=4 << 20,
                wait_ms=100,
                committed=False,
            )
            found.extend(walk(client.fetch(order).result().records, place=topic))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_different_codecs_in_one_topic_are_read(broker: TestBroker, codec: str) -> None:
    """Includes snappy with and without frames: clients write both, and librdkafka reads both."""
    topic = broker.topic()
    rng = random.Random(3)
    records = [
        Sent(
            value=rng.randbytes(rng.randrange(3_000)),
            key=b"k%d" % n,
            headers=[("h", b"x" * n)],
            timestamp=1_000 + n,
        )
        for n in range(50)
    ]
    produce_raw(broker, topic, *(batch(*records, codec=each) for each in (codec, "none", codec)))
    found, account = read(broker, topic, 150)
    assert found == list(consumed(broker, topic, 150))
    assert [row[3] for row in found] == [record.value for record in records] * 3
    assert (account.records, account.absent) == (150, 0)
    assert [each.codec for each in batches_of(broker, topic, 150)] == [
        CODECS[codec],
        0,
        CODECS[codec],
    ]


def test_records_without_a_timestamp_have_the_time_minus_1(broker: TestBroker) -> None:
    topic = broker.topic()
    produce_raw(broker, topic, batch(Sent(timestamp=-1), Sent(timestamp=-1)))
    send(broker.producer(), topic, b"v", timestamp=5_000)
    found, _ = read(broker, topic, 3)
    assert [row[1] for row in found] == [-1, -1, 5_000]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_append_time_is_the_time_of_every_record(broker: TestBroker, codec: str) -> None:
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    producer = broker.producer(compression_type=codec, linger_ms=50)
    send(producer, topic, *(b"%d" % n for n in range(200)), timestamp=1_000)
    found, _ = read(broker, topic, 200)
    assert found == list(consumed(broker, topic, 200))
    assert min(row[1] for row in found) >= before
    assert any(each.append_time and each.count > 1 for each in batches_of(broker, topic, 200))


def test_batches_emptied_by_compaction_are_absent(broker: TestBroker) -> None:
    """The cleaner keeps the last batch of an idempotent producer for its sequence numbers, without the records."""
    topic = broker.topic(**COMPACTION)
    first, second = broker.producer(), broker.producer()
    send(first, topic, b"old", b"older", key=b"a")
    send(second, topic, b"new", key=b"a")
    rolls = 0

    def emptied() -> bool:
        nonlocal rolls
        # The cleaner ignores the active segment: each new record rolls it.
        send(second, topic, b"%d" % rolls, key=b"roll")
        rolls += 1
        return any(each.count == 0 for each in batches_of(broker, topic, 3 + rolls)[:1])

    wait_until(emptied, deadline_s=60, what="the cleaner emptying a batch", poll_s=0.3)
    end = 3 + rolls
    (found, account), expected = read_while_cleaning(
        lambda: read(broker, topic, end, compacted=True),
        lambda: list(consumed(broker, topic, end)),
    )
    assert found == expected
    assert account.absent == end - len(found) > 0
    # A range that ends among the removed records, and one that is completely among them.
    assert read(broker, topic, 1, compacted=True)[1].absent == 1
    assert read(broker, topic, 2, start=1, compacted=True)[1].absent == 1
    with pytest.raises(LogDamaged, match="the topic is not compacted"):
        read(broker, topic, end)
