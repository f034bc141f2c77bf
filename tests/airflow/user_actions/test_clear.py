"""Doors: Clear of each task before the commit, while its swap is on the way, and of a task that runs."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass

import pytest

from support.door_desk import DEADLINE_S, POLL_S, Desk, environment_of, parent_of
from support.door_project import Row, day
from support.door_stories import story
from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.format.report import Report
from tallystick.operations.status import Status
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import process_runs

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(1800),
]
TASKS = ("plan", "stage", "commit")


# ---------------------------------------------------------------- before the commit


@dataclass(frozen=True)
class GreenByHand:
    """A run whose commit was marked success by hand: before and after a clear of that commit."""

    evening: Entry
    planned: str
    marked: Entry
    status: Status
    after: Entry
    rows: list[Row]
    submits: int


@story("before")
def green_by_hand(desk: Desk) -> GreenByHand:
    """Commit the evening of day 1; run the day; mark its commit success before it ran; clear that commit."""
    desk.switch(on=True)
    desk.trigger("evening", start=day(1, 20), end=day(2))
    desk.wait("evening")
    evening = desk.entry(day(1, 20))
    with desk.held_job() as gate:
        desk.trigger("day_1", start=day(1), end=day(2))
        gate.wait_for(1)
        desk.mark("day_1", "commit", "success")
    desk.wait("day_1")
    marked, status = desk.entry(day(1)), desk.status
    desk.clear("day_1", "commit")
    desk.wait("day_1")
    return GreenByHand(
        evening=evening,
        planned=desk.log("day_1", "plan"),
        marked=marked,
        status=status,
        after=desk.entry(day(1)),
        rows=desk.rows(),
        submits=len(desk.submits),
    )


def test_of_an_interval_that_another_run_committed_in_part_only_the_remainder_is_planned(
    green_by_hand: GreenByHand,
) -> None:
    facts = green_by_hand
    assert facts.evening.committed is not None
    assert facts.evening.committed.request.run == "evening"
    assert (facts.after.interval.start, facts.after.interval.end) == (day(1), day(1, 20))
    assert "committed by others, and stays: [2013-01-01T20:00:00.000Z" in facts.planned


def test_commit_marked_success_by_hand_publishes_nothing_and_status_shows_the_grant(
    green_by_hand: GreenByHand,
) -> None:
    marked = green_by_hand.marked
    assert marked.committed is None
    assert marked.granted is not None
    assert [(g.interval.start, g.request.run) for g in green_by_hand.status.grants] == [
        (day(1), "day_1")
    ]


def test_clear_of_commit_before_the_commit_publishes_what_was_staged_without_spark(
    green_by_hand: GreenByHand,
) -> None:
    facts = green_by_hand
    assert facts.after.committed is not None
    assert facts.marked.granted is not None
    assert facts.after.committed.plan == facts.marked.granted.plan
    assert facts.submits == 1
    assert [n for _, _, n in facts.rows] == [1] * 38


@dataclass(frozen=True)
class Repeats:
    """What was granted and staged after each clear of a run that has not committed."""

    plans: list[str]
    reports: list[Report]
    uncommitted: list[bool]
    refused: str
    after: Entry
    rows: list[Row]
    expected: list[Row]


@story("before")
def cleared_before(desk: Desk, green_by_hand: GreenByHand) -> Repeats:
    """Mark commit failed before it runs; clear stage alone, plan alone, commit alone, and stage with what follows."""
    del green_by_hand
    run = "day_2"
    plans: list[str] = []
    reports: list[Report] = []
    uncommitted: list[bool] = []

    def note() -> None:
        desk.wait(run, "failed")
        plans.append(desk.plan_key(run))
        with suppress(InvalidRequest):
            report = desk.lake.report(desk.report_key(run))
            assert report is not None
            reports.append(report)
        uncommitted.append(desk.entry(day(2)).committed is None)

    with desk.held_job() as gate:
        desk.trigger(run, start=day(2), end=day(3))
        gate.wait_for(len(gate.arrived()) + 1)
        desk.mark(run, "commit", "failed")
    note()
    desk.clear(run, "stage", downstream=False)
    note()
    desk.clear(run, "plan", downstream=False)
    note()
    desk.clear(run, "commit")
    note()
    refused = desk.log(run, "commit")
    desk.clear(run, "stage")
    desk.wait(run)
    return Repeats(
        plans=plans,
        reports=reports,
        uncommitted=uncommitted,
        refused=refused,
        after=desk.entry(day(2)),
        rows=[row for row in desk.rows() if row[2] == 2],
        expected=desk.expected(2),
    )


def test_commit_marked_failed_by_hand_commits_nothing(cleared_before: Repeats) -> None:
    assert cleared_before.uncommitted == [True] * 4


def test_clear_of_stage_before_the_commit_stages_the_same_offsets_of_the_same_plan(
    cleared_before: Repeats,
) -> None:
    first, second = cleared_before.reports[:2]
    assert cleared_before.plans[0] == cleared_before.plans[1]
    assert first.attempt != second.attempt
    assert first.accounts == second.accounts


def test_clear_of_plan_before_the_commit_grants_a_new_plan_of_the_same_interval(
    cleared_before: Repeats,
) -> None:
    _, old, new = cleared_before.plans[:3]
    assert new != old
    assert new.split("/")[1] == old.split("/")[1]


def test_clear_of_commit_alone_after_plan_was_planned_anew_says_to_clear_stage(
    cleared_before: Repeats,
) -> None:
    assert f"the stage task of this run named no report for {cleared_before.plans[2]}" in (
        cleared_before.refused
    )
    assert "clear the stage task with its downstream" in cleared_before.refused


def test_clear_of_stage_with_its_downstream_commits_once(cleared_before: Repeats) -> None:
    assert cleared_before.after.committed is not None
    assert cleared_before.after.committed.plan == cleared_before.plans[2]
    assert cleared_before.rows == cleared_before.expected


# ---------------------------------------------------------------- during the commit


def press_each(desk: Desk, run: str) -> list[str]:
    """Press Clear on each task as the button does, and return Airflow's answers."""
    answers = []
    for task in TASKS:
        with pytest.raises(InvalidRequest) as refused:
            desk.clear(run, task)
        answers.append(str(refused.value))
    return answers


