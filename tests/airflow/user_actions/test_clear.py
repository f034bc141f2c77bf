"""User actions: Clear of each task before the commit, during its swap, and of a running task.

The drivers that are killed are Spark's; the jobs of the other pipelines run without a JVM, see user_action_project.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass

import pytest

from support.user_action_driver import DEADLINE_S, POLL_S, Driver, environment_of, parent_of
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.format.report import Report
from tallystick.operations.status import Status
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import process_runs

pytestmark = EVERY_TEST
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


@scenario("before")
def green_by_hand(driver: Driver) -> GreenByHand:
    """Commit the evening of day 1; run the day; mark its commit success before it runs; clear that commit."""
    driver.switch(on=True)
    driver.trigger("evening", start=day(1, 20), end=day(2))
    driver.wait("evening")
    evening = driver.entry(day(1, 20))
    with driver.held_job() as barrier:
        driver.trigger("day_1", start=day(1), end=day(2))
        barrier.wait_for(1)
        driver.mark("day_1", "commit", "success")
    driver.wait("day_1")
    marked, status = driver.entry(day(1)), driver.status
    driver.clear("day_1", "commit")
    driver.wait("day_1")
    return GreenByHand(
        evening=evening,
        planned=driver.log("day_1", "plan"),
        marked=marked,
        status=status,
        after=driver.entry(day(1)),
        rows=driver.rows(),
        submits=len(driver.submits),
    )


def test_only_the_remainder_of_an_interval_that_another_run_committed_in_part_is_planned(
    green_by_hand: GreenByHand,
) -> None:
    facts = green_by_hand
    assert facts.evening.committed is not None
    assert facts.evening.committed.request.run == "evening"
    assert (facts.after.interval.start, facts.after.interval.end) == (day(1), day(1, 20))
    assert "committed by other runs, and unchanged: [2013-01-01T20:00:00.000Z" in facts.planned


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
    """The plan and the report after each clear of a run that has not committed."""

    plans: list[str]
    reports: list[Report]
    uncommitted: list[bool]
    refused: str
    after: Entry
    rows: list[Row]
    expected: list[Row]


@scenario("before")
def cleared_before(driver: Driver, green_by_hand: GreenByHand) -> Repeats:
    """Mark commit failed before it runs; clear stage alone, plan alone, commit alone, and stage with its downstream."""
    del green_by_hand
    run = "day_2"
    plans: list[str] = []
    reports: list[Report] = []
    uncommitted: list[bool] = []

    def record() -> None:
        driver.wait(run, "failed")
        plans.append(driver.plan_key(run))
        with suppress(InvalidRequest):
            report = driver.lake.report(driver.report_key(run))
            assert report is not None
            reports.append(report)
        uncommitted.append(driver.entry(day(2)).committed is None)

    with driver.held_job() as barrier:
        driver.trigger(run, start=day(2), end=day(3))
        barrier.wait_for(len(barrier.arrived()) + 1)
        driver.mark(run, "commit", "failed")
    record()
    driver.clear(run, "stage", downstream=False)
    record()
    driver.clear(run, "plan", downstream=False)
    record()
    driver.clear(run, "commit")
    record()
    refused = driver.log(run, "commit")
    driver.clear(run, "stage")
    driver.wait(run)
    return Repeats(
        plans=plans,
        reports=reports,
        uncommitted=uncommitted,
        refused=refused,
        after=driver.entry(day(2)),
        rows=[row for row in driver.rows() if row[2] == 2],
        expected=driver.expected(2),
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


def test_clear_of_commit_alone_after_a_clear_of_plan_asks_to_clear_stage(
    cleared_before: Repeats,
) -> None:
    assert f"the stage task of this run returned no report for {cleared_before.plans[2]}" in (
        cleared_before.refused
    )
    assert "clear the stage task with its downstream" in cleared_before.refused


def test_clear_of_stage_with_its_downstream_commits_once(cleared_before: Repeats) -> None:
    assert cleared_before.after.committed is not None
    assert cleared_before.after.committed.plan == cleared_before.plans[2]
    assert cleared_before.rows == cleared_before.expected


# ---------------------------------------------------------------- during the commit


def press_each(driver: Driver, run: str) -> list[str]:
    """Clear each task as the button does, and return Airflow's answers."""
    answers = []
    for task in TASKS:
        with pytest.raises(InvalidRequest) as refused:
            driver.clear(run, task)
        answers.append(str(refused.value))
    return answers


