"""Timestamps and boundaries: with any clock of any producer, and intervals in any order, ranges tile the log."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.brokers import TestBroker, send
from support.kafka_batches import Sent, batch
from support.log_lake import LogLake, at, days, fill, ms, value
from support.raw_produce import produce_raw
from tallystick.format.interval import Interval
from tallystick.format.offsets import OffsetRange, tile
from tallystick.format.plan import Plan
from tallystick_devstack.process import wait_until

ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1}
PARTITIONS = 3


class Reference:
    """Boundaries according to the protocol, computed from the produced records only, in the order of the requests."""

    def __init__(self) -> None:
        self.stamps: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._set: dict[float, list[int]] = {}

    def boundary(self, day: float) -> list[int]:
        """Return the first record at or after the instant, between the boundaries of the left and the right neighbour."""
        if day not in self._set:
            left = max((d for d in self._set if d < day), default=None)
            right = min((d for d in self._set if d > day), default=None)
            low = [0] * PARTITIONS if left is None else self._set[left]
            high = [len(s) for s in self.stamps] if right is None else self._set[right]
            self._set[day] = [
                min(self._first(partition, day, low[partition]), high[partition])
                for partition in range(PARTITIONS)
            ]
        return self._set[day]

    def _first(self, partition: int, day: float, low: int) -> int:
        stamps = self.stamps[partition]
        late = (o for o in range(low, len(stamps)) if stamps[o] >= ms(at(day)))
        return next(late, len(stamps))


QUARTERS = [n / 4 for n in range(24)]


def arrivals(until: float) -> st.SearchStrategy[list[list[float]]]:
    """Return records that arrive between two plans: the days per partition, in no order, none later than `until`."""
    days_of_records = st.lists(
        st.sampled_from([q for q in QUARTERS if q <= until]), min_size=1, max_size=6
    )
    return st.lists(days_of_records, min_size=PARTITIONS, max_size=PARTITIONS)


def ranges(plan: Plan) -> list[tuple[int, int]]:
    (topic,) = plan.topics
    return [(each.start, each.end) for each in topic.ranges]


# Without shrinking: every example needs a topic, and a failing example is printed completely.
@settings(max_examples=12, phases=(Phase.reuse, Phase.generate))
@given(data=st.data())
def test_boundaries_requested_in_any_order_tile_a_growing_log(
    broker: TestBroker, data: st.DataObject
) -> None:
    """Timestamps are shuffled, intervals run in any order, and more records of any day arrive between them."""
    inner = data.draw(st.sets(st.sampled_from(QUARTERS[1:]), min_size=2, max_size=4))
    order = data.draw(st.permutations(list(itertools.pairwise([0.0, *sorted(inner), 6.0]))))
    topic, producer = broker.topic(PARTITIONS), broker.producer()
    lake, reference = LogLake(broker, [topic]), Reference()
    read: list[list[OffsetRange]] = [[] for _ in range(PARTITIONS)]
    for turn, (first, last) in enumerate(
        [*order, (6.0, 7.0)]
    ):  # the last interval gets the late records
        for partition, days_of in enumerate(data.draw(arrivals(6 * turn / len(order)))):
            for day in days_of:
                fill(broker, topic, 1, day=day, partition=partition, producer=producer)
            reference.stamps[partition] += [ms(at(day)) for day in days_of]
        send(producer, topic)
        expected = [reference.boundary(day) for day in (first, last)]
        lake.run(days(first, last))
        plan = lake.lake.plan(lake.record(days(first, last)).plan)
        assert plan is not None
        assert ranges(plan) == list(zip(*expected, strict=True))
        for partition, (start, end) in enumerate(ranges(plan)):
            read[partition].append(OffsetRange(start=start, end=end))
    for spans, stamps in zip(read, reference.stamps, strict=True):
        assert tile(spans) == OffsetRange(start=0, end=len(stamps))
    lake.assert_equals_kafka()


def test_a_boundary_requested_late_is_not_after_those_that_were_set(
    broker: TestBroker,
) -> None:
    """Day 3 was empty when it was committed. Records that arrived since are after it, for any day of theirs."""
    topic = broker.topic()
    lake = LogLake(broker, [topic])
    fill(broker, topic, 0, 1, day=0.5)
    assert lake.run(days(2, 3)) is None
    fill(broker, topic, 2, day=0.5)
    fill(broker, topic, 3, day=1.5)
    for first in (1, 0, 3):
        lake.run(days(first, first + 1))
    spans = [
        (account.start, account.end)
        for day in (0, 3)
        for account in lake.record(days(day, day + 1)).accounts
    ]
    assert spans == [(0, 2), (2, 4)]
    lake.assert_equals_kafka()


@pytest.fixture(scope="module")
def wrong_clocks(broker: TestBroker) -> str:
    """Create a topic whose partitions have wrong clocks, each in its own way; the last one has no records."""
    topic, producer = broker.topic(6, **ANY_TIME), broker.producer()

    def filled(*numbers: int, day: float, partition: int) -> None:
        fill(broker, topic, *numbers, day=day, partition=partition, producer=producer)

    for partition in range(5):
        filled(0, 1, day=0.5, partition=partition)
    send(producer, topic)
    no_time = [Sent(value=value(n), timestamp=-1) for n in range(5)]
    produce_raw(broker, topic, batch(*no_time), partition=0)
    for number, day in enumerate((2.5, 0.2, 1.5, 0.1, 2.9)):
        filled(number, day=day, partition=1)
    filled(5, day=365 * 200, partition=2)
    microseconds = ms(at(1.5)) * 1_000
    send(producer, topic, value(6), timestamp=microseconds, partition=3)
    for partition in range(4):
        filled(7, day=1.5, partition=partition)
        filled(8, day=2.5, partition=partition)
    send(producer, topic)
    return topic


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_every_record_is_read_once_with_any_clock(
    broker: TestBroker, wrong_clocks: str, order: tuple[int, ...]
) -> None:
    """-1, out of order, two centuries ahead, microseconds for milliseconds: none is lost, none blocks later records."""
    lake = LogLake(broker, [wrong_clocks])
    for day in order:
        lake.run(days(day, day + 1))
    lake.assert_equals_kafka(dead=[(wrong_clocks, 3, 2)])  # its time is outside the calendar
    # A record from the future is in the interval of its arrival: the next record of the day is the boundary.
    ends = [
        [account.end for account in lake.record(days(day, day + 1)).accounts] for day in range(3)
    ]
    assert ends == [[7, 2, 3, 3, 2, 0], [8, 2, 4, 4, 2, 0], [9, 9, 5, 5, 2, 0]]


def test_intervals_follow_append_time_if_the_topic_has_it(broker: TestBroker) -> None:
    """The times of the producer, years before, are ignored: intervals follow the clock of the broker."""
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    lake = LogLake(broker, [topic])
    edges = [_passed()]
    for numbers in (range(10), range(10, 25)):
        fill(broker, topic, *numbers, day=0.5)
        edges.append(_passed())
    first, second = (Interval(start=a, end=b) for a, b in itertools.pairwise(edges))
    lake.run(second)
    lake.run(first)
    assert [account.records for account in lake.record(first).accounts] == [10]
    assert [account.records for account in lake.record(second).accounts] == [15]
    lake.assert_equals_kafka()


def _passed() -> datetime:
    """Wait for a millisecond after every record so far, and return it."""
    until = time.time_ns() // 1_000_000 + 2
    wait_until(
        lambda: time.time_ns() // 1_000_000 > until, deadline_s=10, what="2 ms", poll_s=0.001
    )
    return datetime.fromtimestamp(until / 1000, UTC)


def test_an_interval_without_records_is_committed_and_a_late_record_is_in_the_next(
    broker: TestBroker,
) -> None:
    topic = broker.topic(2)
    lake = LogLake(broker, [topic])
    fill(broker, topic, 1, day=0.5)
    lake.run(days(0, 1))
    assert lake.run(days(1, 2)) is None  # the plan commits it, without tasks
    assert lake.record(days(1, 2)).report is None
    fill(broker, topic, 2, day=1.5)  # late: its day is over
    fill(broker, topic, 3, day=2.5, partition=1)
    assert lake.run(days(1, 2)) is None
    lake.run(days(2, 3))
    assert {(p, o): row["n"] for (_, p, o), row in lake.rows().items()} == {
        (0, 0): 1,
        (0, 1): 2,
        (1, 0): 3,
    }
    lake.assert_equals_kafka()


def test_an_empty_topic_is_committed_day_by_day_and_then_read(broker: TestBroker) -> None:
    topic = broker.topic(2)
    lake = LogLake(broker, [topic])
    for day in (1, 0):
        assert lake.run(days(day, day + 1)) is None
    fill(broker, topic, 1, 2, day=2.5)
    lake.run(days(2, 3))
    lake.assert_equals_kafka()


def test_a_plan_whose_end_was_the_end_of_the_log_does_not_change(broker: TestBroker) -> None:
    """No record at or after the end: the boundary is the end of the log, even if a retry finds a longer log."""
    topic = broker.topic()
    lake = LogLake(broker, [topic], records_per_task=10)
    fill(broker, topic, *range(20), day=0.5)
    first = lake.plan(days(0, 1))

    def more() -> None:
        fill(broker, topic, *range(20, 1_020), day=0.6)
        raise InterruptedError("the first attempt is killed")

    with pytest.raises(InterruptedError):
        lake.stage(first, "between two splits", more)
    again = lake.plan(days(0, 1))
    assert (again.key, again.encode()) == (first.key, first.encode())
    done = lake.commit(again, lake.stage(again))
    assert done.totals.records == 20
    lake.run(days(1, 2))
    lake.assert_equals_kafka()
