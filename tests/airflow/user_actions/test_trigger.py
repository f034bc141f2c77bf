"""Doors: Trigger beside a run that is under way, take-over, and two DAGs on one lake root."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.door_desk import DEADLINE_S, Desk
from support.door_project import Row, day
from support.door_stories import story
from tallystick.format.page import Entry

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(1800),
]
FIRST = f"scheduled__{day(2).isoformat()}"


@dataclass(frozen=True)
class Beside:
    """What others did and said while a scheduled run held its interval, and what stood there before and after."""

    held: Entry
    still_held: Entry
    without_dates: Entry
    plans: dict[str, str]
    ends: dict[str, str]
    commits: dict[str, str]
    submits: int


@dataclass(frozen=True)
class TakenOver:
    """A running run whose interval another one took: what both said, and what is committed."""

    planned: str
    first_state: str
    first_told: str
    before: Entry
    after: Entry
    rows: list[Row]
    expected: list[Row]


@story("beside")
def beside(desk: Desk) -> tuple[Beside, TakenOver]:
    """While the job of a scheduled run waits, others want its interval; the last of them takes it over."""
    with desk.held_job() as gate:
        desk.switch(on=True)
        desk.wait_for_appearance(FIRST)
        gate.wait_for(1)
        facts = others(desk)
        gate.open_for_others()
        desk.trigger("taker", start=day(1), end=day(2), take_over=True)
        desk.wait("taker")
        before = desk.entry(day(1))
    first = desk.api.wait_for_run("beside", FIRST, deadline_s=DEADLINE_S)
    return facts, TakenOver(
        planned=desk.log("taker", "plan"),
        first_state=str(first["state"]),
        first_told=desk.log(FIRST, "commit"),
        before=before,
        after=desk.entry(day(1)),
        rows=desk.rows(),
        expected=desk.expected(1, topic="short"),
    )


def others(desk: Desk) -> Beside:
    """Trigger with the dates of the run under way and without any, another DAG's schedule, another pipeline."""
    held = desk.entry(day(1))
    desk.trigger("with_dates", start=day(1), end=day(2))
    desk.trigger("without_dates")
    for dag in ("beside_twin", "stranger"):
        desk.switch(on=True, dag=dag)
    desk.trigger("strange", dag="stranger", start=day(1), end=day(2))
    desk.wait_for_appearance(FIRST, dag="beside_twin")
    runs = {
        "with_dates": "beside",
        "without_dates": "beside",
        FIRST: "beside_twin",
        "strange": "stranger",
    }
    ends = {
        run: str(desk.api.wait_for_run(dag, run, deadline_s=DEADLINE_S)["state"])
        for run, dag in runs.items()
    }
    return Beside(
        held=held,
        still_held=desk.entry(day(1)),
        without_dates=desk.entry(day(2)),
        plans={run: desk.log(run, "plan", dag=dag) for run, dag in runs.items()},
        ends=ends,
        commits={run: desk.log(run, "commit", dag=dag) for run, dag in runs.items()},
        submits=len(desk.submits),
    )


@pytest.fixture(scope="session")
def under_way(beside: tuple[Beside, TakenOver]) -> Beside:
    return beside[0]


@pytest.fixture(scope="session")
def taken_over(beside: tuple[Beside, TakenOver]) -> TakenOver:
    return beside[1]


HELD = f"held by beside / {FIRST}: [2013-01-01T00:00:00.000Z, 2013-01-02T00:00:00.000Z); left out"


def test_trigger_with_the_dates_of_a_run_under_way_leaves_them_out_says_who_has_them_and_is_green(
    under_way: Beside,
) -> None:
    assert HELD in under_way.plans["with_dates"]
    assert f"granted to beside / {FIRST}" in under_way.commits["with_dates"]
    assert under_way.ends["with_dates"] == "success"
    assert under_way.still_held == under_way.held


def test_trigger_without_dates_beside_a_run_under_way_takes_what_comes_after_it(
    under_way: Beside,
) -> None:
    assert under_way.ends["without_dates"] == "success"
    assert under_way.without_dates.committed is not None
    assert under_way.without_dates.committed.request.run == "without_dates"
    assert under_way.still_held == under_way.held


def test_second_dag_of_the_same_pipeline_on_one_lake_is_safe_and_leaves_out_what_the_first_has(
    under_way: Beside,
) -> None:
    assert HELD in under_way.plans[FIRST]
    assert under_way.ends[FIRST] == "success"
    assert under_way.submits == 1


def test_second_pipeline_on_the_same_lake_is_refused_with_both_names(under_way: Beside) -> None:
    assert under_way.ends["strange"] == "failed"
    told = under_way.plans["strange"]
    assert "invalid_pipeline: s3://lake/beside is the lake of pipeline 'beside'" in told
    assert "not of 'stranger'" in told


def test_take_over_cancels_the_grant_of_a_running_run_and_commits(taken_over: TakenOver) -> None:
    assert f"cancelled: the grant of beside / {FIRST}" in taken_over.planned
    assert taken_over.before.committed is not None
    assert taken_over.before.committed.request.run == "taker"


def test_run_that_was_taken_over_ends_superseded_and_changes_nothing(
    taken_over: TakenOver,
) -> None:
    assert taken_over.first_state == "failed"
    assert "superseded: " in taken_over.first_told
    assert taken_over.after == taken_over.before
    assert taken_over.rows == taken_over.expected