@dataclass(frozen=True)
class During:
    """A clear while the run's swap was in progress: the outcome of the swap, and the lake afterwards."""

    answers: list[str]
    landed: int
    after: Entry
    log: str
    submits: int
    rows: list[Row]
    expected: list[Row]


@scenario("during")
def commit_cleared(driver: Driver) -> During:
    """During the swap, Clear is refused; with the box unticked it starts a second commit; then both swaps arrive."""
    driver.switch(on=True)
    run = "day_1"
    with driver.held_job() as barrier:
        driver.trigger(run, start=day(1), end=day(2))
        barrier.wait_for(1)
        with driver.held_swap() as held:
            barrier.open()
            held.wait_for(1)
            answers = press_each(driver, run)
            driver.clear(run, "commit", prevent_running=False)
            held.wait_for(2)
            landed = held.land()
    driver.wait(run)
    return _during(driver, run, answers, landed)


def _during(driver: Driver, run: str, answers: list[str], landed: int) -> During:
    number = int(run.removeprefix("day_"))
    return During(
        answers=answers,
        landed=landed,
        after=driver.entry(day(number)),
        log=driver.log(run, "commit"),
        submits=len(driver.submits),
        rows=[row for row in driver.rows() if row[2] == number],
        expected=driver.expected(number),
    )


def test_clear_during_the_commit_as_the_button_sends_it_is_refused(commit_cleared: During) -> None:
    assert all("409" in answer for answer in commit_cleared.answers)


def test_clear_of_commit_during_its_swap_commits_once_although_both_swaps_arrive(
    commit_cleared: During,
) -> None:
    assert commit_cleared.landed == 200
    assert "was committed already, as generation 1" in commit_cleared.log
    assert commit_cleared.rows == commit_cleared.expected
    assert commit_cleared.after.generation == 1


@scenario("during")
def stage_cleared(driver: Driver, commit_cleared: During) -> During:
    """Clear `stage` during the swap, with the box unticked; the swap arrives before the new stage reads the lake."""
    run = "day_2"
    with driver.held_job() as barrier:
        driver.trigger(run, start=day(2), end=day(3))
        barrier.wait_for(2)
        with driver.held_swap() as held:
            barrier.open()
            held.wait_for(1)
            driver.switch(on=False)  # the new stage starts only after the swap has arrived
            driver.clear(run, "stage", prevent_running=False)
            landed = held.land()
    driver.switch(on=True)
    driver.wait(run)
    del commit_cleared
    return _during(driver, run, [], landed)


def test_clear_of_stage_during_the_commit_finds_it_committed_and_starts_no_spark(
    stage_cleared: During, commit_cleared: During
) -> None:
    assert stage_cleared.landed == 200
    assert stage_cleared.submits == commit_cleared.submits + 1
    assert stage_cleared.rows == stage_cleared.expected
    assert stage_cleared.after.generation == 1


@scenario("during")
def plan_cleared(driver: Driver, stage_cleared: During) -> During:
    """Clear `plan` during the swap, with the box unticked; it plans again; then the old swap arrives, too late."""
    del stage_cleared
    run = "day_3"
    with driver.held_job() as barrier:
        driver.trigger(run, start=day(3), end=day(4))
        barrier.wait_for(3)
        with driver.held_swap(room=1) as held:
            barrier.open_for_new()
            barrier.let_pass(barrier.arrived()[-1][0])
            held.wait_for(1)
            old = driver.plan_key(run)
            driver.clear(run, "plan", prevent_running=False)
            wait_until(
                lambda: (slot := driver.entry(day(3)).granted) is not None and slot.plan != old,
                deadline_s=DEADLINE_S,
                what="a new plan",
                poll_s=POLL_S,
            )
            landed = held.land()
    driver.wait(run)
    return _during(driver, run, [], landed)


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
    """A running stage that was cleared, killed, or started a second time."""

    answer: str
    attempts: list[str]
    after: Entry
    reports: list[str]
    exit_code: int | None
    rows: list[Row]
    expected: list[Row]


