"""The beginning and end of a planned interval: expired logs, wrong clocks, runs without dates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from support.fakes import FakeLog, FakeTopic
from support.small_lake import DAY, NOW, TOPIC, SmallLake, day, days, pipeline
from tallystick.errors import InvalidRequest, NotYet, OutsideRetention, Superseded
from tallystick.format.interval import Interval, Request
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import LATENESS_MAX

HOUR = timedelta(hours=1)


class StaleDescription(FakeLog):
    """A log whose `describe` returns the state from before retention deleted more."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, FakeTopic]:
        described = super().describe(topics)
        return {
            name: replace(topic, partitions=[replace(p, log_start=1) for p in topic.partitions])
            for name, topic in described.items()
        }


def lake_over(log: FakeLog, *kinds: str, log_start: int) -> SmallLake:
    """Return a lake over one partition whose record n is of day n + 1, with its first records expired."""
    log.create(TOPIC)
    for number, kind in enumerate(kinds):
        log.append(TOPIC, 0, day(1 + number) + HOUR, kind, n=number)  # type: ignore[arg-type]
    log.expire(TOPIC, 0, before=log_start)
    return SmallLake(log=log)


@pytest.mark.parametrize("first", ["data", "control", "absent", "aborted"])
def test_a_day_whose_records_may_have_expired_is_refused(first: str) -> None:
    """No kind of entry at the log's beginning is a record of day 1 or before."""
    small = lake_over(FakeLog(), "data", "data", first, "data", "data", log_start=2)
    with pytest.raises(OutsideRetention, match=r"begins at offset 2, and has no record before"):
        small.plan(days(1, 2))


def test_records_that_are_a_day_older_prove_that_the_day_is_complete() -> None:
    small = lake_over(FakeLog(), *["data"] * 6, log_start=1)
    (done,) = small.run(days(5, 6))
    assert (done.totals.records, done.totals.lost) == (1, 0)


@pytest.mark.parametrize("late", [1, 2, 9])
def test_late_records_at_the_logs_beginning_do_not_prove_that_the_day_is_complete(
    late: int,
) -> None:
    """Three records of day 1 have expired; the log begins with records of the evening before, which arrived later."""
    log = FakeLog()
    log.create(TOPIC)
    for hour in (10, 11, 12):
        log.append(TOPIC, 0, day(1) + hour * HOUR, n=hour)
    for number in range(late):
        log.append(TOPIC, 0, day(1) - HOUR, n=number)
    log.append(TOPIC, 0, day(1) + 13 * HOUR, n=13)
    log.append(TOPIC, 0, day(2) + HOUR, n=1)
    log.expire(TOPIC, 0, before=3)
    with pytest.raises(OutsideRetention, match="or too few: older records may have expired"):
        SmallLake(log=log).run(days(1, 2))


def test_retention_that_deletes_records_during_planning_is_detected() -> None:
    small = lake_over(StaleDescription(), "data", "data", "data", "data", log_start=2)
    with pytest.raises(OutsideRetention, match="begins at offset 2"):
        small.plan(days(2, 4))


@pytest.mark.parametrize("how", ["accepted", "declared"])
def test_a_beginning_may_be_declared_or_accepted(how: str) -> None:
    small = lake_over(FakeLog(), "data", "data", "control", "data", log_start=2)
    begin = day(1) if how == "declared" else None
    planned = plan(
        small.lake,
        small.log,
        PlanRequest(
            pipeline=replace(pipeline(small.store.uri), begin=begin),
            job_source=b"job",
            request=Request(dag="small", run="r", clear=0),
            params=parse_params({"accept_loss": how == "accepted"}),
            dates=RunDates(data_interval=days(1, 5), run_after=day(5)),
            first=DAY,
        ),
    )
    assert [p.interval for p in planned.intervals] == [days(1, 5)]


def test_a_record_from_the_future_belongs_to_the_interval_of_its_arrival_and_blocks_nothing() -> (
    None
):
    small = SmallLake(log=FakeLog())
    small.log.create(TOPIC)
    small.log.append(TOPIC, 0, day(1) + HOUR, n=1)
    small.log.append(TOPIC, 0, NOW + timedelta(days=365), n=2)
    for number in (2, 3, 4):
        small.log.append(TOPIC, 0, day(number) + HOUR, n=number)
    found = [small.run(days(n, n + 1)) for n in (1, 2, 3, 4)]
    assert [done.totals.records for (done,) in found] == [2, 1, 1, 1]


def test_a_producer_whose_clock_is_slightly_fast_is_accepted() -> None:
    small = SmallLake(log=FakeLog())
    small.log.create(TOPIC)
    today = Interval(start=NOW - 2 * HOUR, end=NOW)
    small.log.append(TOPIC, 0, NOW - HOUR, n=1)
    small.log.append(TOPIC, 0, NOW + timedelta(minutes=59), n=2)
    (done,) = small.run(today)
    assert done.totals.records == 1


# ---------------------------------------------------------------- runs without dates


def plan_run(small: SmallLake, *, run: str = "manual", clear: int = 0, **how: Any) -> PlanResult:
    options = {"lateness": timedelta(0), "run_after": day(4), "params": {}} | how
    return plan(
        small.lake,
        small.log,
        PlanRequest(
            pipeline=replace(pipeline(small.store.uri), lateness=options["lateness"]),
            job_source=small.job,
            request=Request(dag=small.dag, run=run, clear=clear),
            params=parse_params(options["params"]),
            dates=RunDates(data_interval=None, run_after=options["run_after"]),
            first=DAY,
        ),
    )


