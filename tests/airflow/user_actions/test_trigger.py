"""User actions: Trigger during another run, take-over, and two DAGs on one lake."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.user_action_driver import DEADLINE_S, Driver
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format.page import Entry

pytestmark = EVERY_TEST
FIRST = f"scheduled__{day(2).isoformat()}"


@dataclass(frozen=True)
class Concurrent:
    """Logs and results of other runs while a scheduled run holds its interval, and that interval before and after."""

    held: Entry
    still_held: Entry
    without_dates: Entry
    plans: dict[str, str]
    ends: dict[str, str]
    commits: dict[str, str]
    submits: int


@dataclass(frozen=True)
class TakenOver:
    """A running run whose interval another run took over: the logs of both, and what is committed."""

    planned: str
    first_state: str
    first_log: str
    before: Entry
    after: Entry
    rows: list[Row]
    expected: list[Row]


@scenario("shared")
def shared(driver: Driver) -> tuple[Concurrent, TakenOver]:
    """While the job of a scheduled run waits, other runs request its interval; the last of them takes it over."""
    with driver.held_job() as barrier:
        driver.switch(on=True)
        driver.wait_for_appearance(FIRST)
        barrier.wait_for(1)
        facts = others(driver)
        barrier.open_for_new()
        driver.trigger("taker", start=day(1), end=day(2), take_over=True)
        driver.wait("taker")
        before = driver.entry(day(1))
    first = driver.api.wait_for_run("shared", FIRST, deadline_s=DEADLINE_S)
    return facts, TakenOver(
        planned=driver.log("taker", "plan"),
        first_state=str(first["state"]),
        first_log=driver.log(FIRST, "commit"),
        before=before,
        after=driver.entry(day(1)),
        rows=driver.rows(),
        expected=driver.expected(1, topic="short"),
    )


def others(driver: Driver) -> Concurrent:
    """Trigger with the dates of the running run and without dates; start another DAG and another pipeline."""
    held = driver.entry(day(1))
    driver.trigger("with_dates", start=day(1), end=day(2))
    driver.trigger("without_dates")
    for dag in ("shared_twin", "stranger"):
        driver.switch(on=True, dag=dag)
    driver.trigger("strange", dag="stranger", start=day(1), end=day(2))
    driver.wait_for_appearance(FIRST, dag="shared_twin")
    runs = {
        "with_dates": "shared",
        "without_dates": "shared",
        FIRST: "shared_twin",
        "strange": "stranger",
    }
    ends = {
        run: str(driver.api.wait_for_run(dag, run, deadline_s=DEADLINE_S)["state"])
        for run, dag in runs.items()
    }
    return Concurrent(
        held=held,
        still_held=driver.entry(day(1)),
        without_dates=driver.entry(day(2)),
        plans={run: driver.log(run, "plan", dag=dag) for run, dag in runs.items()},
        ends=ends,
        commits={run: driver.log(run, "commit", dag=dag) for run, dag in runs.items()},
        submits=len(driver.submits),
    )


@pytest.fixture(scope="session")
def concurrent_runs(shared: tuple[Concurrent, TakenOver]) -> Concurrent:
    return shared[0]


@pytest.fixture(scope="session")
def taken_over(shared: tuple[Concurrent, TakenOver]) -> TakenOver:
    return shared[1]


HELD = f"held by shared / {FIRST}: [2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z); left out"


def test_trigger_with_the_dates_of_a_running_run_leaves_them_out_names_their_holder_and_succeeds(
    concurrent_runs: Concurrent,
) -> None:
    assert HELD in concurrent_runs.plans["with_dates"]
    assert f"granted to shared / {FIRST}" in concurrent_runs.commits["with_dates"]
    assert concurrent_runs.ends["with_dates"] == "success"
    assert concurrent_runs.still_held == concurrent_runs.held


def test_trigger_without_dates_during_a_run_commits_what_comes_after_it(
    concurrent_runs: Concurrent,
) -> None:
    assert concurrent_runs.ends["without_dates"] == "success"
    assert concurrent_runs.without_dates.committed is not None
    assert concurrent_runs.without_dates.committed.request.run == "without_dates"
    assert concurrent_runs.still_held == concurrent_runs.held


def test_second_dag_of_the_same_pipeline_on_one_lake_is_safe_and_leaves_out_what_the_first_has(
    concurrent_runs: Concurrent,
) -> None:
    assert HELD in concurrent_runs.plans[FIRST]
    assert concurrent_runs.ends[FIRST] == "success"
    assert concurrent_runs.submits == 1


def test_second_pipeline_on_the_same_lake_is_refused_with_both_names(
    concurrent_runs: Concurrent,
) -> None:
    assert concurrent_runs.ends["strange"] == "failed"
    log = concurrent_runs.plans["strange"]
    assert (
        "invalid_pipeline: s3://lake/shared: expected the lake of pipeline 'stranger', found that of 'shared'"
        in log
    )


def test_take_over_cancels_the_grant_of_a_running_run_and_commits(taken_over: TakenOver) -> None:
    assert f"cancelled: the grant of shared / {FIRST}" in taken_over.planned
    assert taken_over.before.committed is not None
    assert taken_over.before.committed.request.run == "taker"


def test_run_that_was_taken_over_ends_superseded_and_changes_nothing(
    taken_over: TakenOver,
) -> None:
    assert taken_over.first_state == "failed"
    assert "superseded: " in taken_over.first_log
    assert taken_over.after == taken_over.before
    assert taken_over.rows == taken_over.expected
