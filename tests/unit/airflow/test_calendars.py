"""Calendars: the intervals that Airflow schedules when clocks change, and how the ledger covers them.

Airflow's own code computes the intervals (airflow_calendar); the real plan and commit run over a log in memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from support.airflow_calendar import Calendar, committed, follow, lake_of
from support.fakes import FakeLog
from support.small_lake import TOPIC, SmallLake
from tallystick.errors import InvalidRequest, OutsideRetention
from tallystick.format.interval import Interval
from tallystick.operations.status import read_status
from tallystick.operations.verify import verify

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
MS = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a zone's clocks: the UTC offset before `at` is the old one. Clocks go forward by `by`, or back."""

    zone: str
    at: datetime
    by: timedelta


CHANGES = [
    Change(zone="America/New_York", at=datetime(2013, 3, 10, 7, tzinfo=UTC), by=HOUR),
    Change(zone="America/New_York", at=datetime(2013, 11, 3, 6, tzinfo=UTC), by=-HOUR),
    Change(zone="Europe/Berlin", at=datetime(2013, 3, 31, 1, tzinfo=UTC), by=HOUR),
    Change(zone="Europe/Berlin", at=datetime(2013, 10, 27, 1, tzinfo=UTC), by=-HOUR),
    Change(zone="Australia/Lord_Howe", at=datetime(2013, 10, 5, 15, 30, tzinfo=UTC), by=HOUR / 2),
    Change(zone="Australia/Lord_Howe", at=datetime(2013, 4, 6, 15, tzinfo=UTC), by=-HOUR / 2),
]
# A schedule, the usual length of its intervals (a month: any), and the time around the change that a test covers.
SCHEDULES = {
    "hourly": ("0 * * * *", HOUR, 3 * HOUR),
    "daily": ("0 0 * * *", DAY, 3 * DAY),
    "monthly": ("0 0 1 * *", None, 70 * DAY),
    "mondays": ("0 6 * * 1", WEEK, 15 * DAY),
}
# Airflow 3.3.2 schedules no run there: see test_an_hourly_schedule_stops_when_clocks_move_by_half_an_hour.
STOPPED = ("Australia/Lord_Howe", "hourly")
CASES = [
    pytest.param(
        change, name, id=f"{change.zone}-{'forward' if change.by > timedelta() else 'back'}-{name}"
    )
    for change in CHANGES
    for name in SCHEDULES
    if (change.zone, name) != STOPPED
]


def tiles(intervals: Sequence[Interval]) -> bool:
    return all(left.end == right.start for left, right in itertools.pairwise(sorted(intervals)))


def lengths(intervals: Iterable[Interval]) -> set[timedelta]:
    return {interval.end - interval.start for interval in intervals}


@pytest.mark.parametrize(("change", "name"), CASES)
def test_intervals_over_a_change_of_clocks_tile_time_and_the_log(change: Change, name: str) -> None:
    cron, usual, around = SCHEDULES[name]
    first, until = change.at - around, change.at + around
    calendar = Calendar(cron, first, zone=change.zone)
    intervals = calendar.scheduled(until)
    assert len(intervals) >= 3
    assert tiles(intervals)
    assert intervals[0].start <= change.at < intervals[-1].end
    over = next(
        interval for interval in intervals if interval.start <= change.at - MS < interval.end
    )
    if usual is not None:
        # The day on which clocks go forward is shorter by that change; an hour remains an hour.
        changed = usual if name == "hourly" else usual - change.by
        assert over.end - over.start == changed
        assert lengths(intervals) <= {usual, changed}
    small = lake_of(intervals)
    for interval in intervals:
        small.run(interval)
    assert committed(small) == [(interval, 3) for interval in intervals]
    status = read_status(small.lake)
    assert status.gaps == ()
    assert status.totals.offsets == small.log.topics[TOPIC].partitions[0].end
    if name == "daily":
        assert verify(small.lake, deep=True).proven


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(("change", "name"), CASES)
def test_a_backfill_over_a_change_of_clocks_has_the_intervals_of_the_schedule(
    change: Change, name: str, backwards: bool
) -> None:
    cron, _, around = SCHEDULES[name]
    calendar = Calendar(cron, change.at - around, zone=change.zone)
    intervals = calendar.scheduled(change.at + around)
    again = calendar.backfill(intervals[0].start, intervals[-1].start, backwards=backwards)
    assert again == (intervals[::-1] if backwards else intervals)


