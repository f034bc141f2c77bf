"""The search for a boundary in a compacted log that sends nothing up to its end, answer by answer."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from support.kafka_batches import Sent, batch
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import KafkaUnavailable
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.search import Search
from tallystick.kafka.wire import NO_EPOCH, Fetched, FetchOrder, Leader, TopicLayout, topic_id_text

HIGH_WATERMARK = 100
LAYOUT = TopicLayout(
    name="t",
    topic_id=topic_id_text(uuid.UUID(int=5)),
    leaders=(Leader(node_id=1, epoch=0),),
)


class Compacted(KafkaClient):
    """A log of one record at offset 10. Nothing after it is sent; the high watermark is 100.

    `emptied`: the cleaner kept the last batch of its pass without records, as Kafka's does.
    """

    def __init__(self, *, emptied: bool) -> None:
        settings = KafkaSettings(bootstrap_servers=("nowhere:1",), empty_fetch_timeout_ms=1)
        super().__init__(settings)
        self._emptied = emptied
        self._now = 0.0

    def clock(self) -> float:
        self._now += 0.1
        return self._now

    def layout(self, topic: str, *, topic_id: str | None = None) -> TopicLayout:
        return LAYOUT

    def pause(self, attempt: int) -> None:
        pass

    def fetch(self, order: FetchOrder) -> Any:
        records = batch(Sent(timestamp=1_000), base=10) if order.offset <= 10 else b""
        if self._emptied:
            records += batch(base=98, last_delta=1, epoch=3)
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


def search(at_ms: int, *, emptied: bool) -> Search:
    return Search(Compacted(emptied=emptied), LAYOUT, 0, at_ms)


def test_the_boundary_after_a_compacted_end_is_the_high_watermark_with_the_kept_epoch() -> None:
    assert search(2_000, emptied=True).first(0) == HIGH_WATERMARK
    position = search(2_000, emptied=True).position(HIGH_WATERMARK, 0)
    assert (position.offset, position.leader_epoch) == (HIGH_WATERMARK, 3)


def test_the_position_after_a_compacted_record_has_no_epoch() -> None:
    position = search(2_000, emptied=True).position(50, 0)
    assert (position.offset, position.leader_epoch) == (50, NO_EPOCH)


def test_a_record_that_compaction_kept_is_found() -> None:
    assert search(1_000, emptied=False).first(0) == 10


def test_empty_answers_up_to_the_end_are_unavailable() -> None:
    with pytest.raises(
        KafkaUnavailable, match=r"from offset 11: .* were empty.*below the high watermark 100"
    ):
        search(2_000, emptied=False).first(0)
