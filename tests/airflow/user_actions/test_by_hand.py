"""Doors: tasks marked by hand that have told nothing, and what the ones after them say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.door_desk import DEADLINE_S, Desk
from support.door_project import Row, day
from support.door_stories import story
from tallystick.format.page import Entry
from tallystick.operations.status import Status
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import process_runs

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Marked:
    """What a task said whose predecessor was marked success and had told nothing, and how the run ended after a clear."""

    told: str
    granted: Entry | None
    status: Status | None
    after: Entry
    rows: list[Row]
    expected: list[Row]


@story("by_hand")
def plan_marked(desk: Desk) -> Marked:
    """Mark `plan` success before it ran (the DAG's switch is off), then let the run go; clear plan."""
    run = "day_6"
    desk.trigger(run, start=day(6), end=day(7))
    desk.mark(run, "plan", "success")
    desk.switch(on=True)
    desk.wait(run, "failed")
    told = desk.log(run, "stage")
    desk.clear(run, "plan")
    desk.wait(run)
    return Marked(told, None, None, desk.entry(day(6)), [], [])


def test_stage_after_a_plan_marked_success_by_hand_says_to_clear_plan(plan_marked: Marked) -> None:
    assert "the plan task of this run has told nothing" in plan_marked.told
    assert "clear the plan task with its downstream" in plan_marked.told
    assert plan_marked.after.committed is not None


@story("by_hand")
def stage_marked(desk: Desk, plan_marked: Marked) -> Marked:
    """Mark a running `stage` failed, then success; commit finds no report; clear stage."""
    del plan_marked
    run = "day_7"
    with desk.held_job() as gate:
        desk.trigger(run, start=day(7), end=day(8))
        _, driver = gate.wait_for(1)
        desk.mark(run, "stage", "failed")
        wait_until(
            lambda: not process_runs(driver), deadline_s=DEADLINE_S, what="the end of the driver"
        )
    desk.wait(run, "failed")
    desk.mark(run, "stage", "success")  # Airflow clears what had failed behind it: commit runs
    desk.wait_for_task(run, "commit", "failed")
    desk.wait(run, "failed")
    told, granted, status = desk.log(run, "commit"), desk.entry(day(7)), desk.status
    desk.clear(run, "stage")
    desk.wait(run)
    return Marked(told, granted, status, desk.entry(day(7)), desk.rows(), desk.expected(7))


def test_stage_marked_failed_by_hand_ends_its_driver_and_commits_nothing(
    stage_marked: Marked,
) -> None:
    assert stage_marked.granted is not None
    assert stage_marked.granted.committed is None


def test_commit_after_a_stage_marked_success_by_hand_says_to_clear_stage_and_nothing_is_lost(
    stage_marked: Marked,
) -> None:
    assert "the stage task of this run has told nothing" in stage_marked.told
    assert "clear the stage task with its downstream" in stage_marked.told
    assert stage_marked.status is not None
    assert [g.request.run for g in stage_marked.status.grants] == ["day_7"]
    assert stage_marked.after.generation == 1
    assert stage_marked.rows == stage_marked.expected
