"""A topic that is deleted and recreated with as many records as before, at every moment of a run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.brokers import TestBroker, send
from support.log_lake import MOMENTS, LogLake, Moment, at, changed, days, fill, ms
from tallystick.errors import IdentityChanged
from tallystick.kafka.planning import LogPlanner
from tallystick.operations.adopt_topic import adopt
from tallystick.pipeline import DEAD_LETTERS

DAY_2 = days(1, 2)
OLD, NEW = range(20), range(100, 120)


def filled(broker: TestBroker, topic: str, numbers: range) -> None:
    """Produce ten records of day 1 and ten of day 2. Offsets, times and leader epochs are the same for every topic."""
    fill(broker, topic, *numbers[:10], day=0.5)
    fill(broker, topic, *numbers[10:], day=1.5)


def first_day(broker: TestBroker) -> tuple[str, LogLake]:
    topic = broker.topic()
    filled(broker, topic, OLD)
    lake = LogLake(broker, [topic], records_per_task=5)
    lake.run(days(0, 1))
    return topic, lake


def recreate(broker: TestBroker, topic: str) -> None:
    broker.delete_topic(topic)
    broker.topic(name=topic)
    filled(broker, topic, NEW)
    assert broker.high_watermark(topic) == len(OLD)


def numbers(lake: LogLake) -> list[int]:
    return sorted(row["n"] for row in lake.rows().values())


def test_a_recreated_topic_is_not_planned(broker: TestBroker) -> None:
    topic, lake = first_day(broker)
    known = lake.lake.load_existing().root.topics[topic].topic_id
    recreate(broker, topic)
    lake.assert_refused(
        IdentityChanged,
        f"expected id {known}",
        "deleted and created anew",
        run=lambda: lake.planned(DAY_2),
    )
    again = changed(lake)  # nor are committed offsets of the old topic read again from the new one
    lake.assert_refused(IdentityChanged, known, run=lambda: lake.planned(days(0, 1), **again))
    assert numbers(lake) == list(OLD)[:10]
    lake.assert_verified()


@pytest.mark.parametrize("when", MOMENTS)
def test_a_topic_that_is_recreated_before_its_read_ends_is_not_staged(
    broker: TestBroker, when: Moment
) -> None:
    topic, lake = first_day(broker)
    plan = lake.plan(DAY_2)
    known = plan.topics[0].topic_id
    lake.assert_refused(
        IdentityChanged,
        f"topic {topic!r} was deleted and created again: expected id ",
        f"expected id {known}, found ",
        run=lambda: lake.stage(plan, when, lambda: recreate(broker, topic)),
    )
    # Neither the same plan nor a new one continues: both stop until a person decides.
    lake.assert_refused(IdentityChanged, known, run=lambda: lake.stage(plan))
    lake.assert_refused(IdentityChanged, known, run=lambda: lake.planned(DAY_2, clear=1))
    assert numbers(lake) == list(OLD)[:10]
    lake.assert_verified()


def test_records_of_a_topic_recreated_before_the_commit_are_committed_and_the_next_plan_stops(
    broker: TestBroker,
) -> None:
    """The commit has records of the incarnation in the ledger, read and verified: a refusal would lose the last copy."""
    topic, lake = first_day(broker)
    plan = lake.plan(DAY_2)
    report = lake.stage(plan)
    recreate(broker, topic)
    done = lake.commit(plan, report)
    assert done.totals.records == 10
    assert numbers(lake) == list(OLD)
    assert lake.lake.load_existing().root.topics[topic].topic_id == plan.topics[0].topic_id
    for interval in (days(2, 3), days(-1, 0)):
        lake.assert_refused(
            IdentityChanged, plan.topics[0].topic_id, run=lambda i=interval: lake.planned(i)
        )
    lake.assert_verified()


def test_a_deleted_topic_is_named_at_every_step(broker: TestBroker) -> None:
    topic, lake = first_day(broker)
    plan = lake.plan(DAY_2)
    broker.delete_topic(topic)
    message = f"topic {topic!r} does not exist on the cluster at {broker.bootstrap}"
    lake.assert_refused(IdentityChanged, message, run=lambda: lake.stage(plan))
    lake.assert_refused(IdentityChanged, message, run=lambda: lake.planned(days(2, 3)))
    assert numbers(lake) == list(OLD)[:10]


def test_a_recreated_topic_is_adopted_and_both_incarnations_are_read_once(
    broker: TestBroker,
) -> None:
    """Five records of the old topic were never read: they are recorded as lost. The job's code needs no change."""
    topic, lake = first_day(broker)
    fill(broker, topic, *range(20, 25), day=2.5)
    ends = ends_of(broker, topic)
    recreate(broker, topic)
    send(broker.producer(), topic, b"{", timestamp=ms(at(1.5)), partition=0)
    names_in_job: set[str] = set()

    def dispatch(records: pa.Table) -> pa.Table:
        names_in_job.update(records.column("_topic").to_pylist())
        return records

    lake.transform = dispatch
    with LogPlanner(broker.settings) as log:
        state = log.describe([topic])[topic]
    adopt(lake.lake, topic, lambda: state, ends_of=lambda _: ends, confirmed_id=state.topic_id)
    lake.run(DAY_2)
    assert names_in_job == {topic}
    assert numbers(lake) == [*OLD[:10], *NEW]
    assert {place[0] for place in lake.rows()} == {topic, f"{topic}@2"}
    assert [place[0] for place in lake.rows(DEAD_LETTERS)] == [f"{topic}@2"]
    old, new = lake.record(DAY_2).accounts
    assert (old.topic, old.start, old.end, old.lost) == (topic, 10, 25, 15)
    assert (new.topic, new.start, new.end, new.records, new.dead_letters) == (
        f"{topic}@2",
        0,
        21,
        20,
        1,
    )
    lake.run(DAY_2, **changed(lake))
    assert numbers(lake) == [*OLD[:10], *NEW]
    lake.assert_verified()


def ends_of(broker: TestBroker, topic: str) -> dict[int, int]:
    """Return the current end of each partition, from the broker."""
    return {0: broker.high_watermark(topic)}