def test_a_backfill_of_what_the_schedule_committed_plans_nothing_and_backwards_gives_the_same_ledger() -> (
    None
):
    change = CHANGES[0]
    cron, _, around = SCHEDULES["daily"]
    calendar = Calendar(cron, change.at - around, zone=change.zone)
    intervals = calendar.scheduled(change.at + around)
    forwards, backwards = lake_of(intervals), lake_of(intervals)
    for interval in intervals:
        forwards.run(interval)
    for interval in calendar.backfill(intervals[0].start, intervals[-1].start, backwards=True):
        planned = forwards.plan(interval, run=f"backfill__{interval.end.isoformat()}")
        assert (planned.intervals, planned.covered) == ((), (interval,))
        backwards.run(interval, run=f"backfill__{interval.end.isoformat()}")
    assert committed(backwards) == committed(forwards)
    ledgers = [s.lake.load_existing().whole_ledger().boundaries for s in (forwards, backwards)]
    assert ledgers[0] == ledgers[1]


# ---------------------------------------------------------------- the command of a gap


# An hour remains an hour, so no interval of an hourly schedule has another length.
@pytest.mark.parametrize(("change", "name"), [c for c in CASES if "hourly" not in c.values])
def test_the_command_of_a_gap_next_to_a_change_of_clocks_fills_it(
    change: Change, name: str
) -> None:
    """The interval over the change is a gap, and so is the second interval after it."""
    cron, _, around = SCHEDULES[name]
    calendar = Calendar(cron, change.at - around - 40 * DAY * (name == "monthly"), zone=change.zone)
    intervals = calendar.scheduled(change.at + 1.5 * around)
    small = lake_of(intervals)
    changed = next(
        n for n, interval in enumerate(intervals) if interval.start <= change.at - MS < interval.end
    )
    left_out = {changed, changed + 2} & set(range(len(intervals) - 1))
    for number, interval in enumerate(intervals):
        if number not in left_out:
            small.run(interval)
    assert [h.interval for h in read_status(small.lake).gaps] == [
        intervals[n] for n in sorted(left_out)
    ]
    follow(small, calendar)
    assert committed(small) == [(interval, 3) for interval in intervals]


def test_in_utc_a_gap_of_whole_days_is_filled_by_a_backfill() -> None:
    calendar = Calendar("@daily", datetime(2013, 1, 1, tzinfo=UTC))
    intervals = calendar.scheduled(datetime(2013, 1, 8, tzinfo=UTC))
    small = lake_of(intervals)
    for interval in (*intervals[:2], *intervals[5:]):
        small.run(interval)
    assert follow(small, calendar) == ["backfill"]
    assert committed(small) == [(interval, 3) for interval in intervals]


# ---------------------------------------------------------------- limits of Airflow 3.3.2


def test_an_hourly_schedule_stops_when_clocks_move_by_half_an_hour() -> None:
    """Airflow logs an error and creates no more runs; the documentation recommends UTC for hourly schedules."""
    for change in CHANGES[4:]:
        first, last = change.at - 4 * HOUR, change.at + 4 * HOUR
        local = Calendar("0 * * * *", first, zone=change.zone).scheduled(last)
        assert local
        assert local[-1].end < last - 2 * HOUR
        assert len(Calendar("0 * * * *", first).scheduled(last)) == 8


def test_a_date_that_a_zone_skipped_is_no_gap_and_the_day_before_is_filled_by_its_exact_dates() -> (
    None
):
    """Samoa had no 30 December 2011. Airflow's backfill of the 29th alone creates no run; the Trigger form does."""
    first = datetime(2011, 12, 27, 10, tzinfo=UTC)
    calendar = Calendar("0 0 * * *", first, zone="Pacific/Apia")
    intervals = calendar.scheduled(first + 6 * DAY)
    assert tiles(intervals)
    assert lengths(intervals) == {DAY}
    small = lake_of(intervals)
    day_before = Interval(start=first + 2 * DAY, end=first + 3 * DAY)
    for interval in intervals:
        if interval != day_before:
            small.run(interval)
    assert calendar.backfill(day_before.start, day_before.start) == []
    assert day_before in calendar.backfill(day_before.start - DAY, day_before.start)
    dates = {"from": day_before.start.isoformat(), "to": day_before.end.isoformat()}
    small.run(day_before, run="manual__1", **dates)
    assert committed(small) == [(interval, 3) for interval in intervals]


# ---------------------------------------------------------------- the epoch of the topic

FIRST_RECORD = datetime(2013, 1, 2, 12, tzinfo=UTC)


