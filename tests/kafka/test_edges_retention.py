"""Retention that overtakes a plan: before the plan, and before, during and after its read."""

from __future__ import annotations

import pytest

from support.brokers import TestBroker
from support.log_lake import LogLake, Moment, changed, days, fill
from tallystick.errors import OutsideRetention

DAY_2 = days(1, 2)


def two_days(broker: TestBroker) -> tuple[str, LogLake]:
    """Return a topic and its lake. Day 1 is offsets 0 to 9 and committed, day 2 is offsets 10 to 29, 10 per task."""
    topic = broker.topic()
    fill(broker, topic, *range(10), day=0.5)
    fill(broker, topic, *range(10, 30), day=1.5)
    lake = LogLake(broker, [topic], records_per_task=10)
    lake.run(days(0, 1))
    return topic, lake


def test_a_plan_that_retention_overtook_names_both_offsets_and_the_loss_can_be_accepted(
    broker: TestBroker,
) -> None:
    topic, lake = two_days(broker)
    broker.delete_records(topic, 14)
    error = lake.assert_refused(
        OutsideRetention,
        f"{topic}[0]: expected offsets [10, 30), found a log that begins at 14: 4 offsets are gone",
        run=lambda: lake.planned(DAY_2),
    )
    assert "accept_loss=true" in error.hint
    done = lake.run(DAY_2, accept_loss=True)
    assert done is not None
    assert (done.totals.records, done.totals.lost) == (16, 4)
    assert {row["n"] for row in lake.rows().values()} == {*range(10), *range(14, 30)}
    lake.assert_verified()


@pytest.mark.parametrize(
    ("when", "begins", "message"),
    [
        ("before the read", 14, "expected offsets [10, 20), of which those from 10 on are unread"),
        (
            "between two splits",
            24,
            "expected offsets [20, 30), of which those from 20 on are unread",
        ),
    ],
)
def test_retention_that_overtakes_a_reader_stops_it_with_both_offsets(
    broker: TestBroker, when: Moment, begins: int, message: str
) -> None:
    topic, lake = two_days(broker)
    plan = lake.plan(DAY_2)
    lake.assert_refused(
        OutsideRetention,
        f"topic {topic!r} partition 0: {message}, found that the log begins at {begins}",
        "accept_loss=true",
        run=lambda: lake.stage(plan, when, lambda: broker.delete_records(topic, begins)),
    )
    # Neither another attempt nor a new plan after a clear skips lost offsets.
    lake.assert_refused(OutsideRetention, f"begins at {begins}", run=lambda: lake.stage(plan))
    lake.assert_refused(
        OutsideRetention,
        f"found a log that begins at {begins}: {begins - 10} offsets are gone",
        run=lambda: lake.planned(DAY_2, clear=1),
    )
    done = lake.run(DAY_2, clear=2, accept_loss=True)
    assert done is not None
    assert (done.totals.records, done.totals.lost) == (30 - begins, begins - 10)
    assert {row["n"] for row in lake.rows().values()} == {*range(10), *range(begins, 30)}
    lake.assert_verified()


@pytest.mark.parametrize("when", ["after the last fetch", "before the commit"])
def test_retention_after_the_read_loses_nothing(broker: TestBroker, when: Moment) -> None:
    """The read was complete, and is committed without a loss. Only a replacement would need the log again."""
    topic, lake = two_days(broker)
    plan = lake.plan(DAY_2)

    def expire() -> None:
        broker.delete_records(topic, -1)

    if when == "after the last fetch":
        report = lake.stage(plan, when, expire)
    else:
        report = lake.stage(plan)
        expire()
    done = lake.commit(plan, report)
    assert (done.totals.records, done.totals.lost) == (20, 0)
    assert sorted(row["n"] for row in lake.rows().values()) == list(range(30))
    lake.assert_refused(
        OutsideRetention,
        f"{topic}[0]: expected offsets [10, 30), found a log that begins at 30: 20 offsets are gone",
        run=lambda: lake.planned(DAY_2, **changed(lake)),
    )
    assert sorted(row["n"] for row in lake.rows().values()) == list(range(30))
    lake.assert_verified()


def test_a_replacement_over_lost_records_is_refused_unless_the_loss_is_accepted(
    broker: TestBroker,
) -> None:
    """The log lost its head between the first read and the replacement."""
    topic, lake = two_days(broker)
    lake.run(DAY_2)
    broker.delete_records(topic, 25)
    again = changed(lake)
    lake.assert_refused(
        OutsideRetention, "15 offsets are gone", run=lambda: lake.planned(DAY_2, **again)
    )
    done = lake.run(DAY_2, run="by hand", mode="replace", accept_loss=True)
    assert done is not None
    assert (done.totals.records, done.totals.lost, done.generation) == (5, 15, 2)
    assert {row["n"] for row in lake.rows().values()} == {*range(10), *range(25, 30)}
    lake.assert_verified()


def test_a_first_day_whose_records_may_have_expired_is_not_an_empty_day(broker: TestBroker) -> None:
    topic = broker.topic()
    fill(broker, topic, *range(10), day=0.5)
    fill(broker, topic, *range(10, 20), day=1.5)
    broker.delete_records(topic, 10)
    lake = LogLake(broker, [topic])
    with pytest.raises(
        OutsideRetention, match=rf"{topic}\[0\] begins at offset 10, and has no record before"
    ):
        lake.planned(DAY_2)
    declared = LogLake(broker, [topic], begin=days(1, 2).start)
    declared.run(DAY_2)
    declared.assert_equals_kafka()


def test_a_loss_in_one_of_several_partitions_is_recorded_for_it(broker: TestBroker) -> None:
    topic = broker.topic(3)
    lake = LogLake(broker, [topic])
    for partition in range(3):
        fill(broker, topic, 0, day=0.5, partition=partition)
    lake.run(days(0, 1))
    for partition in range(3):
        fill(broker, topic, *range(1, 5), day=1.5, partition=partition)
    broker.delete_records(topic, 3, partition=1)
    lake.assert_refused(
        OutsideRetention,
        f"{topic}[1]: expected offsets [1, 5), found a log that begins at 3",
        run=lambda: lake.planned(DAY_2),
    )
    lake.run(DAY_2, accept_loss=True)
    accounts = lake.record(DAY_2).accounts
    assert [(account.records, account.lost) for account in accounts] == [(4, 0), (2, 2), (4, 0)]
    lake.assert_verified()