@dataclass(frozen=True)
class During:
    """A clear while the run's swap was on its way: how the swap ended, and what stood there afterwards."""

    answers: list[str]
    landed: int
    after: Entry
    told: str
    submits: int
    rows: list[Row]
    expected: list[Row]


@story("during")
def commit_cleared(desk: Desk) -> During:
    """The swap is on its way: Clear as sent is refused; unticked it starts a second commit; then both swaps arrive."""
    desk.switch(on=True)
    run = "day_1"
    with desk.held_job() as gate:
        desk.trigger(run, start=day(1), end=day(2))
        gate.wait_for(1)
        with desk.held_swap() as held:
            gate.open()
            held.wait_for(1)
            answers = press_each(desk, run)
            desk.clear(run, "commit", prevent_running=False)
            held.wait_for(2)
            landed = held.land()
    desk.wait(run)
    return _during(desk, run, answers, landed)


def _during(desk: Desk, run: str, answers: list[str], landed: int) -> During:
    number = int(run.removeprefix("day_"))
    return During(
        answers=answers,
        landed=landed,
        after=desk.entry(day(number)),
        told=desk.log(run, "commit"),
        submits=len(desk.submits),
        rows=[row for row in desk.rows() if row[2] == number],
        expected=desk.expected(number),
    )


def test_clear_during_the_commit_as_the_button_sends_it_is_refused(commit_cleared: During) -> None:
    assert all("409" in answer for answer in commit_cleared.answers)


