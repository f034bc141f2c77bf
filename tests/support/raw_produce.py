"""Record batches sent unchanged: those that no producer would write, but that a broker accepts."""

from __future__ import annotations

from functools import partial

import kafka.errors as kerrors
from kafka.protocol.producer.produce import ProduceRequest

from support.brokers import TestBroker
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.connection import Connection
from tallystick_devstack.process import wait_until

_NAMES_UNTIL = 12  # later versions of the request name a topic by its id
_TIMEOUT_MS = 10_000
# The answers of a broker that is not the leader of a new topic yet, although the metadata name it. It appended nothing.
_NOT_YET = (
    kerrors.NotLeaderForPartitionError.errno,
    kerrors.UnknownTopicOrPartitionError.errno,
    kerrors.LeaderNotAvailableError.errno,
)


def produce_raw(broker: TestBroker, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Append each batch by its own request; raises Kafka's error if the broker refuses one."""
    with KafkaClient(broker.settings) as client:
        leader = client.layout(topic).leaders[partition].node_id
    with Connection(broker.settings) as connection:
        for batch in batches:
            wait_until(
                partial(_appended, connection, leader, topic, partition, batch),
                deadline_s=60,
                what=f"{len(batch)} bytes in {topic}",
            )


def _appended(
    connection: Connection, leader: int, topic: str, partition: int, batch: bytes
) -> bool:
    kind = ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[kind(name=topic, partition_data=[part])],
        max_version=_NAMES_UNTIL,
    )
    answer = connection.call(request, leader)
    code = answer.responses[0].partition_responses[0].error_code
    if code and code not in _NOT_YET:
        raise kerrors.for_code(code)(f"{len(batch)} bytes to {topic}")
    return not code
