"""The table of intervals: one line per interval at 100 columns, run ids whole at any width, dates as far as needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tallystick.cli.interval_table import interval_table
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Totals
from tallystick.operations.status import IntervalStatus

DAY = datetime(2015, 9, 12, tzinfo=UTC)


def interval(
    start: datetime,
    end: datetime,
    *,
    run: str | None = None,
    dag: str = "wiki",
    clear: int = 0,
    records: int = 9,
) -> IntervalStatus:
    found = Interval(start=start, end=end)
    return IntervalStatus(
        interval=found,
        state="committed",
        generation=clear + 1,
        totals=Totals(records=records, dead_letters=records // 5),
        owner=Request(dag=dag, run=run or f"scheduled__{start.isoformat()}", clear=clear),
        plan=keys.PlanKey(f"plans/{found.part}/{1:032x}.json"),
    )


def hours(count: int, every: timedelta = timedelta(hours=1), **how: int) -> list[IntervalStatus]:
    return [interval(DAY + n * every, DAY + (n + 1) * every, **how) for n in range(count)]


@pytest.mark.parametrize("how", [{}, {"clear": 12}, {"records": 12_345_678}])
@pytest.mark.parametrize(
    "every", [timedelta(minutes=5), timedelta(hours=1), timedelta(hours=6), timedelta(days=1)]
)
def test_at_100_columns_an_interval_takes_one_line(
    monkeypatch: pytest.MonkeyPatch, every: timedelta, how: dict[str, int]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = interval_table(hours(24, every, **how), "wiki").splitlines()
    assert max(map(len, lines)) <= 100
    runs = [line for line in lines if "scheduled__" in line]
    assert len(runs) == 24
    days = {(DAY + n * every).date() for n in range(24)}
    headings = 1 if every == timedelta(days=1) else 1 + len(days)
    assert len(lines) == 24 + headings


def test_the_hours_of_a_day() -> None:
    assert interval_table(hours(25)[22:], "wiki").splitlines() == [
        "from   to     state      gen  records     dead  run",
        "2015-09-12",
        "22:00  23:00  committed    1        9  1 (10%)  scheduled__2015-09-12T22:00:00+00:00",
        "23:00  24:00  committed    1        9  1 (10%)  scheduled__2015-09-12T23:00:00+00:00",
        "2015-09-13",
        "00:00  01:00  committed    1        9  1 (10%)  scheduled__2015-09-13T00:00:00+00:00",
    ]


@pytest.mark.parametrize("columns", ["40", "60", "80", "99"])
def test_on_a_narrow_terminal_a_run_id_has_its_own_line_and_stays_whole(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    intervals = hours(24, clear=1)
    words = interval_table(intervals, "wiki").split()
    assert [word for word in words if "scheduled" in word] == [one.owner.run for one in intervals]


def test_a_run_id_that_is_wider_than_any_terminal_stays_whole() -> None:
    long = "manual__" + "x" * 240
    lines = interval_table([interval(DAY, DAY + timedelta(days=1), run=long)], "wiki").splitlines()
    assert lines[2] == f"    {long}"


def test_runs_of_several_dags_name_their_dag() -> None:
    end = DAY + timedelta(days=1)
    heading, line = interval_table([interval(DAY, end, run="a", dag="other")], None).splitlines()
    assert heading.endswith("DAG / run")
    assert line.endswith("  other / a")


@pytest.mark.parametrize(
    ("start", "end", "cells"),
    [
        (DAY, DAY + timedelta(days=1), ["2015-09-12", "09-13"]),
        (DAY, DAY + timedelta(days=40), ["2015-09-12", "10-22"]),
        (
            datetime(2015, 12, 31, tzinfo=UTC),
            datetime(2016, 1, 1, tzinfo=UTC),
            ["2015-12-31", "2016-01-01"],
        ),
        (DAY + timedelta(hours=18), DAY + timedelta(hours=30), ["18:00", "09-13 06:00"]),
        (DAY + timedelta(hours=18), DAY + timedelta(days=2), ["18:00", "09-14"]),
        (
            DAY + timedelta(seconds=1),
            DAY + timedelta(milliseconds=1500),
            ["00:00:01", "00:00:01.500"],
        ),
        (
            datetime(2015, 12, 31, 12, tzinfo=UTC),
            datetime(2016, 1, 1, 12, tzinfo=UTC),
            ["12:00", "2016-01-01 12:00"],
        ),
    ],
)
def test_dates_are_written_as_far_as_they_differ(
    start: datetime, end: datetime, cells: list[str]
) -> None:
    row = interval_table([interval(start, end)], "wiki").splitlines()[-1]
    assert row[: row.index("committed")].split("  ")[:2] == cells