def test_clear_of_commit_during_its_swap_commits_once_although_both_swaps_arrive(
    commit_cleared: During,
) -> None:
    assert commit_cleared.landed == 200
    assert "was committed already, as generation 1" in commit_cleared.told
    assert commit_cleared.rows == commit_cleared.expected
    assert commit_cleared.after.generation == 1


@story("during")
def stage_cleared(desk: Desk, commit_cleared: During) -> During:
    """The swap is on its way, `stage` is cleared all the same; the swap arrives before the new stage looks."""
    run = "day_2"
    with desk.held_job() as gate:
        desk.trigger(run, start=day(2), end=day(3))
        gate.wait_for(2)
        with desk.held_swap() as held:
            gate.open()
            held.wait_for(1)
            desk.switch(on=False)  # the new stage is started when the swap has arrived, not before
            desk.clear(run, "stage", prevent_running=False)
            landed = held.land()
    desk.switch(on=True)
    desk.wait(run)
    del commit_cleared
    return _during(desk, run, [], landed)


def test_clear_of_stage_during_the_commit_finds_it_committed_and_starts_no_spark(
    stage_cleared: During, commit_cleared: During
) -> None:
    assert stage_cleared.landed == 200
    assert stage_cleared.submits == commit_cleared.submits + 1
    assert stage_cleared.rows == stage_cleared.expected
    assert stage_cleared.after.generation == 1


@story("during")
def plan_cleared(desk: Desk, stage_cleared: During) -> During:
    """The swap is on its way, `plan` is cleared all the same and plans anew; then the old swap arrives, too late."""
    del stage_cleared
    run = "day_3"
    with desk.held_job() as gate:
        desk.trigger(run, start=day(3), end=day(4))
        gate.wait_for(3)
        with desk.held_swap(room=1) as held:
            gate.open_for_others()
            gate.let(gate.arrived()[-1][0])
            held.wait_for(1)
            old = desk.plan_key(run)
            desk.clear(run, "plan", prevent_running=False)
            wait_until(
                lambda: (slot := desk.entry(day(3)).granted) is not None and slot.plan != old,
                deadline_s=DEADLINE_S,
                what="a new plan",
                poll_s=POLL_S,
            )
            landed = held.land()
    desk.wait(run)
    return _during(desk, run, [], landed)


def test_clear_of_plan_during_the_commit_supersedes_the_swap_that_arrives_too_late(
    plan_cleared: During,
) -> None:
    assert plan_cleared.landed == 412
    assert plan_cleared.after.committed is not None
    assert plan_cleared.after.committed.request.clear == 1
    assert plan_cleared.after.generation == 2
    assert plan_cleared.rows == plan_cleared.expected


# ---------------------------------------------------------------- a task that runs


@dataclass(frozen=True)
class Running:
    """A running stage that somebody cleared, killed, or started a second time."""

    answer: str
    attempts: list[str]
    after: Entry
    reports: list[str]
    exit_code: int | None
    rows: list[Row]
    expected: list[Row]


@story("running")
def running_cleared(desk: Desk) -> Running:
    """Clear a running stage as the button does; then with the box unticked."""
    desk.switch(on=True)
    run = "day_4"
    with desk.held_job() as gate:
        desk.trigger(run, start=day(4), end=day(5))
        _, driver = gate.wait_for(1)
        with pytest.raises(InvalidRequest) as refused:
            desk.clear(run, "stage")
        gate.open_for_others()
        desk.clear(run, "stage", prevent_running=False)
        wait_until(
            lambda: not process_runs(driver), deadline_s=DEADLINE_S, what="the end of the driver"
        )
    desk.wait(run)
    return _running(desk, 4, str(refused.value))


def _running(desk: Desk, number: int, answer: str, exit_code: int | None = None) -> Running:
    entry = desk.entry(day(number))
    prefix = (
        keys.ATTEMPTS_PREFIX + keys.interval_part(entry.interval.start, entry.interval.end) + "/"
    )
    reports = [one.key.removeprefix(prefix) for one in desk.lake.store.list(prefix)]
    return Running(
        answer=answer,
        attempts=[attempt for attempt, _ in desk.gate.arrived()],
        after=entry,
        reports=[name.split("-")[0] for name in reports],
        exit_code=exit_code,
        rows=[row for row in desk.rows() if row[2] == number],
        expected=desk.expected(number),
    )


