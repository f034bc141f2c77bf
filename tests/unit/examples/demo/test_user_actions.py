"""The demo evaluates Airflow's runs, and reports a user action with an unexpected result."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from examples.demo.console import Console
from examples.demo.lake_state import LakeReader
from examples.demo.pipelines import FLIGHTS
from examples.demo.user_actions import ActionFailedError, UserActions, _latest_first, _most_at_once
from examples.demo.workspace import Workspace
from tallystick.errors import SettingsError
from tallystick_devstack.airflow_api import AirflowApi


def run(logical_date: str, start: int, end: int) -> dict[str, Any]:
    return {
        "logical_date": f"2013-01-{logical_date}T00:00:00Z",
        "start_date": f"2026-01-01T00:00:{start:02}Z",
        "end_date": f"2026-01-01T00:00:{end:02}Z",
    }


BACKWARDS = [run("01", 25, 40), run("02", 12, 30), run("03", 10, 20)]


def test_a_backfill_that_runs_backwards_begins_with_the_latest_day() -> None:
    assert _latest_first(BACKWARDS)
    assert not _latest_first([run("01", 10, 20), run("02", 12, 30), run("03", 25, 40)])


@pytest.mark.parametrize(
    ("runs", "most"),
    [
        (BACKWARDS, 2),
        ([run("01", 10, 20), run("02", 20, 30)], 1),
        ([run("01", 10, 20), run("02", 11, 30), run("03", 12, 13)], 3),
    ],
)
def test_the_largest_number_of_concurrent_runs_is_counted(
    runs: list[dict[str, Any]], most: int
) -> None:
    assert _most_at_once(runs) == most


class EmptyAirflow:
    """An Airflow whose DAG never appears."""

    def wait_for_dag(self, dag_id: str, *, deadline_s: float) -> None:
        raise SettingsError(f"DAG {dag_id} was not found.", hint="wait.")


def failing_actions(folder: Path) -> UserActions:
    """Return the user actions of the main pipeline on that Airflow."""
    console, api = Console(), cast("AirflowApi", EmptyAirflow())
    workspace, lake = Workspace(folder, console, FLIGHTS), cast("LakeReader", None)
    return UserActions(FLIGHTS, api, lake, workspace, console, master="local[2,4]")


def test_a_failed_action_is_a_step_and_ends_the_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    actions = failing_actions(tmp_path)
    with pytest.raises(SettingsError):
        actions.run_all()
    (step,) = actions.steps
    assert (step.action, step.passed) == ("schedule", False)
    assert "[schedule] BAD: DAG flights was not found." in capsys.readouterr().out


def test_a_failed_run_fails_the_action(tmp_path: Path) -> None:
    actions = failing_actions(tmp_path)
    with pytest.raises(ActionFailedError, match="failed: one"):
        actions._expect_success(
            [{"dag_run_id": "one", "state": "failed"}, {"dag_run_id": "two", "state": "success"}]
        )
