"""The producer of the examples and the check of `counts` on a real broker, compared with a plain client."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from examples.checks.sent import read_sent
from examples.counts.check import apply, consume
from examples.runner.produce import Batch, Record, create_topic, produce
from support.brokers import TestBroker
from support.output_publisher import output
from tallystick.errors import InvalidRequest
from tallystick_devstack.process import wait_until
from unit.outputs.publications import SCOPE, publication

PARTITIONS = 2
HOUR = "2013-01-01T05:00:00Z"


def records(first: int, count: int) -> list[Record]:
    """Return records that are spread over the partitions."""
    numbers = range(first, first + count)
    return [
        Record(partition=n % PARTITIONS, at_ms=1_000 + n, value=f"v{n}", key=f"k{n}")
        for n in numbers
    ]


def committed(broker: TestBroker, topic: str) -> dict[tuple[int, int], str]:
    """Return what a read_committed consumer reads, after the broker has aborted the open transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    ends = {p: broker.high_watermark(topic, p) for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    found: dict[tuple[int, int], str] = {}

    def at_the_end() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found[message.partition(), message.offset()] = message.value().decode()
        places = consumer.position([TopicPartition(topic, p) for p in ends])
        return all(place.offset >= ends[place.partition] for place in places)

    wait_until(at_the_end, deadline_s=60.0, what="the end of the topic", poll_s=0.0)
    consumer.close()
    return found


def test_the_file_of_sent_records_equals_what_a_consumer_reads(
    broker: TestBroker, tmp_path: Path
) -> None:
    topic, sent = "examples-sent", tmp_path / "sent"
    create_topic({"bootstrap.servers": broker.bootstrap}, topic, partitions=PARTITIONS)
    batches = [
        Batch(end="plain", records=records(0, 5)),
        Batch(end="aborted", records=records(5, 5)),
        Batch(end="open", records=records(10, 4)),
        Batch(end="committed", records=records(14, 5)),
    ]
    assert produce({"bootstrap.servers": broker.bootstrap}, topic, batches, sent=sent) == 19
    found = read_sent(sent)
    assert [sum(record.end == end for record in found) for end in ("plain", "aborted", "open")] == [
        5,
        5,
        4,
    ]
    expected = {
        (record.partition, record.offset): record.value for record in found if record.visible
    }
    assert len(expected) == 10
    assert committed(broker, topic) == expected
    with pytest.raises(InvalidRequest, match="found one that exists"):
        create_topic({"bootstrap.servers": broker.bootstrap}, topic, partitions=PARTITIONS)


def test_the_check_of_counts_reads_the_messages_of_an_output(broker: TestBroker) -> None:
    topic = "examples-checked"
    create_topic({"bootstrap.servers": broker.bootstrap}, topic, partitions=PARTITIONS)
    old = [
        {"k": "a", "hour": HOUR, "origin": "JFK", "flights": 1},
        {"k": "b", "hour": HOUR, "origin": "EWR", "flights": 2},
    ]
    new = [{**old[0], "flights": 7}]
    feed = output(broker.bootstrap, topic)
    try:
        feed.begin(SCOPE)
        feed.publish(publication(old), resumed=False)
        again = publication(new, plan=2, generation=2, instead_of=1, before=old)
        feed.publish(again, resumed=False)
    finally:
        feed.close()
    messages = consume({"bootstrap.servers": broker.bootstrap}, topic)
    changes = sorted((m.operation, m.corrects, m.value["flights"]) for m in messages if m.corrects)
    assert changes == [("correction", 1, 7), ("retraction", 1, 2)]
    stored, problem = apply(messages)
    assert problem is None
    assert [(row.origin, row.flights, row.generation) for row in stored.values()] == [("JFK", 7, 2)]
