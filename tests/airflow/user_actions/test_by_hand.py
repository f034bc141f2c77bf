"""User actions: tasks marked by hand that returned nothing, and the errors of the tasks after them."""

from __future__ import annotations

from dataclasses import dataclass

from support.user_action_driver import DEADLINE_S, Driver
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry
from tallystick.operations.status import Status
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import process_runs

pytestmark = EVERY_TEST


@dataclass(frozen=True)
class Marked:
    """The log of a task whose predecessor was marked success and returned nothing, and the run's end after a clear."""

    log: str
    granted: Entry | None
    status: Status | None
    after: Entry
    rows: list[Row]
    expected: list[Row]


@scenario("by_hand")
def plan_marked(driver: Driver) -> Marked:
    """Mark `plan` success before it runs (the DAG is paused), then let the run start; clear plan."""
    run = "day_6"
    driver.trigger(run, start=day(6), end=day(7))
    driver.mark(run, "plan", "success")
    driver.switch(on=True)
    driver.wait(run, "failed")
    log = driver.log(run, "stage")
    driver.clear(run, "plan")
    driver.wait(run)
    return Marked(log, None, None, driver.entry(day(6)), [], [])


def test_stage_after_a_plan_marked_success_by_hand_asks_to_clear_plan(plan_marked: Marked) -> None:
    assert "the plan task of this run returned no XCom" in plan_marked.log
    assert "clear the plan task with its downstream" in plan_marked.log
    assert plan_marked.after.committed is not None


@scenario("by_hand")
def stage_marked(driver: Driver, plan_marked: Marked) -> Marked:
    """Mark a running `stage` failed, then success; commit finds no report; clear stage."""
    del plan_marked
    run = "day_7"
    with driver.held_job() as barrier:
        driver.trigger(run, start=day(7), end=day(8))
        _, driver_pid = barrier.wait_for(1)
        driver.mark(run, "stage", "failed")
        wait_until(
            lambda: not process_runs(driver_pid),
            deadline_s=DEADLINE_S,
            what="the end of the Spark driver",
        )
    driver.wait(run, "failed")
    driver.mark(run, "stage", "success")  # Airflow clears the failed task after it: commit runs
    driver.wait_for_task(run, "commit", "failed")
    driver.wait(run, "failed")
    log, granted, status = driver.log(run, "commit"), driver.entry(day(7)), driver.status
    driver.clear(run, "stage")
    driver.wait(run)
    return Marked(log, granted, status, driver.entry(day(7)), driver.rows(), driver.expected(7))


def test_stage_marked_failed_by_hand_ends_its_driver_and_commits_nothing(
    stage_marked: Marked,
) -> None:
    assert stage_marked.granted is not None
    assert stage_marked.granted.committed is None


def test_commit_after_a_stage_marked_success_by_hand_asks_to_clear_stage_and_loses_nothing(
    stage_marked: Marked,
) -> None:
    assert "the stage task of this run returned no XCom" in stage_marked.log
    assert "clear the stage task with its downstream" in stage_marked.log
    assert stage_marked.status is not None
    assert [g.request.run for g in stage_marked.status.grants] == ["day_7"]
    assert stage_marked.after.generation == 1
    assert stage_marked.rows == stage_marked.expected
