"""The search for a boundary where compaction has taken the end of a log, answer by answer."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kafka_batches import Sent, batch
from tallystick.errors import KafkaUnavailable
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.search import Search
from tallystick.kafka.settings import KafkaSettings
from tallystick.kafka.wire import NO_EPOCH, Fetched, FetchOrder, Leader, TopicLayout, topic_id_text

HIGH_WATERMARK = 100
LAYOUT = TopicLayout(
    name="t",
    topic_id=topic_id_text(uuid.UUID(int=5)),
    leaders=(Leader(node_id=1, epoch=0),),
)


class Compacted(KafkaClient):
    """A log of one record at offset 10; whatever was behind it is gone, the high watermark stays at 100."""

    def __init__(self, policy: str) -> None:
        super().__init__(KafkaSettings(bootstrap_servers=("nowhere:1",), request_timeout_ms=300))
        self.policy = policy

    def layout(self, topic: str, *, topic_id: str | None = None) -> TopicLayout:
        return LAYOUT

    def topic_config(self, topic: str, key: str) -> str:
        assert key == "cleanup.policy"
        return self.policy

    def pause(self, attempt: int) -> None:
        pass

    def fetch(self, order: FetchOrder) -> Any:
        records = batch(Sent(timestamp=1_000), base=10) if order.offset <= 10 else b""
        fetched = Fetched(
            error_code=0,
            records=records,
            log_start=0,
            high_watermark=HIGH_WATERMARK,
            last_stable=HIGH_WATERMARK,
            aborted=(),
        )

        class Pending:
            def result(self) -> Fetched:
                return fetched

        return Pending()


def search(policy: str, at_ms: int) -> Search:
    return Search(Compacted(policy), LAYOUT, 0, at_ms)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_end_leaves_the_high_watermark_without_an_epoch(policy: str) -> None:
    assert search(policy, 2_000).first(0) == HIGH_WATERMARK
    found = search(policy, 2_000).position(HIGH_WATERMARK, 0)
    assert (found.offset, found.leader_epoch) == (HIGH_WATERMARK, NO_EPOCH)


def test_a_record_that_is_left_is_found() -> None:
    assert search("compact", 1_000).first(0) == 10


def test_the_same_silence_of_a_log_that_is_not_compacted_is_no_answer() -> None:
    with pytest.raises(KafkaUnavailable, match="nothing at offset 11 below the high watermark 100"):
        search("delete", 2_000).first(0)
