"""A change of the schedule after intervals were committed: nothing twice, no false gap, each true gap filled.

Airflow's own code computes what Airflow schedules after the change.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from support.airflow_calendar import Calendar, committed, follow, lake_of
from support.small_lake import SmallLake
from tallystick.errors import InvalidRequest
from tallystick.format.interval import Interval
from tallystick.operations.status import read_status
from tallystick.operations.verify import verify

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
START = datetime(2013, 1, 1, tzinfo=UTC)
HOURLY, DAILY = "0 * * * *", "@daily"
# As hours, with a sixth of the runs.
SIXTHS = "0 */6 * * *"


def hours(first: float, last: float) -> Interval:
    """Return the interval from hour `first` to hour `last`, counted from START."""
    return Interval(start=START + first * HOUR, end=START + last * HOUR)


def whole(count: int) -> list[Interval]:
    return [hours(n, n + 1) for n in range(count)]


def ran(small: SmallLake, intervals: list[Interval]) -> dict[datetime, Interval]:
    """Run the intervals as scheduled runs; return Airflow's runs by logical date."""
    for interval in intervals:
        small.run(interval, run=f"scheduled__{interval.end.isoformat()}")
    return {interval.start: interval for interval in intervals}


def gaps(small: SmallLake) -> list[Interval]:
    return [gap.interval for gap in read_status(small.lake).gaps]


def each_record_once(small: SmallLake) -> bool:
    """Return True if the committed intervals tile the time and contain the whole log."""
    known = [interval for interval, _ in committed(small)]
    tiled = all(left.end == right.start for left, right in itertools.pairwise(known))
    offsets = read_status(small.lake).totals.offsets
    return tiled and offsets == small.log.topics["events"].partitions[0].end and gaps(small) == []


# ---------------------------------------------------------------- hourly, then daily


def test_from_hourly_to_daily_at_midnight_leaves_no_gap() -> None:
    small = lake_of(whole(96)[18:])
    ran(small, whole(24)[18:])
    daily = Calendar(DAILY, START)
    following = daily.scheduled(START + 4 * DAY, after=hours(23, 24))
    assert following == [hours(24, 48), hours(48, 72), hours(72, 96)]
    ran(small, following)
    assert each_record_once(small)
    assert committed(small)[6:] == [(interval, 72) for interval in following]
    assert verify(small.lake, deep=True).proven


def test_from_hourly_to_daily_within_a_day_leaves_a_gap_that_the_command_of_status_fills() -> None:
    """Airflow continues at the next midnight: the rest of the day belongs to no run, and only the ledger has the gap."""
    small = lake_of(whole(72)[22:])
    runs = ran(small, whole(30)[22:])
    daily = Calendar(DAILY, START)
    following = daily.scheduled(START + 3 * DAY, after=hours(29, 30))
    assert following == [hours(48, 72)]
    assert gaps(small) == [], "time after the last interval is no gap"
    runs |= ran(small, following)
    (gap,) = read_status(small.lake).gaps
    assert gap.interval == hours(30, 48)
    assert gap.command[:3] == ("airflow", "dags", "trigger")
    follow(small, daily, runs)
    assert each_record_once(small)
    assert verify(small.lake, deep=True).proven


@pytest.mark.parametrize("done", [1, 5])
def test_a_daily_run_over_committed_hours_plans_only_the_remainder(done: int) -> None:
    small = lake_of(whole(24))
    ran(small, whole(done))
    (day,) = Calendar(DAILY, START).backfill(START, START)
    planned = small.plan(day, run="backfill__day")
    assert [p.interval for p in planned.intervals] == [hours(done, 24)]
    assert planned.covered == tuple(whole(done))
    small.run(day, run="backfill__day")
    assert committed(small)[-1] == (hours(done, 24), 3 * (24 - done))
    assert each_record_once(small)


def test_a_daily_run_over_scattered_hours_fills_each_gap_and_touches_nothing_else() -> None:
    small = lake_of(whole(24))
    ran(small, [hours(n, n + 1) for n in (3, 4, 11)])
    before = {interval: n for interval, n in committed(small)}
    small.run(hours(0, 24), run="scheduled__day")
    after = dict(committed(small))
    assert set(after) - set(before) == {hours(0, 3), hours(5, 11), hours(12, 24)}
    assert {interval: after[interval] for interval in before} == before
    assert each_record_once(small)
    assert small.plan(hours(0, 24), run="backfill__day").intervals == ()