@scenario("running")
def running_cleared(driver: Driver) -> Running:
    """Clear a running stage as the button does; then with the box unticked."""
    driver.switch(on=True)
    run = "day_4"
    with driver.held_job() as barrier:
        driver.trigger(run, start=day(4), end=day(5))
        _, driver_pid = barrier.wait_for(1)
        with pytest.raises(InvalidRequest) as refused:
            driver.clear(run, "stage")
        barrier.open_for_new()
        driver.clear(run, "stage", prevent_running=False)
        wait_until(
            lambda: not process_runs(driver_pid),
            deadline_s=DEADLINE_S,
            what="the end of the Spark driver",
        )
    driver.wait(run)
    return _running(driver, 4, str(refused.value))


def _running(driver: Driver, number: int, answer: str, exit_code: int | None = None) -> Running:
    entry = driver.entry(day(number))
    prefix = (
        keys.ATTEMPTS_PREFIX + keys.interval_part(entry.interval.start, entry.interval.end) + "/"
    )
    reports = [listed.key.removeprefix(prefix) for listed in driver.lake.store.list(prefix)]
    return Running(
        answer=answer,
        attempts=[attempt for attempt, _ in driver.barrier.arrived()],
        after=entry,
        reports=[name.split("-")[0] for name in reports],
        exit_code=exit_code,
        rows=[row for row in driver.rows() if row[2] == number],
        expected=driver.expected(number),
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


@scenario("running")
def killed_and_doubled(driver: Driver, running_cleared: Running) -> Running:
    """Kill a Spark driver with -9; during the retry, start the same command by hand; let both continue."""
    del running_cleared
    run = "day_5"
    with driver.held_job() as barrier:
        before = len(barrier.arrived())
        driver.trigger(run, start=day(5), end=day(6))
        _, first_pid = barrier.wait_for(before + 1)
        os.kill(parent_of(first_pid), signal.SIGKILL)
        attempt, driver_pid = barrier.wait_for(before + 2)
        environment = environment_of(driver_pid)
        environment["TALLYSTICK_RESULT_FILE"] = str(driver.stack.base / "double.json")
        command = [str(driver.stack.project / "spark-submit"), *driver.submits[-1]]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as double:
            barrier.wait_for(before + 3)
            barrier.open_for_new()
            barrier.let_pass(attempt)
            driver.wait(run)
            code = double.wait(DEADLINE_S)
    return _running(driver, 5, "", code)


def test_driver_that_dies_is_retried_and_the_interval_is_committed_once(
    killed_and_doubled: Running,
) -> None:
    first, second, double = killed_and_doubled.attempts[-3:]
    assert first != second
    assert second == double
    assert killed_and_doubled.after.generation == 1
    assert killed_and_doubled.rows == killed_and_doubled.expected


def test_task_started_a_second_time_during_the_first_commits_once(
    killed_and_doubled: Running,
) -> None:
    assert killed_and_doubled.exit_code == 0
    assert killed_and_doubled.reports == killed_and_doubled.attempts[-2:]
    assert killed_and_doubled.rows == killed_and_doubled.expected
    assert killed_and_doubled.after.generation == 1


@dataclass(frozen=True)
class PlanRunning:
    """A plan that was cleared during its own swap."""

    answer: str
    landed: int
    log: str
    after: Entry


@scenario("running")
def plan_running(driver: Driver, killed_and_doubled: Running) -> PlanRunning:
    """Clear `plan` during its swap, as the button does and with the box unticked; the first swap arrives first."""
    del killed_and_doubled
    run = "day_6"
    with driver.held_swap() as held:
        driver.trigger(run, start=day(6), end=day(7))
        held.wait_for(1)
        with pytest.raises(InvalidRequest) as refused:
            driver.clear(run, "plan")
        driver.clear(run, "plan", prevent_running=False)
        held.wait_for(2)
        landed = held.land()
    driver.wait(run)
    return PlanRunning(str(refused.value), landed, driver.log(run, "plan"), driver.entry(day(6)))


def test_clear_of_a_running_plan_as_the_button_sends_it_is_refused(
    plan_running: PlanRunning,
) -> None:
    assert "409" in plan_running.answer


def test_clear_of_a_running_plan_with_the_box_unticked_finds_the_commit_of_the_first_try(
    plan_running: PlanRunning,
) -> None:
    assert plan_running.landed == 200
    assert "committed already, nothing to stage" in plan_running.log
    assert plan_running.after.generation == 1
