"""The input of a lookback: committed rows, rows that the run has staged, and records that Kafka still has."""

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
from tallystick.operations.lookback import LookbackInput, read_lookback
from tallystick.operations.verify import verify
from tallystick.pipeline import Column, Lookback, Pipeline
from tallystick.protocol.staleness import stale
from tallystick.tables.reading import static_table

TWO_DAYS = Lookback(tables=["per_kind"], back=timedelta(days=2))
ALL = Lookback(tables=["per_kind"], back=None, uncommitted="stale")


@pytest.fixture
def small() -> SmallLake:
    def declared(warehouse: str) -> Pipeline:
        return replace(pipeline(warehouse), lookback=TWO_DAYS)

    return SmallLake(declared=declared)


def planned(small: SmallLake, interval: Interval, **more: Any) -> Plan:
    """Return a plan that is granted and not committed."""
    found = small.lake.plan(small.plan(interval, **more).intervals[0].plan)
    assert found is not None
    return found


def staged(small: SmallLake, plan: Plan) -> tuple[Plan, Report]:
    report = small.lake.report(stage(small.lake, small.log, plan.key))
    assert report is not None
    return plan, report


def lookback_input(
    small: SmallLake, plan: Plan, lookback: Lookback = TWO_DAYS, **more: Any
) -> LookbackInput:
    return read_lookback(small.lake, plan, lookback, **more)


def test_committed_intervals_are_read_from_their_files(small: SmallLake) -> None:
    small.run(days(2, 3))
    small.run(days(1, 2))
    found = lookback_input(small, planned(small, days(3, 4)), log=small.log)
    assert [p.interval for p in found.parts] == [days(1, 2), days(2, 3)]
    assert not found.unread
    for part in found.parts:
        names = {f.key for files in part.files.values() for f in files}
        assert names
        assert all(f"/{part.interval.part}/" in name for name in names)
    assert [p.records for p in found.parts] == [5, 5]


def test_intervals_staged_by_the_run_are_read_before_their_commit(small: SmallLake) -> None:
    small.run(days(1, 2))
    small.job = b"version 2"
    first = staged(small, planned(small, days(1, 2), run="repeated", mode="replace"))
    found = lookback_input(small, planned(small, days(2, 3)), staged=[first])
    assert [p.fingerprint for p in found.parts] == [first[0].fingerprint]
    # Rows that another run staged are not read: they may never be committed.
    assert (
        lookback_input(small, planned(small, days(2, 3))).parts[0].fingerprint
        != first[0].fingerprint
    )


def test_uncommitted_time_is_read_between_its_future_boundaries(small: SmallLake) -> None:
    plan = planned(small, days(3, 4))
    (unread,) = lookback_input(small, plan, log=small.log).unread
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


def test_offsets_that_the_log_has_lost_are_not_read(small: SmallLake) -> None:
    plan = planned(small, days(3, 4))
    # The boundary of this plan is set, and records after it expire before the plan is staged.
    planned(small, days(1, 2))
    small.log.expire(TOPIC, 0, before=2)
    (unread,) = lookback_input(small, plan, log=small.log).unread
    first, second = unread.topics[0].ranges
    assert (first.start, first.readable_from) == (0, 2)
    assert (second.start, second.readable_from) == (0, 0)


@pytest.mark.parametrize("lookback", [TWO_DAYS, ALL])
def test_without_a_log_uncommitted_time_is_left_out(small: SmallLake, lookback: Lookback) -> None:
    found = lookback_input(small, planned(small, days(3, 4)), lookback)
    assert (found.parts, found.unread) == ((), ())


def test_an_unlimited_lookback_begins_at_the_epoch(small: SmallLake) -> None:
    small.run(days(1, 2))
    found = lookback_input(small, planned(small, days(6, 7)), ALL, log=small.log)
    assert found.since.year == 1970
    assert [p.interval for p in found.parts] == [days(1, 2)]


def test_an_interval_at_the_epoch_has_an_empty_lookback(small: SmallLake) -> None:
    plan = planned(small, days(1, 2))
    first = Interval(start=DAY.replace(year=1970), end=DAY.replace(year=1970) + timedelta(days=1))
    at_epoch = replace(plan, interval=first, key=plan.key.replace(plan.interval.part, first.part))
    assert lookback_input(small, at_epoch, log=small.log) == LookbackInput(since=first.start)


