"""The clear number of a run, as its tasks read it on a real scheduler: docs/design/0002-airflow-identity.md.

The identity of a request is (dag id, run id, clear number), so these are claims about Airflow itself: an upgrade that
breaks one of them breaks tallystick.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.user_action_driver import ActionStack
from support.user_action_scenarios import EVERY_TEST, Scenarios
from tallystick.errors import InvalidRequest
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.process import wait_until

pytestmark = EVERY_TEST
DAG_ID = "three"
DONE_S = 180
# The only client polls now.
POLL_S = 0.5
SOURCE = '''
import json, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from airflow.sdk import DAG, task
from airflow.timetables.interval import CronDataIntervalTimetable

FOLDER = Path("@FOLDER@")

def note(context):
    """Record what this try reads; then fail or wait if a file requests it."""
    ti, run = context["ti"], context["dag_run"]
    seen = {"run": run.run_id, "task": ti.task_id, "try": ti.try_number, "clear": run.clear_number,
            "type": str(run.run_type.value), "conf": run.conf, "attempt": str(ti.id)}
    with (FOLDER / "notes.jsonl").open("a") as file:
        file.write(json.dumps(seen) + "\\n")
    fail = FOLDER / f"fail-{ti.task_id}"
    if fail.exists():
        fail.unlink()
        raise RuntimeError("as requested")
    while (FOLDER / f"hold-{ti.task_id}").exists():
        time.sleep(0.1)

with DAG(
    "three",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 2, tzinfo=UTC),
    catchup=True,
    default_args={"retries": 1, "retry_delay": timedelta(0)},
):
    @task(task_id="plan")
    def plan(**context): note(context)
    @task(task_id="stage")
    def stage(**context): note(context)
    @task(task_id="commit")
    def commit(**context): note(context)
    plan() >> stage() >> commit()
'''


@dataclass
class RunDriver:
    """One run, and the folder through which the test and its tasks exchange files."""

    folder: Path
    airflow: AirflowApi
    run_id: str = ""
    _returned: int = field(default=0)

    def clears(self) -> list[tuple[str, int]]:
        """Wait for the success of the run, and return (task, clear number) of each try since the last call."""
        assert (
            self.airflow.wait_for_run(DAG_ID, self.run_id, deadline_s=DONE_S)["state"] == "success"
        )
        return [(str(note["task"]), int(str(note["clear"]))) for note in self.notes()]

    def notes(self, *, forget: bool = True) -> list[dict[str, object]]:
        """Return the notes of this run since the last call."""
        path = self.folder / "notes.jsonl"
        lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        own = [line for line in lines if line["run"] == self.run_id]
        new = own[self._returned :]
        self._returned = len(own) if forget else self._returned
        return new

    def wait_for(self, task_id: str, tries: int = 1) -> None:
        """Wait until a task has started `tries` times since the last call of `notes`."""
        wait_until(
            lambda: sum(note["task"] == task_id for note in self.notes(forget=False)) >= tries,
            deadline_s=DONE_S,
            what=f"try {tries} of {task_id}",
        )

    def number(self) -> int:
        """Return the run's clear number, read by a task: this clears `commit`, so the number is one higher afterwards."""
        self.airflow.clear_tasks(DAG_ID, self.run_id, ["commit"])
        return self.clears()[-1][1] - 1


@pytest.fixture(scope="module")
def driver_folder(
    action_stack: ActionStack, scenarios: Scenarios, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Add this file's DAG when every scenario has ended: their tasks would take the slots of these short ones."""
    scenarios.wait_for_all()
    folder = tmp_path_factory.mktemp("driver")
    dag_file = action_stack.project / "dags" / f"{DAG_ID}.py"
    dag_file.write_text(SOURCE.replace("@FOLDER@", str(folder)))
    airflow = action_stack.local.airflow.api()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick_devstack.airflow_api._POLL_S", POLL_S)
        airflow.wait_for_dag(DAG_ID, deadline_s=DONE_S)
        airflow.set_paused(DAG_ID, paused=False)
        yield folder


@pytest.fixture(scope="module")
def drivers(
    action_stack: ActionStack, driver_folder: Path, request: pytest.FixtureRequest
) -> Iterator[RunDriver]:
    """Create a manual run for each test that has one, all at once, and wait until all have succeeded."""
    api = action_stack.local.airflow.api()
    tests = [
        item
        for item in request.session.items
        if item.path == request.path and "driver" in getattr(item, "fixturenames", ())
    ]
    runs = [str(api.trigger(DAG_ID)["dag_run_id"]) for _ in tests]
    created = [RunDriver(driver_folder, api, run_id) for run_id in runs]
    for driver in created:
        assert driver.clears() == [("plan", 0), ("stage", 0), ("commit", 0)]
    return iter(created)


@pytest.fixture
def driver(drivers: Iterator[RunDriver], driver_folder: Path) -> Iterator[RunDriver]:
    """Return a manual run of this test alone, which has succeeded."""
    yield next(drivers)
    for path in driver_folder.glob("hold-*"):
        path.unlink()


@pytest.fixture
def scheduled(action_stack: ActionStack, driver_folder: Path) -> list[RunDriver]:
    """Return the two scheduled runs, with their notes read."""
    api = action_stack.local.airflow.api()

    def runs() -> list[str]:
        return [
            f"{run['dag_run_id']}" for run in api.runs(DAG_ID) if run["logical_date"] is not None
        ]

    wait_until(lambda: len(runs()) == 2, deadline_s=DONE_S, what="two scheduled runs")
    drivers = [RunDriver(driver_folder, api, run_id) for run_id in runs()]
    for driver in drivers:
        driver.clears()
    return drivers


def test_a_clear_of_the_whole_run_raises_the_number_once_for_all_tasks(driver: RunDriver) -> None:
    driver.airflow.clear_run(DAG_ID, driver.run_id)
    assert driver.clears() == [("plan", 1), ("stage", 1), ("commit", 1)]


def test_a_clear_of_one_task_raises_the_number_and_the_tasks_before_it_do_not_run(
    driver: RunDriver,
) -> None:
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    assert driver.clears() == [("stage", 1), ("commit", 1)]
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["commit"])
    assert driver.clears() == [("commit", 2)]