def test_clear_of_a_running_stage_as_the_button_sends_it_is_refused(
    running_cleared: Running,
) -> None:
    assert "409" in running_cleared.answer


def test_clear_of_a_running_stage_with_the_box_unticked_ends_the_driver_and_commits_once(
    running_cleared: Running,
) -> None:
    assert running_cleared.after.committed is not None
    assert len(running_cleared.reports) == 1
    assert running_cleared.reports != running_cleared.attempts[:1]
    assert running_cleared.rows == running_cleared.expected


@story("running")
def killed_and_doubled(desk: Desk, running_cleared: Running) -> Running:
    """Kill a driver with -9; beside the retry, start the same command by hand; let both go on."""
    del running_cleared
    run = "day_5"
    with desk.held_job() as gate:
        came = len(gate.arrived())
        desk.trigger(run, start=day(5), end=day(6))
        _, first = gate.wait_for(came + 1)
        os.kill(parent_of(first), signal.SIGKILL)
        attempt, driver = gate.wait_for(came + 2)
        surroundings = environment_of(driver)
        surroundings["TALLYSTICK_RESULT_FILE"] = str(desk.doors.base / "double.json")
        command = [str(desk.doors.project / "spark-submit"), *desk.submits[-1]]
        with subprocess.Popen(command, env=surroundings, stdout=subprocess.DEVNULL) as double:
            gate.wait_for(came + 3)
            gate.open_for_others()
            gate.let(attempt)
            desk.wait(run)
            code = double.wait(DEADLINE_S)
    return _running(desk, 5, "", code)


def test_driver_that_dies_is_tried_again_and_the_interval_committed_once(
    killed_and_doubled: Running,
) -> None:
    first, second, double = killed_and_doubled.attempts[-3:]
    assert first != second
    assert second == double
    assert killed_and_doubled.after.generation == 1
    assert killed_and_doubled.rows == killed_and_doubled.expected


def test_task_started_a_second_time_beside_the_running_one_commits_once(
    killed_and_doubled: Running,
) -> None:
    assert killed_and_doubled.exit_code == 0
    assert killed_and_doubled.reports == killed_and_doubled.attempts[-2:]
    assert killed_and_doubled.rows == killed_and_doubled.expected
    assert killed_and_doubled.after.generation == 1


@dataclass(frozen=True)
class PlanRunning:
    """A plan that was cleared while its own swap was on the way."""

    answer: str
    landed: int
    told: str
    after: Entry


@story("running")
def plan_running(desk: Desk, killed_and_doubled: Running) -> PlanRunning:
    """Clear `plan` while its swap is on the way, as the button does and unticked; the first swap arrives first."""
    del killed_and_doubled
    run = "day_6"
    with desk.held_swap() as held:
        desk.trigger(run, start=day(6), end=day(7))
        held.wait_for(1)
        with pytest.raises(InvalidRequest) as refused:
            desk.clear(run, "plan")
        desk.clear(run, "plan", prevent_running=False)
        held.wait_for(2)
        landed = held.land()
    desk.wait(run)
    return PlanRunning(str(refused.value), landed, desk.log(run, "plan"), desk.entry(day(6)))


def test_clear_of_a_running_plan_as_the_button_sends_it_is_refused(
    plan_running: PlanRunning,
) -> None:
    assert "409" in plan_running.answer


def test_clear_of_a_running_plan_with_the_box_unticked_finds_what_the_first_try_has_done(
    plan_running: PlanRunning,
) -> None:
    assert plan_running.landed == 200
    assert "committed already, nothing to stage" in plan_running.told
    assert plan_running.after.generation == 1
