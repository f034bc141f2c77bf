"""Reads that share a client return what reads with clients of their own return, also after a read that failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.brokers import TestBroker, send
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, KafkaUnavailable, NotYet
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.shared import SharedClient
from tallystick_devstack.process import free_port

PARTITIONS = 4
RECORDS = 30


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[KafkaClient]:
    """Record the clients that are opened."""
    clients: list[KafkaClient] = []
    enter = KafkaClient.__enter__

    def noted(client: KafkaClient) -> KafkaClient:
        clients.append(client)
        return enter(client)

    monkeypatch.setattr(KafkaClient, "__enter__", noted)
    return clients


@pytest.fixture
def topic(broker: TestBroker) -> str:
    """Create a topic whose records have their partition and number as value, each in a batch of its own."""
    name = broker.topic(PARTITIONS)
    producer = broker.producer(batch_num_messages=1)
    for partition in range(PARTITIONS):
        send(
            producer,
            name,
            *(b"%d-%d" % (partition, n) for n in range(RECORDS)),
            partition=partition,
        )
    return name


@pytest.fixture
def shared(broker: TestBroker) -> Iterator[SharedClient]:
    with SharedClient(broker.settings) as client:
        yield client


def reader(
    broker: TestBroker, topic: str, shared: SharedClient | None, **options: Any
) -> RangeReader:
    with KafkaClient(broker.settings) as client:
        fields = {"topic_id": client.layout(topic).topic_id, "cluster_id": client.cluster_id()}
    return RangeReader(
        broker.settings,
        topic=topic,
        compacted=False,
        batch_rows=1,
        shared=shared,
        **(fields | options),
    )


def read(ours: RangeReader, partition: int, start: int = 0, end: int = RECORDS) -> list[bytes]:
    batches = ours.read(
        partition,
        OffsetRange(start=start, end=end),
        leader_epoch=0,
        planned_end=Position(offset=end, leader_epoch=0),
    )
    found = [value for batch in batches for value in batch["value"].to_pylist()]
    assert ours.account.records == end - start
    return found


def expected(partition: int, start: int = 0, end: int = RECORDS) -> list[bytes]:
    return [b"%d-%d" % (partition, n) for n in range(start, end)]


def is_open(client: KafkaClient) -> bool:
    return client._connection._manager is not None


def test_all_partitions_are_read_with_one_client_and_one_layout(
    broker: TestBroker,
    topic: str,
    shared: SharedClient,
    opened: list[KafkaClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts: list[str] = []
    layout = KafkaClient.layout

    def noted(client: KafkaClient, name: str, **options: Any) -> Any:
        layouts.append(name)
        return layout(client, name, **options)

    ours = reader(broker, topic, shared)
    opened.clear()
    monkeypatch.setattr(KafkaClient, "layout", noted)
    for partition in range(PARTITIONS):
        assert read(ours, partition) == expected(partition)
    assert read(ours, 1, 5, 17) == expected(1, 5, 17)
    assert len(opened) == 1
    assert layouts == [topic]
    shared.close()
    assert not is_open(opened[0])


def test_a_read_that_is_abandoned_leaves_nothing_for_the_next_one(
    broker: TestBroker, topic: str, shared: SharedClient, opened: list[KafkaClient]
) -> None:
    """The next fetch is in flight when the read is abandoned: its answer is not that of the next read."""
    ours = reader(broker, topic, shared, fetch_bytes_max=1)
    opened.clear()
    batches = ours.read(0, OffsetRange(start=0, end=RECORDS))
    assert next(batches)["value"].to_pylist() == expected(0, 0, 1)
    batches.close()
    assert not is_open(opened[0])
    assert read(ours, 1) == expected(1)
    assert len(opened) == 2


def test_a_read_that_failed_leaves_nothing_for_the_next_one(
    broker: TestBroker, topic: str, shared: SharedClient, opened: list[KafkaClient]
) -> None:
    ours = reader(broker, topic, shared)
    opened.clear()
    with pytest.raises(NotYet):
        read(ours, 0, 0, RECORDS + 1)
    assert not is_open(opened[0])
    assert read(ours, 0) == expected(0)


def test_two_reads_at_the_same_time_have_clients_of_their_own(
    broker: TestBroker, topic: str, shared: SharedClient, opened: list[KafkaClient]
) -> None:
    ours, other = (reader(broker, topic, shared, fetch_bytes_max=1) for _ in range(2))
    opened.clear()
    pairs = list(
        zip(
            ours.read(0, OffsetRange(start=0, end=RECORDS)),
            other.read(1, OffsetRange(start=0, end=RECORDS)),
            strict=True,
        )
    )
    assert [value for one, _ in pairs for value in one["value"].to_pylist()] == expected(0)
    assert [value for _, one in pairs for value in one["value"].to_pylist()] == expected(1)
    assert len(opened) == 2
    assert sorted(map(is_open, opened)) == [False, True]
    shared.close()
    assert not any(map(is_open, opened))


def test_a_connection_that_the_broker_has_closed_is_opened_again(
    broker: TestBroker, topic: str, shared: SharedClient, opened: list[KafkaClient]
) -> None:
    """A broker closes a connection that was idle for ten minutes, such as during a slow upload."""
    ours = reader(broker, topic, shared)
    opened.clear()
    assert read(ours, 0) == expected(0)
    for connection in opened[0]._connection._manager._conns.values():
        connection.transport._sock.shutdown(2)
    assert read(ours, 1) == expected(1)
    assert len(opened) == 1


def test_a_topic_that_is_recreated_between_two_reads_is_refused(
    broker: TestBroker, topic: str, shared: SharedClient
) -> None:
    """The last layout has the old id, and no broker accepts it."""
    ours = reader(broker, topic, shared)
    assert read(ours, 0) == expected(0)
    broker.delete_topic(topic)
    broker.topic(PARTITIONS, name=topic)
    send(broker.producer(), topic, *expected(1), partition=1)
    with pytest.raises(IdentityChanged, match=f"expected id {ours.topic_id}, found"):
        read(ours, 1)


def test_another_topic_with_the_same_client_has_a_layout_of_its_own(
    broker: TestBroker, topic: str, shared: SharedClient, opened: list[KafkaClient]
) -> None:
    second = broker.topic()
    send(broker.producer(), second, b"0-0")
    readers = [reader(broker, name, shared) for name in (topic, second)]
    opened.clear()
    assert read(readers[0], 3) == expected(3)
    assert read(readers[1], 0, 0, 1) == [b"0-0"]
    assert len(opened) == 1


def test_a_broker_that_cannot_be_reached_is_named_for_each_read() -> None:
    port = free_port()
    settings = KafkaSettings(bootstrap_servers=(f"127.0.0.1:{port}",), bootstrap_timeout_ms=500)
    with SharedClient(settings) as shared:
        ours = RangeReader(
            settings, topic="t", topic_id="x", cluster_id="c", compacted=False, shared=shared
        )
        for _ in range(2):
            with pytest.raises(KafkaUnavailable, match=str(port)):
                list(ours.read(0, OffsetRange(start=0, end=1)))