def test_missing_rows_raise_an_error_that_names_the_interval(small: SmallLake) -> None:
    small.run(days(1, 2))
    (report,) = small.keys("attempts/")
    plan = planned(small, days(2, 3))
    small.store.delete([report])
    with pytest.raises(
        Corrupt, match=r"is gone, and the lookback reads the rows of \[2013-01-01"
    ) as caught:
        lookback_input(small, plan)
    assert "mode=replace" in caught.value.hint


def without_table(declared_now: Pipeline) -> Pipeline:
    """Return the pipeline as it was before it declared the table of the lookback."""
    tables = [t for t in declared_now.tables if t.name != "per_kind"]
    return replace(declared_now, tables=tables, lookback=None)


def without_column(declared_now: Pipeline) -> Pipeline:
    """Return the pipeline as it was before its table had the column `more`."""
    first, old = declared_now.tables
    columns = [c for c in old.columns if c.name != "more"]
    combine = {name: how for name, how in old.combine.items() if name != "more"}
    return replace(declared_now, tables=[first, replace(old, columns=columns, combine=combine)])


@pytest.mark.parametrize("before", [without_table, without_column])
def test_rows_from_before_a_table_or_column_was_declared_are_read_again_from_kafka(
    small: SmallLake, before: Callable[[Pipeline], Pipeline]
) -> None:
    def now(warehouse: str) -> Pipeline:
        declared_now = replace(pipeline(warehouse), lookback=TWO_DAYS)
        first, old = declared_now.tables
        columns = [*old.columns, Column("more", "long", required=False)]
        wider = replace(old, columns=columns, combine={**old.combine, "more": "sum"})
        return replace(declared_now, tables=[first, wider])

    small.declared = lambda warehouse: before(now(warehouse))
    small.run(days(1, 2))
    small.declared = now
    plan = planned(small, days(2, 3))
    found = lookback_input(small, plan, log=small.log)
    assert not found.parts
    assert [u.interval for u in found.unread] == [day_before(1), days(1, 2)]
    lookback = found.used(plan.fingerprint, {day_before(1): 0, days(1, 2): 5})
    committed = small.lake.read(lambda snapshot: snapshot.ledger(day(1), day(2)).entries)[
        0
    ].committed
    assert committed is not None
    assert lookback.seen[-1].fingerprint == committed.fingerprint
    with pytest.raises(SchemaChanged, match="Kafka has 4 of its 5 records"):
        found.used(plan.fingerprint, {day_before(1): 0, days(1, 2): 4})
    # If it cannot be read, a window would silently lack its rows.
    with pytest.raises(SchemaChanged, match="committed without"):
        lookback_input(small, plan, ALL)
    small.log.expire(TOPIC, 0, before=1)
    with pytest.raises(SchemaChanged, match="Kafka no longer has its records"):
        lookback_input(small, plan, log=small.log)


def day_before(number: int) -> Interval:
    return Interval(start=day(number) - timedelta(days=1), end=day(number))


def test_an_interval_without_a_record_is_staged_too(small: SmallLake) -> None:
    """Windows may end in it."""
    (planned_day,) = small.plan(days(5, 6)).intervals
    assert not planned_day.committed


def test_rows_of_an_interval_without_a_record_are_dropped_when_it_is_replaced_without_a_lookback(
    small: SmallLake,
) -> None:
    plan = planned(small, days(5, 6))
    window = {"per_kind": [{"kind": "a window that ends here", "n": 1}]}
    report_key = stage(small.lake, small.log, plan.key, windows=window)
    commit(small.lake, small.tables, plan_key=plan.key, report_key=report_key)
    assert kinds(small) == ["a window that ends here"]

    small.declared = pipeline
    small.run(days(5, 6), clear=1)
    assert kinds(small) == []
    assert verify(small.lake).proven
    # With no rows to drop, the next replacement needs no Spark.
    small.job = b"version 2"
    assert [p.committed for p in small.plan(days(5, 6), clear=2).intervals] == [True]
    assert verify(small.lake).proven


