"""A real broker behind a proxy that removes the records from its answers for a while: nothing is lost, nothing fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from support.brokers import TestBroker, send
from support.kafka_tap import KafkaTap
from support.log_lake import LogLake, at, days, decoded, ms, value
from tallystick.errors import KafkaUnavailable
from tallystick.format.offsets import OffsetRange
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.reader import RangeReader
from tallystick_devstack.process import wait_until

Done = TypeVar("Done")
LONG_S = 60.0
# More than a reader, or a search, once took as proof of an empty log.
ANSWERS = 7
COMPACTED = pytest.mark.parametrize("policy", ["delete", "compact"])


@pytest.fixture
def tap(broker: TestBroker) -> Iterator[KafkaTap]:
    with KafkaTap(broker.bootstrap) as running:
        yield running


def filled(broker: TestBroker, policy: str) -> str:
    """Produce ten records of each of three days, each with its own key: compaction removes nothing."""
    topic = broker.topic(cleanup_policy=policy)
    producer = broker.producer()
    for day in range(3):
        for number in range(10 * day, 10 * day + 10):
            stamp = ms(at(day + 0.5))
            send(producer, topic, value(number), key=b"%d" % number, timestamp=stamp, flush=False)
    assert producer.flush(30) == 0
    return topic


def lake_of(broker: TestBroker, tap: KafkaTap, topic: str) -> LogLake:
    settings = replace(broker.settings, bootstrap_servers=(tap.bootstrap,))
    return LogLake(broker, [decoded(topic, tombstones="keep")], settings=settings)


def while_quiet(tap: KafkaTap, act: Callable[[], Done], enough: Callable[[], bool]) -> Done:
    """Return the result of `act`, started while the answers of the broker are empty; they are until `enough()`."""
    with ThreadPoolExecutor(1) as pool:
        with tap.quiet():
            acting = pool.submit(act)
            wait_until(
                lambda: acting.done() or enough(), deadline_s=120, what="enough empty answers"
            )
            assert not acting.done(), "it ended while the broker's answers were empty"
        return acting.result(120)


def answers(tap: KafkaTap, many: int = ANSWERS) -> Callable[[], bool]:
    """Return a check whether this many more answers were emptied since."""
    before = tap.emptied
    return lambda: tap.emptied - before >= many


@COMPACTED
def test_plan_and_stage_wait_for_records_that_a_broker_withholds(
    broker: TestBroker, tap: KafkaTap, policy: str
) -> None:
    topic = filled(broker, policy)
    lake = lake_of(broker, tap, topic)
    plan = while_quiet(tap, lambda: lake.plan(days(1, 2)), answers(tap))
    (planned,) = plan.topics[0].ranges
    assert (planned.start, planned.end) == (10, 20)
    report = while_quiet(tap, lambda: lake.stage(plan), answers(tap))
    lake.commit(plan, report)
    assert {row["n"] for row in lake.rows().values()} == set(range(10, 20))
    assert lake.record(days(1, 2)).accounts[0].absent == 0


def test_a_minute_of_empty_answers_costs_a_minute_and_no_row(
    broker: TestBroker, tap: KafkaTap
) -> None:
    """The topic is compacted: empty answers must not be treated as compaction."""
    topic = filled(broker, "compact")
    lake = lake_of(broker, tap, topic)
    plan = lake.plan(days(1, 2))
    ends_at = time.monotonic() + LONG_S
    report = while_quiet(tap, lambda: lake.stage(plan), lambda: time.monotonic() >= ends_at)
    lake.commit(plan, report)
    assert {row["n"] for row in lake.rows().values()} == set(range(10, 20))


@COMPACTED
def test_a_broker_whose_answers_remain_empty_is_unavailable_and_the_retry_reads_all(
    broker: TestBroker, tap: KafkaTap, policy: str
) -> None:
    topic = filled(broker, policy)
    settings = replace(
        broker.settings, bootstrap_servers=(tap.bootstrap,), empty_fetch_timeout_ms=1_000
    )
    with KafkaClient(settings) as client:
        topic_id, cluster_id = client.layout(topic).topic_id, client.cluster_id()
    topic_fields: dict[str, Any] = {"topic": topic, "topic_id": topic_id, "cluster_id": cluster_id}
    ours = RangeReader(settings, **topic_fields, compacted=policy == "compact")
    span = OffsetRange(start=5, end=25)
    with tap.quiet(), pytest.raises(KafkaUnavailable, match=r"from offset 5: .* were empty"):
        list(ours.read(0, span))
    assert sum(batch.num_rows for batch in ours.read(0, span)) == 20
    assert (ours.account.records, ours.account.absent) == (20, 0)


def test_the_proxy_changes_nothing_while_it_is_not_quiet(broker: TestBroker, tap: KafkaTap) -> None:
    topic = filled(broker, "delete")
    lake = lake_of(broker, tap, topic)
    lake.run(days(0, 3))
    lake.assert_equals_kafka(topic)
    assert tap.emptied == 0
