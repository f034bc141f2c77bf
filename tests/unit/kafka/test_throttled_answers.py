"""Answers of a throttling broker without their bytes: fetched again, and never treated as the content of the log."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable
from tallystick.kafka import client as client_module
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.connection import Connection
from tallystick.kafka.wire import FetchOrder, Leader, TopicLayout, topic_id_text

TOPIC_ID = uuid.UUID(int=5)
SETTINGS = KafkaSettings(bootstrap_servers=("nowhere:1",))
ORDER = FetchOrder(
    layout=TopicLayout(
        name="t", topic_id=topic_id_text(TOPIC_ID), leaders=(Leader(node_id=1, epoch=0),)
    ),
    partition=0,
    offset=7,
    bytes_max=1_000,
    wait_ms=1,
    committed=True,
)


def answer(throttle_ms: int, **part: Any) -> FetchResponse:
    """Return an answer with one partition, or without partitions if `part` is empty."""
    topic = FetchResponse.FetchableTopicResponse
    fields = {"partition_index": 0, "error_code": 0, "preferred_read_replica": -1, "records": b""}
    fields |= {"high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0}
    fields |= {"aborted_transactions": []}
    topics = [topic(topic_id=TOPIC_ID, partitions=[topic.PartitionData(**(fields | part))])]
    return FetchResponse(
        throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics if part else []
    )


class ScriptedConnection(Connection):
    """A connection that answers each request with the next answer of a script."""

    def __init__(self, *answers: FetchResponse) -> None:
        super().__init__(SETTINGS)
        self.left = list(answers)
        self.offsets: list[int] = []

    def send(self, request: Any, node_id: int) -> Any:
        self.offsets.append(request.topics[0].partitions[0].fetch_offset)
        return self.left.pop(0)

    def wait(self, future: Any) -> Any:
        return future


def client(connection: ScriptedConnection) -> KafkaClient:
    ours = KafkaClient(SETTINGS)
    ours._connection = connection
    return ours


@pytest.mark.parametrize(
    "withheld", [answer(50), answer(50, records=b""), answer(50, records=None)]
)
def test_bytes_that_a_throttling_broker_withholds_are_fetched_again(
    withheld: FetchResponse,
) -> None:
    connection = ScriptedConnection(*[withheld] * 9, answer(50, records=b"all"))
    assert client(connection).fetch(ORDER).result().records == b"all"
    assert connection.offsets == [7] * 10


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(0, records=b""), (0, b"", None)),
        (answer(50, error_code=6), (6, b"", None)),
        (answer(50, preferred_read_replica=3), (0, b"", 3)),
        (answer(50, records=b"some"), (0, b"some", None)),
    ],
    ids=["empty without a throttle", "an error", "a nearer replica", "bytes"],
)
def test_an_answer_with_content_is_returned_throttled_or_not(
    given: FetchResponse, expected: tuple[int, bytes, int | None]
) -> None:
    connection = ScriptedConnection(given)
    fetched = client(connection).fetch(ORDER).result()
    assert (fetched.error_code, fetched.records, fetched.preferred) == expected
    assert connection.offsets == [7]


def test_a_throttle_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_THROTTLED_S_MAX", 0.0)
    with pytest.raises(KafkaUnavailable, match="topic 't' partition 0 from offset 7") as failed:
        client(ScriptedConnection(answer(50))).fetch(ORDER).result()
    assert "consumer_byte_rate" in failed.value.hint


def test_throttled_time_does_not_count_against_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module.time, "monotonic", lambda: 100.0)
    connection = ScriptedConnection()
    connection.throttled_s = 30.0
    assert client(connection).clock() == 70.0
