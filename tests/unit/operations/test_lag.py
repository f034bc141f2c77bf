"""The lag of topics in time: the age of the oldest uncommitted record, and what is not known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.small_lake import NOW, TOPIC, good_lake
from tallystick.errors import KafkaUnavailable
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from tallystick.operations.lag import PartitionLag, TopicLag, read_lag
from tallystick.operations.status import read_status
from tallystick.store.memory import MemoryStore

HOUR = timedelta(hours=1)


def partition(lag: int, hours: float | None = None) -> PartitionLag:
    at = None if hours is None else NOW - hours * HOUR
    return PartitionLag(read_to=100, start=0, end=100 + lag, next_at=at)


@pytest.mark.parametrize(
    ("partitions", "age"),
    [
        ([], timedelta(0)),
        ([partition(0)], timedelta(0)),
        ([partition(0, hours=9)], timedelta(0)),
        ([partition(1, hours=2), partition(7, hours=3), partition(0)], 3 * HOUR),
        ([partition(1, hours=-2)], timedelta(0)),
        ([partition(1, hours=2), partition(7)], None),
    ],
    ids=["none", "all committed", "committed has no age", "the oldest", "the future", "not known"],
)
def test_the_age_is_of_the_oldest_uncommitted_record(
    partitions: list[PartitionLag], age: timedelta | None
) -> None:
    assert TopicLag(partitions=tuple(partitions), before=None, after=None).age(NOW) == age


@pytest.mark.parametrize(
    ("at_ms", "known"), [(None, False), (-1, False), (0, True), (2**62, False), (10**15 * 9, False)]
)
def test_a_timestamp_that_is_no_time_is_not_known(at_ms: int | None, known: bool) -> None:
    lake = good_lake(MemoryStore("lag")).lake
    status = read_status(lake)
    topic = status.topics[TOPIC]
    ends = TopicEnds(
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        partitions=tuple(
            PartitionEnds(start=0, end=10_000, next_at_ms=at_ms) for _ in topic.origins
        ),
        kept_ms=3_600_000,
    )
    found = read_lag(lake, status, connection=None, read_ends=lambda *_: {TOPIC: ends})
    assert found.at == NOW
    assert (found.topics[TOPIC].partitions[0].next_at is not None) is known
    assert found.topics[TOPIC].kept == HOUR


def test_an_error_is_part_of_the_answer() -> None:
    lake = good_lake(MemoryStore("lag")).lake

    def fail(*_: object) -> dict[str, TopicEnds]:
        raise KafkaUnavailable("no broker answers.", hint="start one.")

    found = read_lag(lake, read_status(lake), connection="other", read_ends=fail)
    assert (found.connection, found.topics) == ("other", {})
    assert isinstance(found.error, KafkaUnavailable)
