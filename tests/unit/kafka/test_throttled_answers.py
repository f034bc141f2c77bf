"""Answers that a broker keeps its bytes back from: asked again, and never taken for what the log holds."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable
from tallystick.kafka import client as asking
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
    """An answer with one partition, or with none where nothing is said of it."""
    topic = FetchResponse.FetchableTopicResponse
    words = {"partition_index": 0, "error_code": 0, "preferred_read_replica": -1, "records": b""}
    words |= {"high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0}
    words |= {"aborted_transactions": []}
    found = [topic(topic_id=TOPIC_ID, partitions=[topic.PartitionData(**(words | part))])]
    return FetchResponse(
        throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=found if part else []
    )


class Told(Connection):
    """Answers each request with the next line of a script."""

    def __init__(self, *answers: FetchResponse) -> None:
        super().__init__(SETTINGS)
        self.left = list(answers)
        self.asked: list[int] = []

    def send(self, request: Any, node_id: int) -> Any:
        self.asked.append(request.topics[0].partitions[0].fetch_offset)
        return self.left.pop(0)

    def wait(self, future: Any) -> Any:
        return future


def client(told: Told) -> KafkaClient:
    ours = KafkaClient(SETTINGS)
    ours._connection = told
    return ours


@pytest.mark.parametrize(
    "withheld", [answer(50), answer(50, records=b""), answer(50, records=None)]
)
def test_what_a_throttling_broker_keeps_back_is_asked_for_again(withheld: FetchResponse) -> None:
    told = Told(*[withheld] * 9, answer(50, records=b"all"))
    assert client(told).fetch(ORDER).result().records == b"all"
    assert told.asked == [7] * 10


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (answer(0, records=b""), (0, b"", None)),
        (answer(50, error_code=6), (6, b"", None)),
        (answer(50, preferred_read_replica=3), (0, b"", 3)),
        (answer(50, records=b"some"), (0, b"some", None)),
    ],
    ids=["empty without a throttle", "an error", "a nearer replica", "bytes"],
)
def test_what_is_said_stands_throttled_or_not(
    said: FetchResponse, found: tuple[int, bytes, int | None]
) -> None:
    told = Told(said)
    fetched = client(told).fetch(ORDER).result()
    assert (fetched.error_code, fetched.records, fetched.preferred) == found
    assert told.asked == [7]


def test_a_throttle_that_never_ends_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_THROTTLED_S_MAX", 0.0)
    with pytest.raises(KafkaUnavailable, match="topic 't' partition 0 from offset 7") as failed:
        client(Told(answer(50))).fetch(ORDER).result()
    assert "consumer_byte_rate" in failed.value.hint


def test_the_clock_of_patience_stands_still_while_a_broker_makes_us_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking.time, "monotonic", lambda: 100.0)
    told = Told()
    told.throttled_s = 30.0
    assert client(told).clock() == 70.0
