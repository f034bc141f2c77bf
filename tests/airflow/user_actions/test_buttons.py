"""User actions: Trigger, Clear and Backfill, pressed in a browser on Airflow's pages, as a person presses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from support.airflow_pages import Pages, Pressed, open_pages
from support.user_action_driver import DEADLINE_S, Driver
from support.user_action_project import Row, day
from support.user_action_scenarios import EVERY_TEST, scenario
from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.format.root import Root
from tallystick.operations.run_request import defaults
from tallystick_devstack.airflow_api import backfill_body, clear_body, trigger_body

pytestmark = EVERY_TEST
DAG = "buttons"
SCHEDULED = f"scheduled__{day(2).isoformat()}"
TASKS = ("plan", "stage", "commit")
# A run that ends well and one that fails: a page of Airflow costs seconds of CPU.
PICTURED = ("trigger", "inverted")
SPAN = {"from": "2013-01-01", "to": "2013-01-02"}
INVERTED = {"from": "2013-01-03", "to": "2013-01-02"}


@dataclass(frozen=True)
class Step:
    """A pressed button, the final state of its run, and the lake before and after."""

    pressed: Pressed
    state: str
    planned: str
    before: Root
    after: Root
    entries: tuple[Entry, ...]
    submits: int
    run: dict[str, Any]


@dataclass(frozen=True)
class Buttons:
    """All pressed buttons by name, and the rows at the end."""

    steps: dict[str, Step]
    rows: list[Row]
    expected: list[Row]


@scenario("buttons")
def buttons(driver: Driver) -> Buttons:
    """Catch up day 1; then press Clear on each task, Backfill twice and Trigger four times, in a browser."""
    steps: dict[str, Step] = {}
    with open_pages(driver.api, DAG) as pages:
        driver.switch(on=True)
        driver.wait_for_appearance(SCHEDULED)
        driver.wait(SCHEDULED)

        def press(name: str, button: Callable[[], Pressed], run_id: str = "") -> None:
            before, submits = driver.root, len(driver.submits)
            pressed = button()
            steps[name] = step(driver, pages, name, pressed, run_id, before, submits)

        for task in reversed(TASKS):
            name = f"clear-{task}"
            press(name, lambda t=task, n=name: pages.clear(DAG, SCHEDULED, t, n), SCHEDULED)  # type: ignore[misc]
        two_days = (day(2), day(3))
        press("backfill", lambda: pages.backfill(DAG, "backfill", *two_days, {}), backfilled(2))
        driver.wait(backfilled(3))
        # Airflow allows one backfill of a DAG at a time, and closes it shortly after its last run.
        driver.api.wait_for_backfill(
            int(steps["backfill"].pressed.answer["id"]), deadline_s=DEADLINE_S
        )
        press(
            "backfill-span",
            lambda: pages.backfill(DAG, "backfill-span", day(4), day(4), SPAN, override=True),
            backfilled(4),
        )
        for name, form in (
            ("trigger", {}),
            ("replace", {"mode": "replace", **SPAN}),
            ("replace-without-span", {"mode": "replace"}),
            ("inverted", INVERTED),
        ):
            press(name, lambda n=name, f=form: pages.trigger(DAG, n, f))  # type: ignore[misc]
    return Buttons(steps, driver.rows(), driver.expected(1, topic="short"))


def step(
    driver: Driver,
    pages: Pages,
    name: str,
    pressed: Pressed,
    run_id: str,
    before: Root,
    submits: int,
) -> Step:
    """Wait for the end of the run whose button was pressed, and read its state and the lake."""
    run_id = run_id or pressed.run_id
    driver.wait_for_appearance(run_id)
    ended = driver.api.wait_for_run(DAG, run_id, deadline_s=DEADLINE_S)
    if name in PICTURED:
        pages.show_run(DAG, run_id, f"{name}-run")
    return Step(
        pressed=pressed,
        state=str(ended["state"]),
        planned=driver.log(run_id, "plan"),
        before=before,
        after=driver.root,
        entries=driver.entries,
        submits=len(driver.submits) - submits,
        run=ended,
    )


def backfilled(number: int) -> str:
    """Return the id of the backfill run of one day."""
    return f"backfill__{day(number + 1).isoformat()}"


def test_trigger_pressed_as_the_form_proposes_commits_from_where_the_ledger_ends_to_now(
    buttons: Buttons,
) -> None:
    """The form proposes a logical date after the DAG's end_date. Once, a run with this date was green without a task."""
    step = buttons.steps["trigger"]
    assert step.state == "success"
    proposed = datetime.fromisoformat(step.pressed.sent["logical_date"])
    (new,) = [e for e in step.entries if e.interval.start == day(4)]
    assert new.interval.end == proposed
    assert new.committed is not None
    assert new.committed.request.run == step.pressed.run_id


