"""Backfills whose runs are staged by one spark-submit, each committed by itself, also if a driver is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from support.user_action_driver import DEADLINE_S, Driver, parent_of
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry

pytestmark = EVERY_TEST


@dataclass(frozen=True)
class Backfilled:
    """A backfill: its spark-submits, the ledger and the rows after it, and the report that each run committed."""

    submits: int
    entries: dict[int, Entry]
    rows: list[Row]
    expected: list[Row]
    reports: dict[int, str]
    logs: dict[int, str]


def run_of(number: int) -> str:
    """Return the id of a day's run, which contains the end of the interval."""
    return f"backfill__{day(number + 1).isoformat()}"


def backfilled(driver: Driver, numbers: Sequence[int], *, kill: bool) -> Backfilled:
    """Backfill these days at once, and hold the first driver until all are planned."""
    before = len(driver.submits)
    with driver.held_job() as barrier:
        held = len(barrier.arrived())
        made = driver.api.create_backfill(
            driver.pipeline, day(numbers[0]), day(numbers[-1]), max_active_runs=8
        )
        for number in numbers:
            driver.wait_for_appearance(run_of(number))
            driver.wait_for_task(run_of(number), "plan", "success")
        _, pid = barrier.wait_for(held + 1)
        if kill:
            barrier.open_for_new()
            os.kill(parent_of(pid), signal.SIGKILL)
    for number in numbers:
        driver.wait(run_of(number))
    driver.api.wait_for_backfill(int(made["id"]), deadline_s=DEADLINE_S)
    return Backfilled(
        submits=len(driver.submits) - before,
        entries={e.interval.start.day: e for e in driver.entries},
        rows=[row for row in driver.rows() if row[2] in numbers],
        expected=driver.expected(*numbers),
        reports={number: driver.report_key(run_of(number)) for number in numbers},
        logs={number: driver.log(run_of(number), "stage") for number in numbers},
    )


@scenario("together")
def together(driver: Driver) -> Backfilled:
    """Backfill 1 to 5 January."""
    driver.switch(on=True)
    return backfilled(driver, range(1, 6), kill=False)


@scenario("together")
def together_killed(driver: Driver, together: Backfilled) -> Backfilled:
    """Backfill 13 to 15 January, and kill the first driver with -9 after it has claimed plans."""
    del together
    return backfilled(driver, range(13, 16), kill=True)


def test_intervals_of_a_backfill_are_staged_by_one_spark_submit_and_each_run_commits_its_own(
    together: Backfilled,
) -> None:
    assert together.submits == 1
    attempts = {report.rpartition("/")[2].partition("-")[0] for report in together.reports.values()}
    assert len(attempts) == 1
    assert len(set(together.reports.values())) == 5
    assert together.rows == together.expected
    for number in range(1, 6):
        committed = together.entries[number].committed
        assert committed is not None
        assert committed.request.run == run_of(number)
        assert committed.generation == 1
    waited = [n for n, log in together.logs.items() if "uses its report" in log]
    assert len(waited) == 4


def test_runs_whose_claimed_plans_lost_their_driver_stage_them_alone(
    together_killed: Backfilled,
) -> None:
    assert together_killed.submits > 1
    assert together_killed.rows == together_killed.expected
    for number in range(13, 16):
        entry = together_killed.entries[number]
        assert entry.granted is None
        assert entry.committed is not None
        assert (entry.committed.request.run, entry.committed.generation) == (run_of(number), 1)
