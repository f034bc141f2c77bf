"""The topic on servers that were started elsewhere is filled once, completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Producer

from examples.demo import fill
from examples.demo.flights import Batch, Flight, break_some, in_batches, read_flights
from tallystick.errors import KafkaUnavailable, SettingsError, StoreUnavailable

BATCHES = [
    Batch("plain", [Flight(1, None, b"{}", 0, partition=0)] * 3),
    Batch("aborted", [Flight(2, None, b"{}", 0, partition=p) for p in (0, 1, 1)]),
    Batch("committed", [Flight(3, None, b"{}", 0, partition=5)]),
]


@dataclass
class Kafka:
    """A fake broker: a topic with `offsets` offsets, and the calls."""

    offsets: int | None
    done: list[str] = field(default_factory=list)

    def create_topic(self, kafka: Mapping[str, str], topic: str) -> None:
        self.done.append("create")

    def produce(
        self, kafka: Mapping[str, str], topic: str, batches: Sequence[Batch], *, sent: Any
    ) -> int:
        self.done.append("produce")
        return sum(len(batch.flights) for batch in batches)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka(offsets=None)
    monkeypatch.setattr(fill, "offsets_in", lambda _, topic: kafka.offsets)
    monkeypatch.setattr(fill, "create_topic", kafka.create_topic)
    monkeypatch.setattr(fill, "produce", kafka.produce)
    return kafka


def test_the_end_of_a_transaction_takes_an_offset_in_each_of_its_partitions() -> None:
    assert fill.offsets_of(BATCHES) == 3 + (3 + 2) + (1 + 1)


def test_the_year_of_flights_takes_as_many_offsets_as_on_a_real_broker() -> None:
    # From the ledger of a real run, as in the README: 336,440 + 336 + 50 + 12.
    assert fill.offsets_of(in_batches(break_some(read_flights()))) == 336_838


def test_a_missing_topic_is_created_and_filled(kafka: Kafka) -> None:
    assert fill.fill_topic({"bootstrap.servers": "b:1"}, "flights", BATCHES) == 7
    assert kafka.done == ["create", "produce"]


def test_a_complete_topic_is_left_unchanged(kafka: Kafka) -> None:
    kafka.offsets = 10
    assert fill.fill_topic({"bootstrap.servers": "b:1"}, "flights", BATCHES) == 0
    assert kafka.done == []


@pytest.mark.parametrize("offsets", [0, 9, 11])
def test_a_topic_with_other_content_is_refused(kafka: Kafka, offsets: int) -> None:
    kafka.offsets = offsets
    with pytest.raises(
        SettingsError, match=f"expected 10 offsets .*found {offsets}.*delete the topic"
    ):
        fill.fill_topic({"bootstrap.servers": "b:1"}, "flights", BATCHES)
    assert kafka.done == []


@pytest.fixture
def cluster() -> tuple[Producer, str]:
    """Return a producer and the address of librdkafka's mock cluster of one broker, inside this process."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = producer.list_topics(timeout=10).brokers.values()
    return producer, f"{broker.host}:{broker.port}"


def test_offsets_are_counted_over_all_partitions(cluster: tuple[Producer, str]) -> None:
    producer, bootstrap = cluster
    for partition in (0, 0, 1, 3):
        producer.produce("flights", b"{}", partition=partition)
    assert producer.flush(10) == 0
    assert fill.offsets_in({"bootstrap.servers": bootstrap}, "flights") == 4
    assert fill.offsets_in({"bootstrap.servers": bootstrap}, "other") is None


def test_a_broker_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "TIMEOUT_S", 0.2)
    with pytest.raises(KafkaUnavailable, match=r"flights at 127\.0\.0\.1:1"):
        fill.offsets_in({"bootstrap.servers": "127.0.0.1:1"}, "flights")


@pytest.mark.parametrize(
    ("code", "raised"), [("BucketAlreadyOwnedByYou", False), ("AccessDenied", True)]
)
def test_only_an_existing_bucket_of_the_same_owner_is_accepted(
    code: str, raised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        def create_bucket(self, *, Bucket: str) -> None:
            raise ClientError({"Error": {"Code": code, "Message": Bucket}}, "CreateBucket")

    monkeypatch.setattr("boto3.client", lambda service: Client())
    if raised:
        with pytest.raises(StoreUnavailable, match="did not create the bucket lake"):
            fill.create_bucket("lake")
    else:
        fill.create_bucket("lake")
