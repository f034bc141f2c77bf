"""One real broker for all tests of a folder, and what tests do with it.

from support.brokers import broker  # noqa: F401  (in a conftest.py)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from support.kafka_cluster import KafkaCluster
from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.client import KafkaClient
from tallystick_devstack.kafka import KafkaBroker
from tallystick_devstack.process import wait_until

_DONE_S = 30.0
Read = TypeVar("Read")
Reference = TypeVar("Reference")
_numbers = itertools.count()


@dataclass(frozen=True)
class TestBroker:
    """A running broker with the clients of another library, so that the setup of tests does not depend on our client."""

    __test__ = False

    kafka: KafkaBroker | KafkaCluster
    admin: AdminClient

    @property
    def bootstrap(self) -> str:
        """host:port of each broker, separated by commas."""
        return self.kafka.bootstrap

    @property
    def settings(self) -> KafkaSettings:
        """Settings for our client, with short timeouts."""
        return KafkaSettings(
            bootstrap_servers=tuple(self.bootstrap.split(",")),
            bootstrap_timeout_ms=5_000,
            request_timeout_ms=5_000,
        )

    def topic(
        self,
        partitions: int = 1,
        *,
        name: str | None = None,
        replicas: int = 1,
        **config: object,
    ) -> str:
        """Create a topic (`config` with _ for .), wait for its leaders, and return its name."""
        name = name or f"t{next(_numbers)}"
        words = {key.replace("_", "."): str(value) for key, value in config.items()}
        done(self.admin.create_topics([NewTopic(name, partitions, replicas, config=words)]))
        self.wait_for_leaders(name, partitions)
        return name

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Wait until every partition of a topic has a leader in the metadata."""

        def ready() -> bool:
            topic = self.admin.list_topics(name, timeout=5).topics[name]
            leaders = [partition.leader for partition in topic.partitions.values()]
            return topic.error is None and len(leaders) == partitions and min(leaders) >= 0

        wait_until(ready, deadline_s=_DONE_S, what=f"topic {name} having {partitions} leaders")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until the metadata no longer contains it."""
        done(self.admin.delete_topics([name]))
        wait_until(
            lambda: self.admin.list_topics(timeout=5).topics.get(name) is None,
            deadline_s=_DONE_S,
            what=f"topic {name} gone",
        )

    def configure(self, topic: str, **config: object) -> None:
        """Change a topic's configuration (`config` with _ for .)."""
        changes = [
            ConfigEntry(
                name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET
            )
            for name, value in config.items()
        ]
        resource = ConfigResource("topic", topic, incremental_configs=changes)
        done(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset (-1: all), as retention would."""
        offset = OFFSET_END if before < 0 else before
        done(self.admin.delete_records([TopicPartition(topic, partition, offset)]))

    def producer(self, **config: object) -> Producer:
        """Return an idempotent producer (`config` with _ for .)."""
        words: dict[str, Any] = {key.replace("_", "."): value for key, value in config.items()}
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                **words,
            }
        )

    def transactions(self, name: str, **config: object) -> Producer:
        """Return a producer that is ready to begin transactions."""
        producer = self.producer(transactional_id=name, **config)
        producer.init_transactions(_DONE_S)
        return producer

    def end(
        self, producer: Producer, topic: str, *, abort: bool = False, partition: int = 0
    ) -> None:
        """End a transaction, and wait until its marker is in the log: the broker answers before that."""
        before = self.high_watermark(topic, partition)
        (producer.abort_transaction if abort else producer.commit_transaction)(_DONE_S)
        self.until_ends_beyond(topic, before, partition)

    def until_ends_beyond(self, topic: str, before: int, partition: int = 0) -> None:
        """Wait until a transaction's marker has moved the end of a partition beyond `before`."""
        wait_until(
            lambda: self.high_watermark(topic, partition) > before,
            deadline_s=_DONE_S,
            what=f"the marker in {topic}",
        )

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        """Return the end offset of a partition."""
        place = TopicPartition(topic, partition)
        found = self.admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=_DONE_S)
        return int(found[place].result(_DONE_S).offset)


def send(
    producer: Producer, topic: str, *values: bytes | None, flush: bool = True, **how: Any
) -> None:
    """Produce values in order to partition 0 (or `partition=`), and wait until the broker has acknowledged them."""
    problems: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value=value,
            **{"partition": 0, **how},
            on_delivery=lambda error, _: problems.append(error) if error else None,
        )
    if flush:
        assert producer.flush(_DONE_S) == 0, "the broker did not acknowledge every record in time"
        assert not problems, problems


def read_while_cleaning(
    read: Callable[[], Read], read_reference: Callable[[], Reference]
) -> tuple[Read, Reference]:
    """Return both readings of the same state of a compacted log, even if the cleaner is still running.

    Compaction only removes records: if two readings agree, nothing changed between them, while the reference was read.
    """
    deadline = time.monotonic() + _DONE_S
    found = read()
    while time.monotonic() < deadline:
        reference = read_reference()
        before, found = found, read()
        if before == found:
            return found, reference
    raise AssertionError(f"the log still changed after {_DONE_S:g} s of compaction")


def done(futures: Mapping[Any, Future[Any]]) -> None:
    """Wait for an admin request; raises its error."""
    for future in futures.values():
        future.result(_DONE_S)


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Run a broker until the end of a folder's last test: an idle one costs more than a CPU second per minute."""
    state: Path = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(state) as running:
        yield TestBroker(running, AdminClient({"bootstrap.servers": running.bootstrap}))


@pytest.fixture
def client(broker: TestBroker) -> Iterator[KafkaClient]:
    """Connect our client to the folder's broker."""
    with KafkaClient(broker.settings) as connected:
        yield connected