def kinds(small: SmallLake) -> list[str]:
    """Return the kinds in the table that aggregates."""
    metadata = small.lake.load_existing().root.tables["per_kind"].metadata
    assert metadata is not None
    kinds: list[str] = static_table(small.store, metadata).scan().to_arrow()["kind"].to_pylist()
    return kinds


def run_all(small: SmallLake, interval: Interval, **more: Any) -> list[Interval]:
    """Plan, stage and commit; return the committed intervals."""
    done = small.plan(interval, **more).intervals
    for planned_day in done:
        plan = small.lake.plan(planned_day.plan)
        assert plan is not None
        report = staged(small, plan)[1]
        commit(small.lake, small.tables, plan_key=plan.key, report_key=report.key)
    return [planned_day.interval for planned_day in done]


@pytest.fixture
def backwards(small: SmallLake) -> SmallLake:
    """Return a lake whose days 4 to 1 were committed in this order, each without reading uncommitted days in Kafka."""
    for number in (4, 3, 2, 1):
        run_all(small, days(number, number + 1))
    assert stale_now(small) == {
        days(2, 3): days(1, 2),
        days(3, 4): days(1, 2),
        days(4, 5): days(2, 3),
    }
    return small


def stale_now(small: SmallLake) -> dict[Interval, Interval]:
    return dict(stale(small.lake.read(lambda snapshot: snapshot.whole_ledger().entries)))


def test_a_run_with_mode_refresh_replaces_only_stale_intervals(
    backwards: SmallLake,
) -> None:
    all_stale = [days(2, 3), days(3, 4), days(4, 5)]
    assert run_all(backwards, days(1, 6), run="refresh", mode="refresh") == all_stale
    assert not stale_now(backwards)
    assert run_all(backwards, days(1, 6), run="repeated", mode="refresh") == []


def test_a_refresh_also_replaces_stale_intervals_of_a_former_job_with_a_lookback(
    backwards: SmallLake,
) -> None:
    """The pipeline has no lookback any more: rows of its former job are stale until the current job has replaced them."""
    backwards.declared = pipeline
    refreshed = run_all(backwards, days(1, 6), run="refresh", mode="refresh")
    assert refreshed == [days(2, 3), days(3, 4), days(4, 5)]
    assert not stale_now(backwards)


def test_an_interval_that_cannot_be_refreshed_makes_nothing_stale(backwards: SmallLake) -> None:
    """If a refresh counted on its replacement, each one would again replace the intervals that look back at it."""
    backwards.log.expire(TOPIC, 0, before=backwards.log.topics[TOPIC].partitions[0].end // 2)
    backwards.job = b"version 2"
    first = backwards.plan(days(1, 6), run="refresh", mode="refresh").left
    assert first
    refreshed = run_all(backwards, days(1, 6), run="refresh", mode="refresh")
    assert refreshed
    assert set(stale_now(backwards)) == set(first)
    with pytest.raises(OutsideRetention):
        run_all(backwards, days(1, 6), run="repeated", mode="refresh")


def test_a_refresh_leaves_alone_the_last_copy_of_a_closed_topic(
    backwards: SmallLake,
) -> None:
    refill(backwards, 5, 8)
    adopted(backwards)
    for number in (6, 5):
        run_all(backwards, days(number, number + 1))
    found = backwards.plan(days(1, 8), run="refresh", mode="refresh")
    assert [p.interval for p in found.intervals] == [days(6, 7)]
    assert found.left == (days(2, 3), days(3, 4), days(4, 5))
    with pytest.raises(OutsideRetention, match="is no longer read"):
        backwards.plan(days(1, 4), run="another", mode="refresh")


def test_an_interval_that_cannot_be_refreshed_does_not_count_against_the_limit_of_grants(
    backwards: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = backwards
    small.log.expire(TOPIC, 0, before=small.log.topics[TOPIC].partitions[0].end // 2)
    monkeypatch.setattr("tallystick.operations.plan.attempt.GRANTS_MAX", 1)
    planned_now = small.plan(days(1, 6), run="refresh", mode="refresh")
    assert days(2, 3) in planned_now.left
    (planned_day,) = planned_now.intervals
    assert planned_day.interval > planned_now.left[-1]
    # The same request gets the same plan again: its answer may have been lost.
    repeated = small.plan(days(1, 6), run="refresh", mode="refresh")
    assert [p.plan for p in repeated.intervals] == [planned_day.plan]
