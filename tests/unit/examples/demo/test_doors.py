"""How the demo reads Airflow's runs, and how a door that jams is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from examples.demo.doors import DoorJammed, Doors, _latest_first, _most_at_once
from examples.demo.example import FLIGHTS
from examples.demo.ground import Ground
from examples.demo.sight import Watcher
from examples.demo.story import Story
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
def test_how_many_runs_were_running_at_once(runs: list[dict[str, Any]], most: int) -> None:
    assert _most_at_once(runs) == most


class JammedApi:
    """An Airflow whose DAG never appears."""

    def wait_for_dag(self, dag_id: str, *, deadline_s: float) -> None:
        raise SettingsError(f"DAG {dag_id} was not seen.", hint="look.")


def jammed(folder: Path) -> Doors:
    """The doors of the main job at that Airflow."""
    story, api = Story(), cast("AirflowApi", JammedApi())
    ground, watcher = Ground(folder, story, FLIGHTS), cast("Watcher", None)
    return Doors(FLIGHTS, api, watcher, ground, story, master="local[2,4]")


def test_a_door_that_jams_is_among_the_deeds_and_ends_the_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doors = jammed(tmp_path)
    with pytest.raises(SettingsError):
        doors.pull_all()
    (deed,) = doors.deeds
    assert (deed.door, deed.held) == ("schedule", False)
    assert "[schedule] BAD: DAG flights was not seen." in capsys.readouterr().out


def test_a_failed_run_jams_the_door(tmp_path: Path) -> None:
    doors = jammed(tmp_path)
    with pytest.raises(DoorJammed, match="failed: one"):
        doors._expect_green(
            [{"dag_run_id": "one", "state": "failed"}, {"dag_run_id": "two", "state": "success"}]
        )