def test_an_automatic_retry_keeps_the_number_and_is_a_new_attempt(driver: RunDriver) -> None:
    (driver.folder / "fail-stage").touch()
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    assert (
        driver.airflow.wait_for_run(DAG_ID, driver.run_id, deadline_s=DONE_S)["state"] == "success"
    )
    stages = [note for note in driver.notes() if note["task"] == "stage"]
    assert [(note["try"], note["clear"]) for note in stages] == [(2, 1), (3, 1)]
    assert stages[0]["attempt"] != stages[1]["attempt"]


def test_a_clear_of_a_running_task_is_refused_by_default_and_keeps_the_number(
    driver: RunDriver,
) -> None:
    (driver.folder / "hold-stage").touch()
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    driver.wait_for("stage")
    with pytest.raises(InvalidRequest, match="prevent_running_task"):
        driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    (driver.folder / "hold-stage").unlink()
    assert driver.clears() == [("stage", 1), ("commit", 1)]
    assert driver.number() == 1


def test_a_clear_of_a_running_task_raises_the_number_for_the_next_try_only(
    driver: RunDriver,
) -> None:
    (driver.folder / "hold-stage").touch()
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    driver.wait_for("stage")
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"], prevent_running=False)
    driver.wait_for("stage", 2)
    (driver.folder / "hold-stage").unlink()
    assert driver.clears() == [("stage", 1), ("stage", 2), ("commit", 2)]


def test_a_task_that_runs_during_a_clear_of_another_keeps_the_old_number(driver: RunDriver) -> None:
    (driver.folder / "hold-stage").touch()
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    driver.wait_for("stage")
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["plan"], downstream=False)
    driver.wait_for("plan")
    (driver.folder / "hold-stage").unlink()
    assert driver.clears() == [("stage", 1), ("plan", 2), ("commit", 2)]


def test_marking_a_run_or_task_keeps_the_number(driver: RunDriver) -> None:
    for state in ("failed", "success"):
        driver.airflow.mark_run(DAG_ID, driver.run_id, state)
        driver.airflow.mark_task(DAG_ID, driver.run_id, "commit", state)
    assert driver.notes() == []
    assert driver.number() == 0


def test_clears_at_the_same_moment_may_share_one_number_and_never_lower_it(
    driver: RunDriver,
) -> None:
    """Airflow reads, adds one and writes: of three accepted clears that overlap, possibly only one is counted."""

    def clear(task_id: str) -> None:
        driver.airflow.clear_tasks(
            DAG_ID, driver.run_id, [task_id], downstream=False, prevent_running=False
        )

    threads = [
        threading.Thread(target=clear, args=(task_id,)) for task_id in ("plan", "stage", "commit")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [number for _, number in driver.clears()]
    assert all(1 <= number <= 3 for number in seen)
    assert Counter(seen).total() >= 3
    assert 1 <= driver.number() <= 3


def test_a_clear_that_does_not_reset_the_run_keeps_the_number(driver: RunDriver) -> None:
    """No button sends `reset_dag_runs: false`, but the REST API accepts it: the rerun is the same request as before."""
    (driver.folder / "hold-stage").touch()
    driver.airflow.clear_tasks(DAG_ID, driver.run_id, ["stage"])
    driver.wait_for("stage")
    body = {"dry_run": False, "only_failed": False, "reset_dag_runs": False}
    path = f"/dags/{DAG_ID}/clearTaskInstances"
    driver.airflow.call("POST", path, body | {"dag_run_id": driver.run_id, "task_ids": ["plan"]})
    driver.wait_for("plan")
    (driver.folder / "hold-stage").unlink()
    assert driver.clears() == [("stage", 1), ("plan", 1), ("commit", 1)]


def backfill(
    drivers: list[RunDriver], reprocess: str, conf: dict[str, object] | None = None
) -> list[list[tuple[str, int]]]:
    """Backfill both days, and return the clears of each."""
    first, last = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
    api = drivers[0].airflow
    created = api.create_backfill(DAG_ID, first, last, reprocess=reprocess, conf=conf)  # type: ignore[arg-type]
    api.wait_for_backfill(created["id"], deadline_s=DONE_S)
    return [driver.clears() for driver in drivers]


def test_backfill_raises_the_number_of_the_runs_that_it_reprocesses_only(
    scheduled: list[RunDriver],
) -> None:
    first, second = scheduled
    number = first.number() + 1
    assert second.number() + 1 == number
    assert backfill(scheduled, "none") == [[], []]
    assert backfill(scheduled, "failed") == [[], []]
    first.airflow.mark_run(DAG_ID, first.run_id, "failed")
    tasks = ("plan", "stage", "commit")
    assert backfill(scheduled, "failed") == [[(task, number + 1) for task in tasks], []]
    both = backfill(scheduled, "completed", {"why": "again"})
    assert both == [[(task, number + 2) for task in tasks], [(task, number + 1) for task in tasks]]
    for driver in scheduled:
        run = driver.airflow.run(DAG_ID, driver.run_id)
        assert (run["run_type"], run["conf"]) == ("backfill", {"why": "again"})
        assert driver.run_id.startswith("scheduled__")
