"""Brokers with quotas: a throttled client waits as long as required, does not time out, and reads every record once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.net.connection import KafkaConnection
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from support.brokers import TestBroker, send
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable
from tallystick.format.offsets import OffsetRange, Position
from tallystick.kafka import client as client_module
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.planning import LogPlanner
from tallystick.kafka.reader import RangeReader
from tallystick.kafka.wire import FetchOrder
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import wait_until

RECORDS = 1_000
VALUES = [b"%04d" % n * 50 for n in range(RECORDS)]  # 200 bytes each, 20 of them in a batch
WINDOW_S = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Start a broker whose quotas have a window of 3 s, not 11: it throttles for about 2 s at a time."""
    windows = {"quota.window.num": str(WINDOW_S), "quota.window.size.seconds": "1"}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=windows) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


@pytest.fixture(scope="module")
def topic(broker: TestBroker) -> str:
    name = broker.topic()
    send(broker.producer(batch_num_messages=20), name, *VALUES, timestamp=1_000)
    return name


class Wire:
    """The requests of each connection with their times, and the periods in which the broker throttled it."""

    def __init__(self) -> None:
        self.sent: list[tuple[KafkaConnection, float, str]] = []
        self.quiet: list[tuple[KafkaConnection, float, float]] = []

    @property
    def longest_s(self) -> float:
        return max(end - begin for _, begin, end in self.quiet)

    def violations(self) -> list[tuple[float, str]]:
        """Return the requests that were sent while the broker throttled their connection."""
        return [
            (sent - begin, what)
            for connection, begin, end in self.quiet
            for other, sent, what in self.sent
            if other is connection and begin < sent < end
        ]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    recorded = Wire()
    send_request, throttle = KafkaConnection._send_request, KafkaConnection._maybe_throttle
    unpause = KafkaConnection.unpause
    waiting: list[tuple[KafkaConnection, str]] = []

    def sent(connection: KafkaConnection, request: Any, **options: Any) -> Any:
        # While a connection is paused, the library does not send the bytes of a request, e.g. of one that waited for its
        # connection, whose first answer (of ApiVersions) was throttled: they are sent in `unpaused`.
        name = type(request).__name__
        if connection.paused:
            waiting.append((connection, name))
        else:
            recorded.sent.append((connection, time.monotonic(), name))
        return send_request(connection, request, **options)

    def unpaused(connection: KafkaConnection, why: str) -> None:
        unpause(connection, why)
        if not connection.paused:
            gone = [request for request in waiting if request[0] is connection]
            waiting[:] = [request for request in waiting if request[0] is not connection]
            recorded.sent += [(connection, time.monotonic(), name) for _, name in gone]

    def throttled(connection: KafkaConnection, answer: Any) -> None:
        # On its first connection, kafka-python has no version of the broker that answers ApiVersions: it ignores the
        # throttle of that answer, and requests metadata at once. Later connections have the version.
        known = connection.broker_version_data is not None
        if known and (wait_ms := getattr(answer, "throttle_time_ms", 0)):
            now = time.monotonic()
            recorded.quiet.append((connection, now, now + wait_ms / 1000))
        throttle(connection, answer)

    monkeypatch.setattr(KafkaConnection, "_send_request", sent)
    monkeypatch.setattr(KafkaConnection, "unpause", unpaused)
    monkeypatch.setattr(KafkaConnection, "_maybe_throttle", throttled)
    return recorded


