"""Airflow counts the clears of a run from 0 again: its DAG was deleted, or the metadata database is new."""

from __future__ import annotations

import pytest

from support.small_lake import SmallLake, days
from tallystick.errors import Superseded
from tallystick.operations.release import release

DAY_1, DAY_2, DAY_3 = days(1, 2), days(2, 3), days(3, 4)
RUN = "scheduled__2013-01-01T00:00:00+00:00"


def test_a_run_created_again_succeeds_over_its_committed_rows() -> None:
    small = SmallLake()
    for clear in range(3):
        small.job = f"version {clear}".encode()
        small.run(DAY_1, run=RUN, clear=clear)
    version = small.lake.load_existing().root.version
    for clear in range(4):
        planned = small.plan(DAY_1, run=RUN, clear=clear)
        assert [planned_day.committed for planned_day in planned.intervals] == [True]
    small.job = b"version 9"
    assert [p.committed for p in small.plan(DAY_1, run=RUN, clear=0).intervals] == [True]
    assert small.lake.load_existing().root.version == version


def test_a_grant_of_the_former_count_is_taken_over_by_the_trigger_in_the_hint() -> None:
    small = SmallLake()
    small.plan(DAY_2, run=RUN, clear=1)
    with pytest.raises(Superseded) as caught:
        small.plan(DAY_2, run=RUN, clear=0)
    assert "later request of the same run there: clear 1" in str(caught.value)
    assert (
        "Trigger with from=2013-01-02T00:00:00.000Z, to=2013-01-03T00:00:00.000Z, take_over=true."
        in str(caught.value)
    )
    small.run(DAY_2, run="manual__1", take_over=True)
    planned = small.plan(DAY_2, run=RUN, clear=0)
    assert (planned.intervals, planned.covered) == ((), (DAY_2,))


def test_a_clear_with_changed_code_does_not_reuse_a_commit_of_the_former_count() -> None:
    small = SmallLake()
    small.run(DAY_3, run=RUN, clear=1)
    small.job = b"changed"
    with pytest.raises(Superseded, match="clear this run's plan task"):
        small.plan(DAY_3, run=RUN, clear=1)
    assert [p.committed for p in small.plan(DAY_3, run=RUN, clear=2).intervals] == [False]


def test_a_lower_clear_with_changed_code_names_the_replacement() -> None:
    small = SmallLake()
    small.run(DAY_3, run=RUN, clear=2)
    small.job = b"changed"
    with pytest.raises(Superseded, match="take_over=true, mode=replace"):
        small.plan(DAY_3, run=RUN, clear=1)
    (replaced,) = small.run(DAY_3, run="manual__2", mode="replace", take_over=True)
    assert replaced.generation == 2


def test_a_retry_of_plan_after_a_release_names_the_gap_and_a_clear_fills_it() -> None:
    """The retry may be a late copy of the task. If it were granted the gap, no task would stage that plan."""
    small = SmallLake()
    small.run(DAY_2, run="other")
    first = small.plan(days(1, 4), run=RUN)
    assert [p.interval for p in first.intervals] == [DAY_1, DAY_3]
    release(small.lake, DAY_3)
    version = small.lake.load_existing().root.version
    with pytest.raises(Superseded, match="clear this run's plan task to plan it") as caught:
        small.plan(days(1, 4), run=RUN)
    assert f"{DAY_3} of {days(1, 4)} is no longer granted to any run" in str(caught.value)
    assert small.lake.load_existing().root.version == version
    cleared = small.plan(days(1, 4), run=RUN, clear=1)
    assert [p.interval for p in cleared.intervals] == [DAY_1, DAY_3]


def test_a_late_copy_of_plan_takes_nothing_that_another_run_released() -> None:
    """The run has succeeded, another run's grant was released, and then a late copy of the run's first plan task runs."""
    small = SmallLake()
    small.plan(DAY_2, run="holder")
    small.run(days(1, 4), run=RUN)
    release(small.lake, DAY_2)
    with pytest.raises(Superseded):
        small.plan(days(1, 4), run=RUN)
    holder = small.plan(DAY_2, run="holder", clear=1)
    assert [(p.interval, p.committed) for p in holder.intervals] == [(DAY_2, False)]


def test_a_lower_clear_number_names_the_ends_of_an_interval_that_a_replacement_would_cut() -> None:
    small = SmallLake()
    small.run(days(1, 4), run="other")
    small.plan(days(4, 5), run=RUN, clear=1)
    with pytest.raises(Superseded) as caught:
        small.plan(days(2, 5), run=RUN, clear=0, mode="replace")
    assert f"to an end of the committed interval {days(1, 4)}" in str(caught.value)
