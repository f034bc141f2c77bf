"""A DAG with `one_task` on a real scheduler: killed in mid-stage, cleared, and replaced."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from support.user_action_driver import Driver
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry

pytestmark = EVERY_TEST


@dataclass(frozen=True)
class InOneTask:
    """What the lake had after each action on a run of one task. `jobs`: how often its job was started."""

    tries: int
    killed: Entry
    cleared: Entry
    jobs: int
    replaced: Entry
    rows: list[Row]
    expected: list[Row]
    submits: int


@scenario("at_once")
def in_one_task(driver: Driver) -> InOneTask:
    """Kill the job's process while it stages; clear the run; replace the interval by another run."""
    run = "day_1"
    with driver.held_job() as barrier:
        driver.switch(on=True)
        driver.trigger(run, start=day(1), end=day(2))
        _, pid = barrier.wait_for(1)
        os.kill(pid, signal.SIGKILL)
        attempt, _ = barrier.wait_for(2)
        barrier.let_pass(attempt)
        driver.wait(run)
        killed, tries = driver.entry(day(1)), driver.tries(run, "replay")
        # The barrier stays closed: if the cleared task started its job, that would be seen there.
        driver.clear(run, "replay")
        driver.wait(run)
        cleared, jobs = driver.entry(day(1)), len(barrier.arrived())
    driver.trigger("again", start=day(1), end=day(2), mode="replace")
    driver.wait("again")
    return InOneTask(
        tries=tries,
        killed=killed,
        cleared=cleared,
        jobs=jobs,
        replaced=driver.entry(day(1)),
        rows=driver.rows(),
        expected=driver.expected(1, topic="short"),
        submits=len(driver.submits),
    )


def test_a_killed_job_is_staged_again_by_a_retry_and_committed_once(in_one_task: InOneTask) -> None:
    facts = in_one_task
    assert facts.tries == 2
    assert facts.killed.committed is not None
    assert facts.killed.committed.generation == 1


def test_a_cleared_run_changes_nothing_and_starts_no_job(in_one_task: InOneTask) -> None:
    facts = in_one_task
    assert facts.cleared.committed == facts.killed.committed
    assert facts.jobs == 2  # the killed one, and that of the retry


def test_a_replacement_has_each_row_once_and_no_spark_was_started(in_one_task: InOneTask) -> None:
    facts = in_one_task
    assert facts.replaced.committed is not None
    assert facts.replaced.committed.generation == 2
    assert facts.rows == facts.expected
    assert facts.submits == 0