def topic_since(at: datetime, *, log_start: int = 0) -> SmallLake:
    """Return a topic with a record at `at` and every six hours for three days; the first `log_start` are expired."""
    small = SmallLake(log=FakeLog())
    small.log.create(TOPIC)
    for number in range(12):
        small.log.append(TOPIC, 0, at + number * 6 * HOUR, n=number, kind="k")
    small.log.expire(TOPIC, 0, before=log_start)
    return small


@pytest.mark.parametrize(
    ("start", "records"),
    [
        # The first interval ends before the first record, contains it, begins with it, and begins after it.
        (FIRST_RECORD - 2 * DAY, [0, 0, 4]),
        (FIRST_RECORD - DAY / 2, [2, 4, 4]),
        (FIRST_RECORD, [4, 4, 4]),
        (FIRST_RECORD + MS, [4, 4, 3]),
        (datetime(1970, 1, 1, tzinfo=UTC), [0, 0, 0]),
    ],
)
def test_the_first_interval_may_begin_before_at_or_after_the_topics_first_record(
    start: datetime, records: list[int]
) -> None:
    small = topic_since(FIRST_RECORD)
    intervals = [Interval(start=start + n * DAY, end=start + (n + 1) * DAY) for n in range(3)]
    for interval in intervals:
        small.run(interval)
    assert committed(small) == list(zip(intervals, records, strict=True))
    # The time before is another interval, of any length, and leaves no gap.
    before = Interval(start=start - DAY, end=start)
    if before.start.year >= 1970:
        small.run(before)
        assert committed(small)[0] == (before, 1 if start > FIRST_RECORD else 0)
    else:
        with pytest.raises(InvalidRequest, match="begins before 1970"):
            small.plan(before)
    assert read_status(small.lake).gaps == ()


@pytest.mark.parametrize(
    ("begin", "start", "records"),
    [
        # The records of the first six hours are expired. `begin` is the start of the day, or the first record left.
        (FIRST_RECORD, FIRST_RECORD, [3, 4, 4]),
        (FIRST_RECORD + 6 * HOUR, FIRST_RECORD + 6 * HOUR, [4, 4, 3]),
        (FIRST_RECORD, FIRST_RECORD - 2 * DAY, [0, 0, 3]),
        # `begin` is not declared, or is before the requested day: nothing proves that the day is complete.
        (None, FIRST_RECORD, None),
        (FIRST_RECORD - DAY, FIRST_RECORD, None),
    ],
)
def test_if_the_first_records_have_expired_the_beginning_must_be_declared(
    begin: datetime | None, start: datetime, records: list[int] | None
) -> None:
    small = topic_since(FIRST_RECORD, log_start=1)
    declared = small.declared
    small.declared = lambda warehouse: replace(declared(warehouse), begin=begin)
    intervals = [Interval(start=start + n * DAY, end=start + (n + 1) * DAY) for n in range(3)]
    if records is None:
        with pytest.raises(OutsideRetention, match="begins at offset 1, and has no record before"):
            small.plan(intervals[0])
        return
    for interval in intervals:
        small.run(interval)
    assert committed(small) == list(zip(intervals, records, strict=True))


# ---------------------------------------------------------------- the zone of the process


@pytest.fixture
def process_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def stored() -> dict[str, bytes]:
    """Return plans, ledger, records and root of a lake that was filled over a change of clocks."""
    change = CHANGES[1]
    calendar = Calendar("0 0 * * *", change.at - 3 * DAY, zone=change.zone)
    intervals = calendar.scheduled(change.at + 2 * DAY)
    small = lake_of(intervals)
    for interval in calendar.backfill(intervals[0].start, intervals[-1].start, backwards=True):
        small.run(interval, run=f"backfill__{interval.end.isoformat()}")
    small.run(
        intervals[1],
        run="manual",
        mode="replace",
        **{"from": "2013-11-01T04:00", "to": "2013-11-02T04:00"},
    )
    assert verify(small.lake, deep=True).proven
    metadata = [k for k in small.keys("") if not k.startswith("tables/")]
    bodies = {key: small.store.get(key) for key in metadata}
    return {key: found.body for key, found in bodies.items() if found is not None}


@pytest.mark.parametrize(
    "process_zone", ["Pacific/Apia", "Asia/Kathmandu", "America/New_York"], indirect=True
)
def test_the_zone_of_the_process_changes_no_byte(process_zone: str) -> None:
    assert time.tzname[0] in {"+13", "+0545", "EST"}, "the process has the zone"
    found = stored()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        expected = stored()
    time.tzset()
    assert found.keys() == expected.keys()
    assert [key for key in found if found[key] != expected[key]] == []