def limited(
    broker: TestBroker, client_id: str, key: str, value: float, **options: Any
) -> KafkaSettings:
    """Return the settings of a client with a quota on the broker."""
    kind = AlterClientQuotasRequest.EntryData
    entry = kind(
        entity=[kind.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[kind.OpData(key=key, value=value, remove=False)],
    )
    with KafkaClient(broker.settings) as client:
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        (done,) = client._connection.call(request).entries
    assert done.error_code == 0, done.error_message
    return replace(broker.settings, client_id=client_id, **options)


def reader(broker: TestBroker, settings: KafkaSettings, topic: str) -> RangeReader:
    with KafkaClient(broker.settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    return RangeReader(
        settings, topic=topic, topic_id=topic_id, cluster_id=cluster_id, compacted=False
    )


@pytest.mark.parametrize("timeout_ms", [500, 30_000], ids=["shorter", "longer"])
def test_a_throttled_range_is_read_completely_with_timeouts_longer_or_shorter_than_throttles(
    broker: TestBroker, topic: str, wire: Wire, timeout_ms: int
) -> None:
    rate = 20_000.0
    settings = limited(
        broker, f"bytes-{timeout_ms}", "consumer_byte_rate", rate, request_timeout_ms=timeout_ms
    )
    ours = reader(broker, settings, topic)
    span = OffsetRange(start=0, end=RECORDS)
    end = Position(offset=RECORDS, leader_epoch=0)
    batches = list(ours.read(0, span, leader_epoch=-1, planned_end=end))
    assert [o for batch in batches for o in batch["offset"].to_pylist()] == list(range(RECORDS))
    assert [value for batch in batches for value in batch["value"].to_pylist()] == VALUES
    account = ours.account
    assert (account.records, account.aborted, account.control, account.absent) == (RECORDS, 0, 0, 0)
    assert wire.longest_s > 0.5, "invalid test: the broker hardly throttled"
    assert not wire.violations()
    _, first, _ = wire.quiet[0]
    after = [what for _, sent, what in wire.sent if sent > first]
    # The last request, a fetch for nothing by the topic's id, checks that the topic is still the one that was read.
    assert after.pop() == "FetchRequest"
    assert set(after) <= {"FetchRequest", "OffsetForLeaderEpochRequest"}, (
        "a throttle is no reason to refresh the metadata"
    )


def test_planning_and_reading_continue_if_requests_are_throttled(
    broker: TestBroker, topic: str, wire: Wire
) -> None:
    # A hundredth of one thread: 30 ms in 3 s, after which any answer can require a wait of up to 1 s.
    settings = limited(broker, "requests", "request_percentage", 1.0)
    with LogPlanner(settings) as planner:
        wait_until(
            lambda: (planner.describe([topic]), wire.quiet)[1],
            deadline_s=60,
            what="a throttled answer",
        )
        found = planner.boundary(topic, 1_000, [0])
        found_none = planner.boundary(topic, 2_000, [0])
    assert ([p.offset for p in found], [p.offset for p in found_none]) == ([0], [RECORDS])
    ours = reader(broker, settings, topic)
    rows = sum(batch.num_rows for batch in ours.read(0, OffsetRange(start=0, end=40)))
    assert (rows, ours.account.records) == (40, 40)
    requests = {what for _, _, what in wire.sent}
    assert {"MetadataRequest", "ListOffsetsRequest", "FetchRequest"} <= requests
    assert not wire.violations()


def test_throttled_time_is_subtracted_from_the_clock_of_the_client(
    broker: TestBroker, topic: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_THROTTLED_S_MAX", 1.0)
    settings = limited(broker, "waits", "consumer_byte_rate", 1_000.0)
    with KafkaClient(settings) as client:
        start = time.monotonic() - client.clock()
        order = FetchOrder(
            layout=client.layout(topic),
            partition=0,
            offset=0,
            bytes_max=1 << 20,
            wait_ms=1,
            committed=True,
        )
        with pytest.raises(KafkaUnavailable, match="throttled"):
            client.fetch(order).result()
        waited_s = time.monotonic() - client.clock() - start
    ended = [
        end - begin for _, begin, end in wire.quiet[:-1]
    ]  # the last throttle was not waited for
    assert waited_s >= sum(ended) - 0.1 > 0.5


def test_a_quota_below_the_size_of_a_batch_is_an_error_after_the_limit(
    broker: TestBroker, topic: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_THROTTLED_S_MAX", 1.0)
    settings = limited(broker, "tiny", "consumer_byte_rate", 1_000.0, request_timeout_ms=500)
    ours = reader(broker, settings, topic)
    with pytest.raises(
        KafkaUnavailable, match=r"has throttled topic .* from offset 0 for 1 s.*sent none of it"
    ) as failed:
        list(ours.read(0, OffsetRange(start=0, end=RECORDS)))
    assert "consumer_byte_rate" in failed.value.hint
    assert not wire.violations()