# ---------------------------------------------------------------- daily, then hourly


def test_from_daily_to_hourly_leaves_no_gap_and_hours_of_a_committed_day_are_covered() -> None:
    small = lake_of(whole(54))
    ran(small, [hours(0, 24), hours(24, 48)])
    hourly = Calendar(HOURLY, START)
    following = hourly.scheduled(START + 54 * HOUR, after=hours(24, 48))
    assert following == [hours(n, n + 1) for n in range(48, 54)]
    ran(small, following)
    assert each_record_once(small)
    for hour in hourly.backfill(START + 20 * HOUR, START + 27 * HOUR):
        planned = small.plan(hour, run=f"backfill__{hour.end.isoformat()}")
        assert (planned.intervals, len(planned.covered)) == ((), 1)
    assert each_record_once(small)


def test_an_hour_cannot_be_replaced_out_of_a_day_that_was_committed_whole() -> None:
    small = lake_of(whole(48))
    ran(small, [hours(0, 24)])
    dates = {"from": "2013-01-01T05:00", "to": "2013-01-01T06:00"}
    with pytest.raises(InvalidRequest, match="splits the committed interval") as refused:
        small.plan(hours(5, 6), run="manual", mode="replace", **dates)
    assert "2013-01-01T00:00:00.000Z or to 2013-01-02T00:00:00.000Z" in refused.value.hint


# ---------------------------------------------------------------- gaps and schedules in status


@pytest.mark.parametrize(
    ("schedules", "left_out"),
    [
        # The gap is some runs of the finer part, a whole day of it, a day of the coarser part, or over the change.
        *(([(SIXTHS, 3), (DAILY, 6)], span) for span in [(6, 18), (24, 48), (96, 120), (42, 96)]),
        # The gap is a day of the coarser part, some runs of the finer part, a day of it, or over the change.
        *(([(DAILY, 3), (SIXTHS, 6)], span) for span in [(24, 48), (90, 102), (96, 120), (48, 78)]),
        # Only the latest run, the run before the gap, or the run after it shows that there was another schedule.
        ([(SIXTHS, 2), (DAILY, 3)], (24, 36)),
        ([(SIXTHS, 3), (DAILY, 8)], (48, 96)),
        ([(DAILY, 2), (SIXTHS, 4), (DAILY, 8)], (48, 72)),
    ],
)
def test_after_a_change_the_command_of_each_gap_fills_it(
    schedules: list[tuple[str, int]], left_out: tuple[int, int]
) -> None:
    """Airflow keeps failed runs, with the interval that they had when they were created."""
    intervals: list[Interval] = []
    for cron, until in schedules:
        calendar = Calendar(cron, START)
        last = intervals[-1] if intervals else None
        intervals += calendar.scheduled(START + until * DAY, after=last)
    small = lake_of(hours(n, n + 6) for n in range(0, 24 * schedules[-1][1], 6))
    gap = hours(*left_out)
    ran(small, [interval for interval in intervals if not gap.overlaps(interval)])
    assert gaps(small) == [gap]
    follow(small, calendar, {interval.start: interval for interval in intervals})
    assert each_record_once(small)


def test_status_uses_the_new_schedule_after_three_of_its_runs() -> None:
    small = lake_of(hours(n, n + 6) for n in range(0, 9 * 24, 6))
    lengths: list[timedelta | None] = []
    ran(small, whole(48)[36:])
    for number in range(2, 6):
        ran(small, [hours(24 * number, 24 * number + 24)])
        lengths.append(read_status(small.lake).every)
    assert lengths == [HOUR, HOUR, DAY, DAY]
    # The command of a gap among the new intervals is a backfill again.
    ran(small, [hours(7 * 24, 8 * 24)])
    (gap,) = read_status(small.lake).gaps
    assert (gap.intervals, gap.command[1]) == (1, "backfill")


def test_the_rest_of_a_partly_committed_interval_does_not_change_the_schedule() -> None:
    small = lake_of(hours(n, n + 6) for n in range(0, 6 * 24, 6))
    dates = {"from": "2013-01-05T00:00", "to": "2013-01-05T06:00"}
    small.run(hours(96, 102), run="manual", **dates)
    ran(small, [hours(24 * n, 24 * n + 24) for n in range(5)])
    assert [interval for interval, _ in committed(small)][-2:] == [hours(96, 102), hours(102, 120)]
    assert read_status(small.lake).every == DAY