@pytest.mark.parametrize("before", [timedelta(0), HOUR, LATENESS_MAX])
@pytest.mark.parametrize("after", [timedelta(0), HOUR, LATENESS_MAX])
@pytest.mark.parametrize("clear", [0, 1])
def test_a_change_of_lateness_leaves_no_grant_behind(
    before: timedelta, after: timedelta, clear: int
) -> None:
    """A ledger of many pages, a run that did not commit, a deployed change of lateness, a clear or retry of its plan."""
    small = SmallLake()
    small.lake.page_bytes_max = 1500
    late = day(1) + LATENESS_MAX + timedelta(days=5)
    small.run(days(1, 3))
    first = plan_run(small, lateness=before, run_after=late)
    for hours in range(30):  # other runs continue after it
        start = late + hours * HOUR
        small.run(Interval(start=start, end=start + HOUR))
    assert len(small.root()["pages"]) > 5
    again = plan_run(small, lateness=after, run_after=late, clear=clear)
    assert first.interval is not None
    assert again.interval is not None
    assert again.interval.covers(first.interval)
    ledger = small.lake.load_existing().whole_ledger()
    mine = [e for e in ledger.entries if e.granted and e.granted.request.run == "manual"]
    to_do = {p.plan for p in again.intervals if not p.committed}
    assert {e.granted.plan for e in mine if e.granted} == to_do != set()
    if clear == 0:
        assert again.intervals == first.intervals


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        (days(4, 5), [days(2, 4)]),
        (days(2, 3), [days(3, 5)]),
        (days(3, 4), [days(2, 3), days(4, 5)]),
    ],
)
@pytest.mark.parametrize("later_commits", [False, True])
def test_a_run_without_dates_of_which_others_took_a_part_leaves_no_gap(
    taken: Interval, left: list[Interval], later_commits: bool
) -> None:
    """No entry names the run in the gaps next to the part that was taken; its retry fails, and its clear fills them."""
    small = SmallLake()
    small.lake.page_bytes_max = 1
    small.run(days(1, 2))
    plan_run(small, run="a", run_after=day(5))
    small.run(taken, run="taker", take_over=True)
    if later_commits:
        small.run(days(6, 7))
    with pytest.raises(Superseded, match="small / taker has taken it since"):
        plan_run(small, run="a", run_after=day(5))
    again = plan_run(small, run="a", run_after=day(5), clear=1)
    assert [p.interval for p in again.intervals] == left
    assert again.covered == (taken,)


def test_the_interval_of_a_run_without_dates_is_found_at_any_length() -> None:
    small = SmallLake()
    small.lake.page_bytes_max = 1
    small.run(days(1, 2))
    small.run(days(2, 3))
    plan_run(small, run="a", run_after=day(200))
    small.run(days(199, 200), run="taker", take_over=True)
    again = plan_run(small, run="a", run_after=day(200), clear=1)
    assert [p.interval for p in again.intervals] == [days(3, 199)]


def test_a_clear_finds_the_gaps_after_an_old_take_over_of_the_runs_interval() -> None:
    """The entry that names the run is older than any lateness, and other runs continued after its interval."""
    small = SmallLake()
    small.lake.page_bytes_max = 1
    small.run(days(1, 2))
    plan_run(small, run="a", run_after=day(200))
    small.run(days(2, 3), run="taker", take_over=True)
    others = (days(100, 101), days(101, 102), days(200, 201), days(201, 202))
    for interval in others:
        small.run(interval)
    again = plan_run(small, run="a", run_after=day(200), clear=1)
    assert [p.interval for p in again.intervals] == [days(3, 100), days(102, 200)]
    assert again.covered == (days(2, 3), *others[:2])


def test_a_clear_of_a_run_that_was_granted_nothing_starts_at_the_end_of_the_ledger() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    assert plan_run(small, run="a", run_after=day(2)).intervals == ()
    again = plan_run(small, run="a", run_after=day(4), clear=1)
    assert [p.interval for p in again.intervals] == [days(2, 4)]


def test_a_clock_behind_airflows_waits_instead_of_planning_less(small: SmallLake) -> None:
    with pytest.raises(NotYet, match=r"the run is due at 2024-05-01T00:00:02\.000Z"):
        plan_run(small, run_after=NOW + timedelta(seconds=2))


@pytest.fixture
def small() -> SmallLake:
    lake = SmallLake()
    lake.run(days(1, 2))
    return lake


def test_a_start_before_1970_is_refused(small: SmallLake) -> None:
    before_1970 = Interval(start=datetime(1969, 12, 31, tzinfo=DAY.tzinfo), end=day(1))
    with pytest.raises(InvalidRequest, match="begins before 1970"):
        small.plan(before_1970)


# ---------------------------------------------------------------- the limit of one run


def test_more_intervals_than_one_swap_can_grant_are_refused_with_both_numbers(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (2, 3):
        small.run(days(number, number + 1))
    monkeypatch.setattr("tallystick.operations.plan.attempt.GRANTS_MAX", 2)
    with pytest.raises(
        InvalidRequest, match="expected at most 2 intervals for one run to plan, found 3"
    ):
        small.plan(days(1, 4), run="all", mode="replace")
    assert len(small.plan(days(1, 3), run="some", mode="replace").intervals) == 2


def test_a_boundary_that_two_plans_share_is_looked_up_once(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (2, 3):
        small.run(days(number, number + 1))
    lookups: list[Sequence[Any]] = []
    real: Callable[..., Any] = small.log.diverged
    monkeypatch.setattr(
        small.log, "diverged", lambda topic, at: (lookups.append(at), real(topic, at))[1]
    )
    small.plan(days(1, 4), run="all", mode="replace")
    assert len(lookups) == 4
