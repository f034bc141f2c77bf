"""Answers that a broker gives for a moment about a new topic are awaited; any other ends the command at once."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystick.errors import KafkaUnavailable
from tallystick_devstack import topics


def answers(*codes: int | None) -> tuple[list[int], Any]:
    """Return the calls that were made, and a request that is answered by these errors in turn; None is success."""
    calls: list[int] = []

    def ask() -> dict[str, Future[str]]:
        code = codes[len(calls)]
        calls.append(1)
        future: Future[str] = Future()
        if code is None:
            future.set_result("offset")
        else:
            future.set_exception(KafkaException(KafkaError(code)))
        return {"place": future}

    return calls, ask


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> topics.Topics:
    monkeypatch.setattr(topics, "_POLL_S", 0.001)
    return topics.Topics({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    ],
)
def test_a_passing_answer_about_a_new_topic_is_asked_again(
    cluster: topics.Topics, code: int
) -> None:
    calls, ask = answers(code, code, None)
    assert cluster._answers("offsets", ask) == {"place": "offset"}
    assert len(calls) == 3


def test_another_answer_ends_the_command_at_once(cluster: topics.Topics) -> None:
    calls, ask = answers(KafkaError.TOPIC_AUTHORIZATION_FAILED, None)
    with pytest.raises(KafkaUnavailable, match=r"offsets of Kafka at 127\.0\.0\.1:1"):
        cluster._answers("offsets", ask)
    assert len(calls) == 1
