"""What a job sees of earlier time: what is committed now, what its run has staged, and what Kafka still holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import DAY, TOPIC, SmallLake, adopted, day, days, pipeline, refill
from tallystick.errors import Corrupt, OutsideRetention, SchemaChanged
from tallystick.format.interval import Interval
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.operations.commit import commit
from tallystick.operations.lookback import LookbackInput, earlier
from tallystick.pipeline import Column, Lookback, Pipeline
from tallystick.protocol.staleness import stale

TWO_DAYS = Lookback(tables=["per_kind"], back=timedelta(days=2))
ALL = Lookback(tables=["per_kind"], back=None, uncommitted="stale")


@pytest.fixture
def small() -> SmallLake:
    def declared(warehouse: str) -> Pipeline:
        return replace(pipeline(warehouse), lookback=TWO_DAYS)

    return SmallLake(declared=declared)


def planned(small: SmallLake, interval: Interval, **more: Any) -> Plan:
    """A plan that is granted and not committed."""
    found = small.lake.plan(small.plan(interval, **more).intervals[0].plan)
    assert found is not None
    return found


def staged(small: SmallLake, plan: Plan) -> tuple[Plan, Report]:
    report = small.lake.report(stage(small.lake, small.log, plan.key))
    assert report is not None
    return plan, report


def sees(small: SmallLake, plan: Plan, lookback: Lookback = TWO_DAYS, **more: Any) -> LookbackInput:
    return earlier(small.lake, plan, lookback, **more)


def test_what_is_committed_is_seen_by_its_files(small: SmallLake) -> None:
    small.run(days(2, 3))
    small.run(days(1, 2))
    found = sees(small, planned(small, days(3, 4)), log=small.log)
    assert [p.interval for p in found.parts] == [days(1, 2), days(2, 3)]
    assert not found.unread
    for part in found.parts:
        names = {f.key for files in part.files.values() for f in files}
        assert names
        assert all(f"/{part.interval.part}/" in name for name in names)
    assert [p.records for p in found.parts] == [5, 5]


def test_what_a_run_has_staged_is_seen_before_it_is_committed(small: SmallLake) -> None:
    small.run(days(1, 2))
    small.job = b"version 2"
    first = staged(small, planned(small, days(1, 2), run="again", mode="replace"))
    found = sees(small, planned(small, days(2, 3)), staged=[first])
    assert [p.fingerprint for p in found.parts] == [first[0].fingerprint]
    # Another run's staged rows are not: they may never be committed.
    assert sees(small, planned(small, days(2, 3))).parts[0].fingerprint != first[0].fingerprint


def test_what_is_not_committed_is_read_where_its_boundaries_will_lie(small: SmallLake) -> None:
    plan = planned(small, days(3, 4))
    (unread,) = sees(small, plan, log=small.log).unread
    assert unread.interval == days(1, 3)
    small.run(days(1, 2))
    small.run(days(2, 3))
    ledger = small.lake.read(lambda snapshot: snapshot.whole_ledger())
    first, last = ledger.boundary(day(1)), ledger.boundary(day(3))
    assert first is not None
    assert last is not None
    (topic,) = unread.topics
    assert [r.start for r in topic.ranges] == [p.offset for p in first.positions[TOPIC]]
    assert [r.end for r in topic.ranges] == [p.offset for p in last.positions[TOPIC]]


def test_what_the_log_has_lost_is_not_read(small: SmallLake) -> None:
    plan = planned(small, days(3, 4))
    planned(
        small, days(1, 2)
    )  # its boundary stands, and what lies behind it expires before it runs
    small.log.expire(TOPIC, 0, before=2)
    (unread,) = sees(small, plan, log=small.log).unread
    first, second = unread.topics[0].ranges
    assert (first.start, first.readable_from) == (0, 2)
    assert (second.start, second.readable_from) == (0, 0)


@pytest.mark.parametrize("lookback", [TWO_DAYS, ALL])
def test_without_a_log_what_is_not_committed_is_left_out(
    small: SmallLake, lookback: Lookback
) -> None:
    found = sees(small, planned(small, days(3, 4)), lookback)
    assert (found.parts, found.unread) == ((), ())


def test_a_look_back_without_end_goes_back_to_the_epoch(small: SmallLake) -> None:
    small.run(days(1, 2))
    found = sees(small, planned(small, days(6, 7)), ALL, log=small.log)
    assert found.since.year == 1970
    assert [p.interval for p in found.parts] == [days(1, 2)]


def test_the_epoch_has_no_earlier_time(small: SmallLake) -> None:
    plan = planned(small, days(1, 2))
    first = Interval(start=DAY.replace(year=1970), end=DAY.replace(year=1970) + timedelta(days=1))
    at_epoch = replace(plan, interval=first, key=plan.key.replace(plan.interval.part, first.part))
    assert sees(small, at_epoch, log=small.log) == LookbackInput(since=first.start)


def test_rows_that_are_gone_are_an_error_that_names_the_interval(small: SmallLake) -> None:
    small.run(days(1, 2))
    (report,) = small.keys("attempts/")
    plan = planned(small, days(2, 3))
    small.store.delete([report])
    with pytest.raises(Corrupt, match=r"is gone, and the rows of \[2013-01-01") as caught:
        sees(small, plan)
    assert "mode=replace" in caught.value.hint


def without_table(made: Pipeline) -> Pipeline:
    """The pipeline before it declared the table that is looked back at."""
    kept = [t for t in made.tables if t.name != "per_kind"]
    return replace(made, tables=kept, lookback=None)


def without_column(made: Pipeline) -> Pipeline:
    """The pipeline before its table had the column `more`."""
    kept, old = made.tables
    columns = [c for c in old.columns if c.name != "more"]
    combine = {name: how for name, how in old.combine.items() if name != "more"}
    return replace(made, tables=[kept, replace(old, columns=columns, combine=combine)])


@pytest.mark.parametrize("before", [without_table, without_column])
def test_rows_from_before_a_table_was_what_it_is_are_read_again_in_kafka(
    small: SmallLake, before: Callable[[Pipeline], Pipeline]
) -> None:
    def now(warehouse: str) -> Pipeline:
        made = replace(pipeline(warehouse), lookback=TWO_DAYS)
        kept, old = made.tables
        columns = [*old.columns, Column("more", "long", required=False)]
        wider = replace(old, columns=columns, combine={**old.combine, "more": "sum"})
        return replace(made, tables=[kept, wider])

    small.declared = lambda warehouse: before(now(warehouse))
    small.run(days(1, 2))
    small.declared = now
    plan = planned(small, days(2, 3))
    found = sees(small, plan, log=small.log)
    assert not found.parts
    assert [u.interval for u in found.unread] == [day_before(1), days(1, 2)]
    lookback = found.used(plan.fingerprint, {day_before(1): 0, days(1, 2): 5})
    committed = small.lake.read(lambda snapshot: snapshot.ledger(day(1), day(2)).entries)[
        0
    ].committed
    assert committed is not None
    assert lookback.seen[-1].fingerprint == committed.fingerprint
    with pytest.raises(SchemaChanged, match="Kafka holds 4 of its 5 records"):
        found.used(plan.fingerprint, {day_before(1): 0, days(1, 2): 4})
    # Where it cannot be read, a window would silently lack its rows.
    with pytest.raises(SchemaChanged, match="committed without"):
        sees(small, plan, ALL)
    small.log.expire(TOPIC, 0, before=1)
    with pytest.raises(SchemaChanged, match="Kafka no longer holds it"):
        sees(small, plan, log=small.log)


def day_before(number: int) -> Interval:
    return Interval(start=day(number) - timedelta(days=1), end=day(number))


def test_an_interval_without_a_record_is_staged_all_the_same(small: SmallLake) -> None:
    """Windows may end in it."""
    (piece,) = small.plan(days(5, 6)).intervals
    assert not piece.committed


def ran(small: SmallLake, interval: Interval, **more: Any) -> list[Interval]:
    """Plan, stage and commit; return what was."""
    done = small.plan(interval, **more).intervals
    for piece in done:
        plan = small.lake.plan(piece.plan)
        assert plan is not None
        report = staged(small, plan)[1]
        commit(small.lake, small.tables, plan_key=plan.key, report_key=report.key)
    return [piece.interval for piece in done]


@pytest.fixture
def backwards(small: SmallLake) -> SmallLake:
    """Nothing was read in Kafka: whatever comes later was seen without what comes before."""
    for number in (4, 3, 2, 1):
        ran(small, days(number, number + 1))
    assert stale_now(small) == {
        days(2, 3): days(1, 2),
        days(3, 4): days(1, 2),
        days(4, 5): days(2, 3),
    }
    return small


def stale_now(small: SmallLake) -> dict[Interval, Interval]:
    return dict(stale(small.lake.read(lambda snapshot: snapshot.whole_ledger().entries)))


def test_a_run_with_mode_refresh_replaces_what_is_stale_and_nothing_else(
    backwards: SmallLake,
) -> None:
    all_stale = [days(2, 3), days(3, 4), days(4, 5)]
    assert ran(backwards, days(1, 6), run="refresh", mode="refresh") == all_stale
    assert not stale_now(backwards)
    assert ran(backwards, days(1, 6), run="again", mode="refresh") == []


def test_a_refresh_also_mends_what_an_earlier_job_looked_back_for(backwards: SmallLake) -> None:
    """The pipeline looks back no more: what its job of then made is stale until the job of now has replaced it."""
    backwards.declared = pipeline
    refreshed = ran(backwards, days(1, 6), run="refresh", mode="refresh")
    assert refreshed == [days(2, 3), days(3, 4), days(4, 5)]
    assert not stale_now(backwards)


def test_what_cannot_be_refreshed_makes_nothing_stale(backwards: SmallLake) -> None:
    """By new code it would, if it were replaced; each refresh would then replace what looks back at it again."""
    backwards.log.expire(TOPIC, 0, before=backwards.log.topics[TOPIC].partitions[0].end // 2)
    backwards.job = b"version 2"
    first = backwards.plan(days(1, 6), run="refresh", mode="refresh").left
    assert first
    refreshed = ran(backwards, days(1, 6), run="refresh", mode="refresh")
    assert refreshed
    assert set(stale_now(backwards)) == set(first)
    with pytest.raises(OutsideRetention):
        ran(backwards, days(1, 6), run="again", mode="refresh")


def test_a_refresh_leaves_alone_the_last_copy_of_a_topic_that_was_closed(
    backwards: SmallLake,
) -> None:
    refill(backwards, 5, 8)
    adopted(backwards)
    for number in (6, 5):
        ran(backwards, days(number, number + 1))
    found = backwards.plan(days(1, 8), run="refresh", mode="refresh")
    assert [p.interval for p in found.intervals] == [days(6, 7)]
    assert found.left == (days(2, 3), days(3, 4), days(4, 5))
    with pytest.raises(OutsideRetention, match="is read no more"):
        backwards.plan(days(1, 4), run="another", mode="refresh")


def test_what_cannot_be_refreshed_does_not_use_up_what_one_run_is_granted(
    backwards: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = backwards
    small.log.expire(TOPIC, 0, before=small.log.topics[TOPIC].partitions[0].end // 2)
    monkeypatch.setattr("tallystick.operations.plan.attempt.GRANTS_MAX", 1)
    planned_now = small.plan(days(1, 6), run="refresh", mode="refresh")
    assert days(2, 3) in planned_now.left
    (piece,) = planned_now.intervals
    assert piece.interval > planned_now.left[-1]
    # The same request gets the same plan again: its answer may have been lost.
    again = small.plan(days(1, 6), run="refresh", mode="refresh")
    assert [p.plan for p in again.intervals] == [piece.plan]