def test_replace_pressed_with_a_span_replaces_that_span(buttons: Buttons) -> None:
    step = buttons.steps["replace"]
    assert step.state == "success"
    generations = {e.interval.start: e.generation for e in step.entries}
    assert generations[day(1)] == 2
    assert {generations[day(n)] for n in (2, 3, 4)} == {1}
    assert step.submits == 1
    assert buttons.rows == buttons.expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("inverted", "from=2013-01-03T00:00:00.000Z is not before to=2013-01-02T00:00:00.000Z"),
        ("replace-without-span", "mode=replace is set without dates"),
        ("backfill-span", "a backfill has the parameters"),
    ],
)
def test_impossible_form_is_refused_with_a_message_and_changes_nothing(
    buttons: Buttons, name: str, message: str
) -> None:
    step = buttons.steps[name]
    assert step.state == "failed"
    assert message in step.planned
    assert step.after == step.before
    assert step.submits == 0


@pytest.mark.parametrize("task", TASKS)
def test_clear_pressed_on_each_task_after_the_commit_changes_nothing(
    buttons: Buttons, task: str
) -> None:
    step = buttons.steps[f"clear-{task}"]
    assert step.state == "success"
    assert step.after == step.before
    assert step.submits == 0
    assert len(step.pressed.answer["task_instances"]) == len(TASKS) - TASKS.index(task)


def test_backfill_pressed_commits_each_of_its_days_once(buttons: Buttons) -> None:
    step = buttons.steps["backfill"]
    assert step.state == "success"
    entries = buttons.steps["trigger"].entries
    days = {e.interval.start: e for e in entries if e.committed}
    for number in (2, 3):
        committed = days[day(number)].committed
        assert committed is not None
        assert (days[day(number)].generation, committed.request.run) == (1, backfilled(number))


def test_request_bodies_of_the_demo_equal_those_of_the_pages(buttons: Buttons) -> None:
    """The demo presses its buttons without a browser. Its request bodies must be exactly those of the pages."""
    sent = {name: step.pressed.sent for name, step in buttons.steps.items()}
    for name, form in (("trigger", {}), ("replace", {"mode": "replace", **SPAN})):
        at = datetime.fromisoformat(sent[name]["logical_date"]).astimezone(UTC)
        assert sent[name] == trigger_body({**defaults(), **form}, at=at)
    for task in TASKS:
        assert sent[f"clear-{task}"] == clear_body(SCHEDULED, [task])
    assert sent["backfill"] == backfill_body(DAG, day(2), day(3))
    assert sent["backfill-span"] == backfill_body(DAG, day(4), day(4), conf={**defaults(), **SPAN})


def test_logical_date_remains_the_end_of_the_run(buttons: Buttons) -> None:
    """A clear requests the same: the date is stored by Airflow, and no schedule gives such a run an interval."""
    run = buttons.steps["trigger"].run
    dates = {run["logical_date"], run["data_interval_start"], run["data_interval_end"]}
    assert {keys.instant(datetime.fromisoformat(at)) for at in dates} == {
        keys.instant(datetime.fromisoformat(buttons.steps["trigger"].pressed.sent["logical_date"]))
    }
