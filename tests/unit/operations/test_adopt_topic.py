"""Adoption of a recreated topic: committed rows stay, and offsets that were not read are recorded as lost."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import FakeLog, FakeTopic, stage
from support.small_lake import DAY, SmallLake, adopted, day, days, fill, refill
from tallystick.errors import (
    IdentityChanged,
    InvalidRequest,
    OutsideRetention,
    StoreRefused,
    StoreUnavailable,
    Superseded,
)
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Totals
from tallystick.format.root import Closed
from tallystick.lake import Lake
from tallystick.operations.adopt_topic import Adopted, adopt
from tallystick.operations.commit import commit
from tallystick.operations.preview import preview
from tallystick.operations.release import release
from tallystick.operations.status import read_status
from tallystick.operations.verify import verify
from tallystick.store import ETag, Outcome
from tallystick.store.memory import MemoryStore
from tallystick.tables.reading import live_files
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

TOPIC = "events"
# The end of partition 0 of the old topic: four offsets after the end of day 3.
END_0 = 15


def totals(small: SmallLake, interval: Interval) -> Totals:
    entry = small.lake.load_existing().ledger(interval.start, interval.end).entry(interval)
    assert entry is not None
    assert entry.committed is not None
    return entry.committed.totals


def three_days() -> SmallLake:
    """Return a lake with days 1 to 3 committed, up to offsets 10 and 13; the old topic goes on, then it is recreated."""
    small = SmallLake()
    for number in (1, 2, 3):
        small.run(days(number, number + 1))
    refill(small, 4, 8)
    return small


def assert_proven(small: SmallLake) -> None:
    proof = verify(small.lake, deep=True)
    assert proof.proven, [check.findings for check in proof.checks]


def test_a_recreated_topic_is_refused_until_its_adoption_and_then_read_from_its_beginning() -> None:
    small = three_days()
    with pytest.raises(IdentityChanged, match="tally topic adopt events"):
        small.plan(days(4, 5))
    answer = adopted(small)
    assert (answer.closed, answer.adopted, answer.since) == ("events", "events@2", day(4))
    assert (answer.lost, answer.waiting, answer.done) == ((0, 0), (), True)
    small.run(days(4, 5))
    assert totals(small, days(4, 5)) == Totals(records=4)
    small.run(days(6, 7))
    small.run(days(5, 6))
    assert [totals(small, days(n, n + 1)).records for n in (5, 6)] == [4, 4]
    assert_proven(small)


def test_the_lineage_of_rows_names_their_incarnation() -> None:
    small = three_days()
    adopted(small)
    small.run(days(4, 5))
    metadata = small.lake.load_existing().root.tables["events"].metadata
    assert metadata is not None
    named = {
        line.topic for file in live_files(small.store, metadata) for line in lineage_of(small, file)
    }
    assert named == {"events", "events@2"}


def lineage_of(small: SmallLake, file: Any) -> Any:
    """Return the lineage of a live file, as the commit that added it recorded it."""
    key = small.lake.load_existing().root.record
    while key is not None:
        record = small.lake.record(key)
        assert record is not None
        for interval in record.intervals:
            assert interval.report is not None
            report = small.lake.report(interval.report)
            assert report is not None
            for reported in report.files:
                if reported.key.endswith(file.key.rsplit("/", 1)[1]):
                    return reported.lineage
        key = record.parent
    return pytest.fail(f"no report names {file.key}")


def test_the_unread_tail_is_lost_in_the_interval_after_the_adoption_without_accept_loss() -> None:
    small = three_days()
    answer = adopted(small, {0: END_0, 1: 14})
    assert (answer.read_to, answer.lost) == ((11, 14), (4, 0))
    lost = 4
    small.run(days(5, 6))  # a later interval first
    assert totals(small, days(5, 6)).lost == 0
    small.run(days(4, 5))
    assert totals(small, days(4, 5)) == Totals(records=4, lost=lost)
    assert [loss.interval for loss in read_status(small.lake).lost] == [days(4, 5)]
    # The same again when that interval is replaced.
    small.job = b"version 2"
    small.run(days(4, 5), clear=1)
    assert totals(small, days(4, 5)) == Totals(records=4, lost=lost)
    assert_proven(small)


def test_a_gap_of_the_old_topic_is_filled_only_with_accept_loss() -> None:
    small = SmallLake()
    for number in (1, 3):
        small.run(days(number, number + 1))
    refill(small, 4, 6)
    adopted(small)
    with pytest.raises(
        OutsideRetention, match=r"lacks 11 offsets of topic events.* accept_loss=true"
    ):
        small.run(days(2, 3))
    small.run(days(2, 3), accept_loss=True)
    assert totals(small, days(2, 3)) == Totals(lost=11)
    small.run(days(4, 5))
    assert totals(small, days(4, 5)) == Totals(records=4)
    assert_proven(small)


def test_a_gap_of_the_old_topic_is_not_split_at_unknown_offsets() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.run(days(4, 5))
    refill(small, 5, 6)
    adopted(small)
    for part in (days(2, 3), days(3, 4)):
        with pytest.raises(InvalidRequest, match=r"from 2013-01-02T\S+ to 2013-01-04T"):
            small.run(part, accept_loss=True)
    small.run(days(2, 4), accept_loss=True)
    assert totals(small, days(2, 4)).lost > 0
    # Day 5 had no offset at all: every split of it is correct.
    small.run(days(5, 6))
    assert_proven(small)


def test_time_before_the_first_boundary_is_lost_with_the_old_topic() -> None:
    small = SmallLake()
    small.run(days(3, 4))
    refill(small, 4, 5)
    adopted(small)
    for interval in (days(1, 2), days(2, 3), days(1, 3)):
        with pytest.raises(InvalidRequest, match=r"begin at 2013-01-03T00:00:00\.000Z; or"):
            small.run(interval)
    # With accept_loss, the interval that is requested first has the whole loss.
    small.run(days(2, 3), accept_loss=True)
    assert totals(small, days(2, 3)).lost == 18  # those of day 1 too
    small.run(days(1, 2), accept_loss=True)
    assert totals(small, days(1, 2)) == Totals()
    small.run(days(4, 5))
    assert_proven(small)


def test_a_gap_without_offsets_is_split_and_committed_empty() -> None:
    small = SmallLake()
    for number in (1, 2, 3, 4, 6):
        small.run(days(number, number + 1))
    refill(small, 7, 8)
    adopted(small)
    noon = day(5) + timedelta(hours=12)
    small.run(Interval(start=day(5), end=noon))
    small.run(Interval(start=noon, end=day(6)))
    assert totals(small, Interval(start=noon, end=day(6))) == Totals()
    assert_proven(small)


@pytest.mark.parametrize("params", [{}, {"accept_loss": True, "accept_compaction": True}])
def test_committed_rows_are_never_replaced_by_losses(params: dict[str, Any]) -> None:
    small = three_days()
    adopted(small)
    before = totals(small, days(2, 3))
    with pytest.raises(OutsideRetention, match="A replacement would lose their rows"):
        small.run(days(2, 3), run="manual", mode="replace", **params)
    small.job = b"version 2"
    with pytest.raises(OutsideRetention, match="A replacement would lose their rows"):
        small.run(days(2, 3), clear=1, **params)
    assert totals(small, days(2, 3)) == before
    assert_proven(small)


def test_a_plan_staged_from_the_old_topic_is_committed_after_the_adoption() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    (planned_day,) = small.plan(days(2, 3)).intervals
    report = stage(small.lake, small.log, planned_day.plan)
    refill(small, 3, 5)
    answer = adopted(small)
    assert answer.waiting == (days(2, 3),)
    assert answer.since == day(3)
    commit(small.lake, small.tables, plan_key=planned_day.plan, report_key=report)
    small.run(days(3, 4))
    assert totals(small, days(2, 3)).lost == 0
    assert totals(small, days(3, 4)) == Totals(records=4)
    assert_proven(small)


def test_older_records_of_the_new_topic_belong_to_the_interval_of_the_adoption() -> None:
    small = three_days()
    small.log.create(TOPIC, partitions=1)
    small.log.append(TOPIC, 0, DAY, n=1, kind="copied")
    small.log.append(TOPIC, 0, day(4), n=2, kind="new")
    adopted(small)
    small.run(days(4, 5))
    assert totals(small, days(4, 5)).records == 2
    assert_proven(small)


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_incarnations_may_have_any_number_of_partitions_and_follow_each_other(
    partitions: int,
) -> None:
    small = three_days()
    refill(small, 4, 6, partitions=partitions)
    adopted(small)
    small.run(days(4, 5))
    small.log.grow(TOPIC, partitions=partitions + 1)
    small.log.append(TOPIC, partitions, day(5), n=1, kind="joined")
    small.run(days(5, 6))
    assert totals(small, days(5, 6)).records == 2 * partitions + 1
    refill(small, 6, 8, partitions=2)
    answer = adopted(small)
    assert (answer.closed, answer.adopted) == ("events@2", "events@3")
    small.run(days(6, 7))
    assert totals(small, days(6, 7)) == Totals(records=4)
    root = small.lake.load_existing().root
    assert list(root.topics) == ["events", "events@2", "events@3"]
    assert root.open_topic(TOPIC) == "events@3"
    assert_proven(small)


def test_a_clear_that_can_only_be_refused_withdraws_the_runs_earlier_grant() -> None:
    """Day 2 was granted for a replacement when the topic vanished. The run can never commit it: the grant must end."""
    small = SmallLake()
    for number in (1, 2, 3):
        small.run(days(number, number + 1))
    small.job = b"version 2"
    small.plan(days(2, 3), clear=1)
    refill(small, 4, 6)
    adopted(small)
    assert [grant.interval for grant in read_status(small.lake).grants] == [days(2, 3)]
    with pytest.raises(OutsideRetention, match="A replacement would lose their rows"):
        small.plan(days(2, 3), clear=2)
    assert read_status(small.lake).grants == ()
    assert_proven(small)


def test_a_partition_of_the_old_topic_that_no_plan_read_is_lost_from_its_beginning() -> None:
    small = three_days()
    answer = adopted(small, {2: 7})
    assert answer.lost == (0, 0, 7)
    small.run(days(4, 5))
    assert totals(small, days(4, 5)) == Totals(records=4, lost=7)
    assert_proven(small)


def test_a_new_log_that_has_lost_its_beginning_begins_at_its_first_offset() -> None:
    small = three_days()
    small.log.expire(TOPIC, 0, before=1)
    answer = adopted(small)
    assert answer.new.origins == (1, 0)
    small.run(days(4, 5))
    assert totals(small, days(4, 5)) == Totals(records=3)
    # Records that it loses after the adoption are a loss as in any topic.
    small.log.expire(TOPIC, 1, before=3)
    with pytest.raises(OutsideRetention, match=r"events@2\[1\]"):
        small.run(days(5, 6))
    assert_proven(small)


def test_a_gap_over_the_adoption_is_two_plans() -> None:
    """No entry has the last boundary: its grant was released. Before it are only losses, after it only the new topic."""
    small = SmallLake()
    small.run(days(1, 2))
    small.plan(days(2, 3))
    release(small.lake, days(2, 3))
    refill(small, 3, 5)
    adopted(small, {0: END_0})
    with pytest.raises(OutsideRetention, match="lacks 11 offsets"):
        small.run(days(2, 4))
    small.run(days(3, 4))
    tail = totals(small, days(3, 4))
    assert tail.records == 4
    assert tail.lost > 0
    small.run(days(2, 4), accept_loss=True, run="manual")
    assert totals(small, days(2, 3)) == Totals(lost=11)
    # Rows of the new topic can be replaced as usual.
    small.job = b"version 2"
    small.run(days(3, 4), clear=1)
    assert totals(small, days(3, 4)) == tail
    assert_proven(small)


def test_one_request_over_the_adoption_gets_both_parts() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.plan(days(2, 3))
    release(small.lake, days(2, 3))
    refill(small, 3, 5)
    adopted(small)
    planned = small.plan(days(2, 5), accept_loss=True)
    assert [p.interval for p in planned.intervals] == [days(2, 3), days(3, 5)]


def test_status_proposes_a_command_that_fills_a_gap_of_the_old_topic() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.run(days(4, 5))
    small.plan(days(5, 7))
    release(small.lake, days(5, 7))
    refill(small, 7, 9)
    adopted(small)
    small.run(days(8, 9))
    found = read_status(small.lake).gaps
    assert [gap.interval for gap in found] == [days(2, 4), days(5, 7), days(7, 8)]
    assert [gap.gone > 0 for gap in found] == [True, True, False]
    for gap in found:
        conf = json.loads(gap.command[-1]) if "trigger" in gap.command else {}
        assert conf.get("accept_loss", False) is (gap.gone > 0)
        small.run(gap.interval, run=f"gap {gap.interval}", accept_loss=gap.gone > 0)
    assert read_status(small.lake).gaps == ()
    assert_proven(small)


def test_a_preview_refuses_what_can_never_be_replaced() -> None:
    small = three_days()
    adopted(small)
    with pytest.raises(OutsideRetention, match="A replacement would lose their rows"):
        preview(small.lake, days(2, 3), replace=True)
    assert [part.interval for part in preview(small.lake, days(3, 6)).parts] == [
        days(3, 4),
        days(4, 6),
    ]


def test_verify_finds_an_end_that_was_changed_by_hand() -> None:
    small = three_days()
    adopted(small)
    small.run(days(4, 5))
    small.change(
        keys.ROOT, lambda root: root["topics"]["events"]["closed"]["ends"].__setitem__(0, 99)
    )
    proof = verify(small.lake)
    assert not proof.proven
    (finding,) = [
        f for check in proof.checks for f in check.findings if f.where == "adopted topics"
    ]
    assert "events[0] ended at 99" in finding.message


def test_a_store_without_conditional_writes_is_refused_before_an_adoption() -> None:
    small = three_days()
    described = small.log.describe([TOPIC])[TOPIC]

    class IgnoresConditions(MemoryStore):
        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            del expected
            self.delete([key])
            return self.create(key, body)

    unconditional = IgnoresConditions("memory")
    assert isinstance(small.store, MemoryStore)
    unconditional._objects, unconditional._writes = dict(small.store._objects), small.store._writes
    for write in (
        lambda lake: adopt(
            lake, TOPIC, lambda: described, ends_of=lambda _: {}, confirmed_id=described.topic_id
        ),
        lambda lake: release(lake, days(1, 2)),
    ):
        with pytest.raises(StoreRefused):
            write(Lake(unconditional, small.runtime))
    assert (
        adopt(
            Lake(unconditional, small.runtime), TOPIC, lambda: described, ends_of=lambda _: {}
        ).done
        is False
    )


def test_nothing_is_written_without_the_confirmation() -> None:
    small = three_days()
    described = small.log.describe([TOPIC])[TOPIC]
    before = small.root()
    answer = adopt(small.lake, TOPIC, lambda: described, ends_of=lambda _: {0: 12})
    assert (answer.done, answer.adopted, answer.version) == (False, "events@2", before["version"])
    with pytest.raises(InvalidRequest, match=r"expected id topic-id-1 \(confirmed\)"):
        adopt(small.lake, TOPIC, lambda: described, ends_of=lambda _: {}, confirmed_id="topic-id-1")
    assert small.root() == before


def test_a_repeated_adoption_returns_what_was_done() -> None:
    small = three_days()
    first = adopted(small, {0: 14})
    root = small.root()
    second = adopted(small, {0: 99})
    assert small.root() == root
    assert (second.lost, second.read_to, second.since) == (first.lost, first.read_to, first.since)
    assert second.old.closed == Closed(since=day(4), ends=(14, first.read_to[1]))
    assert second.done


def test_an_adoption_that_is_refused_names_the_reason() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.log.create("other")
    with pytest.raises(InvalidRequest, match="has not read topic other yet"):
        adopt(
            small.lake,
            "other",
            lambda: small.log.describe(["other"])["other"],
            ends_of=lambda _: {},
        )
    with pytest.raises(InvalidRequest, match="there is no topic to adopt"):
        adopted(small)
    old = small.log.topics[TOPIC]
    refill(small, 2, 3)
    new = small.log.topics[TOPIC]
    with pytest.raises(
        InvalidRequest,
        match=r"expected an end at or after offset 3, to which the ledger has read, found 1",
    ):
        adopted(small, {0: 1})
    restored = replace(old, cluster_id="restored")
    small.log.topics[TOPIC] = restored
    with pytest.raises(IdentityChanged, match="is a copy of events in the ledger"):
        adopted(small)
    small.log.topics[TOPIC] = new
    with pytest.raises(InvalidRequest, match="has no end, although partition 5 has one"):
        adopted(small, {5: 1})
    adopted(small)
    small.log.topics[TOPIC] = old  # the connection leads to the old topic again
    with pytest.raises(IdentityChanged, match=r"is events in the ledger .* and was closed there"):
        adopted(small)
    with pytest.raises(IdentityChanged, match="expected id topic-id-3"):
        small.plan(days(2, 3))


@pytest.mark.parametrize("fault", sorted(Fault))
def test_an_adoption_that_meets_a_fault_at_any_call_is_done_once(fault: Fault) -> None:
    """C9, C10, C11: the next read shows whether the swap was applied."""
    clean = FaultyStore(three_days().store)
    recreated(Lake(clean, three_days().runtime, proven=True), three_days())
    for index, call in enumerate(clean.calls):
        if fault not in APPLICABLE[call.verb]:
            continue
        small = three_days()
        version = small.lake.load_existing().root.version
        faulty = FaultyStore(small.store, script({index: fault}))
        with contextlib.suppress(Killed, StoreUnavailable):
            recreated(Lake(faulty, small.runtime, proven=True), small)
        # The operator repeats the command.
        assert recreated(small.lake, small).lost == (4, 0), (fault, index)
        while faulty.held:
            faulty.release()
        root = small.lake.load_existing().root
        assert (root.version, root.open_topic(TOPIC)) == (version + 1, "events@2"), (fault, index)
        small.run(days(4, 5))
        assert totals(small, days(4, 5)) == Totals(records=4, lost=4)
        assert_proven(small)


def test_an_adoption_that_loses_the_race_decides_on_the_root_that_won() -> None:
    """A run that took its boundary from the old topic commits first: the adoption begins after it."""
    small = three_days()
    new = small.log.topics[TOPIC]
    old = FakeLog()
    fill(old)

    class RunsFirst:
        left = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(small.store, name)

        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            if self.left:
                self.left = 0
                small.log.topics[TOPIC] = old.topics[TOPIC]
                small.run(days(4, 5))
                small.log.topics[TOPIC] = new
            return small.store.replace(key, body, expected=expected)

    store: Any = RunsFirst()
    answer = adopt(
        Lake(store, small.runtime, proven=True),
        TOPIC,
        lambda: new,
        ends_of=lambda _: {0: END_0},
        confirmed_id=new.topic_id,
    )
    assert (answer.since, answer.lost) == (day(5), (END_0 - answer.read_to[0], 0))
    small.run(days(5, 6))
    # Days 4 and 5 of the new topic; day 4 was committed from the old one.
    assert totals(small, days(5, 6)).records == 8
    assert_proven(small)


def test_of_two_adoptions_the_one_with_the_older_description_is_superseded() -> None:
    """Found by the explorer: Kafka's answer is older than the ledger, which reads the next incarnation already."""
    small = three_days()
    older = small.log.topics[TOPIC]
    refill(small, 4, 8)

    def answers_late() -> FakeTopic:
        adopted(small)
        return older

    with pytest.raises(
        Superseded, match="expected events as the topic that it reads, found events@2"
    ):
        adopt(small.lake, TOPIC, answers_late, ends_of=lambda _: {}, confirmed_id=older.topic_id)
    assert small.lake.load_existing().root.open_topic(TOPIC) == "events@2"
    small.run(days(4, 5))
    assert_proven(small)


def recreated(lake: Lake, small: SmallLake) -> Adopted:
    described = small.log.describe([TOPIC])[TOPIC]
    return adopt(
        lake,
        TOPIC,
        lambda: described,
        ends_of=lambda _: {0: END_0},
        confirmed_id=described.topic_id,
    )
