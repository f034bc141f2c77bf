"""The ends of a topic's logs on a real broker, and the time of the first record after an offset."""

from __future__ import annotations

import pytest

from support.brokers import TestBroker, send
from tallystick.errors import IdentityChanged
from tallystick.kafka.log_ends import read_topic_ends
from tallystick.kafka.wire import PartitionEnds, TopicEnds

NOON_MS = 1_442_059_200_000
KEPT_MS = 10**13  # the records are years old, and the broker must not delete them


def ends(broker: TestBroker, topic: str, *offsets: int) -> TopicEnds:
    return read_topic_ends(broker.settings, {topic: offsets})[topic]


def three_records(broker: TestBroker, **config: object) -> str:
    """Return a topic of two partitions: 3 records in one batch, a second apart, and no record."""
    topic = broker.topic(2, retention_ms=KEPT_MS, **config)
    producer = broker.producer(linger_ms=500)
    for second in range(3):
        send(producer, topic, b"{}", flush=False, timestamp=NOON_MS + 1000 * second)
    assert producer.flush(30) == 0
    return topic


@pytest.mark.parametrize("compression", ["producer", "zstd"])
@pytest.mark.parametrize(
    ("offset", "next_at_ms"),
    [(0, NOON_MS), (1, NOON_MS + 1000), (2, NOON_MS + 2000), (3, None), (9, None)],
)
def test_the_time_is_of_the_first_record_at_or_after_the_offset_also_inside_of_a_batch(
    broker: TestBroker, offset: int, next_at_ms: int | None, compression: str
) -> None:
    topic = three_records(broker, compression_type=compression)
    assert ends(broker, topic, offset, 0).partitions == (
        PartitionEnds(start=0, end=3, next_at_ms=next_at_ms),
        PartitionEnds(start=0, end=0),
    )


def test_a_partition_without_an_offset_is_read_from_the_beginning_of_its_log(
    broker: TestBroker,
) -> None:
    topic = three_records(broker)
    broker.delete_records(topic, 2)
    found = PartitionEnds(start=2, end=3, next_at_ms=NOON_MS + 2000)
    assert ends(broker, topic).partitions[0] == found
    assert ends(broker, topic, 0).partitions[0] == found


@pytest.mark.parametrize(
    ("config", "kept_ms"),
    [
        ({}, KEPT_MS),
        ({"retention_ms": -1}, None),
        ({"cleanup_policy": "compact"}, None),
        ({"cleanup_policy": "compact,delete", "retention_ms": 5000}, 5000),
    ],
)
def test_a_topic_keeps_records_for_its_retention_if_it_deletes_by_age(
    broker: TestBroker, config: dict[str, object], kept_ms: int | None
) -> None:
    topic = broker.topic(**{"retention_ms": KEPT_MS, **config})
    assert ends(broker, topic).kept_ms == kept_ms


def test_a_topic_that_does_not_exist_is_refused(broker: TestBroker) -> None:
    with pytest.raises(IdentityChanged, match="missing"):
        ends(broker, "missing")
