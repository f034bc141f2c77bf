"""What a task sees of the clear number of its run, on a real scheduler: docs/design/0002-airflow-identity.md.

Request = (dag id, run id, clear number) is the identity of a wish, so these are claims about Airflow itself: an upgrade
that breaks one of them breaks ours.
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

from support.airflow_stack import RunningStack, airflow_stack  # noqa: F401
from tallystick.errors import InvalidRequest
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.process import wait_until

DAG_ID = "three"
DONE_S = 180
SOURCE = '''
import json, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from airflow.sdk import DAG, task
from airflow.timetables.interval import CronDataIntervalTimetable

DESK = Path("@DESK@")

def note(context):
    """Write down what this try sees; then fail or wait where a file asks for it."""
    ti, run = context["ti"], context["dag_run"]
    seen = {"run": run.run_id, "task": ti.task_id, "try": ti.try_number, "clear": run.clear_number,
            "type": str(run.run_type.value), "conf": run.conf, "attempt": str(ti.id)}
    with (DESK / "notes.jsonl").open("a") as file:
        file.write(json.dumps(seen) + "\\n")
    fail = DESK / f"fail-{ti.task_id}"
    if fail.exists():
        fail.unlink()
        raise RuntimeError("as asked")
    while (DESK / f"hold-{ti.task_id}").exists():
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
class Desk:
    """The folder through which tests and tasks talk to each other."""

    folder: Path
    airflow: AirflowApi
    run_id: str = ""
    _told: int = field(default=0)

    def clears(self) -> list[tuple[str, int]]:
        """(task, clear number) of each try since the last call, once the run has ended well."""
        assert (
            self.airflow.wait_for_run(DAG_ID, self.run_id, deadline_s=DONE_S)["state"] == "success"
        )
        return [(str(note["task"]), int(str(note["clear"]))) for note in self.notes()]

    def notes(self, *, forget: bool = True) -> list[dict[str, object]]:
        """Notes of this desk's run since the last call."""
        path = self.folder / "notes.jsonl"
        lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        mine = [line for line in lines if line["run"] == self.run_id]
        fresh = mine[self._told :]
        self._told = len(mine) if forget else self._told
        return fresh

    def wait_for(self, task_id: str, tries: int = 1) -> None:
        """Wait until a task has been seen that often since the last call of `notes`."""
        wait_until(
            lambda: sum(note["task"] == task_id for note in self.notes(forget=False)) >= tries,
            deadline_s=DONE_S,
            what=f"try {tries} of {task_id}",
        )

    def number(self) -> int:
        """The run's clear number now, as the next task to start sees it: clears `commit`, so it is one more after."""
        self.airflow.clear_tasks(DAG_ID, self.run_id, ["commit"])
        return self.clears()[-1][1] - 1


@pytest.fixture(scope="module")
def desk_folder(
    airflow_stack: RunningStack,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    airflow_stack.add_dag(DAG_ID, SOURCE.replace("@DESK@", str(folder)))
    return folder


@pytest.fixture
def desk(airflow_stack: RunningStack, desk_folder: Path) -> Iterator[Desk]:  # noqa: F811
    """A manual run of its own for each test, ended well."""
    made = Desk(desk_folder, airflow_stack.airflow)
    made.run_id = made.airflow.trigger(DAG_ID)["dag_run_id"]
    assert made.clears() == [("plan", 0), ("stage", 0), ("commit", 0)]
    yield made
    for path in desk_folder.glob("hold-*"):
        path.unlink()


@pytest.fixture
def scheduled(airflow_stack: RunningStack, desk_folder: Path) -> list[Desk]:  # noqa: F811
    """The two runs that the schedule made, each with its notes read."""
    api = airflow_stack.airflow

    def runs() -> list[str]:
        return [
            f"{run['dag_run_id']}" for run in api.runs(DAG_ID) if run["logical_date"] is not None
        ]

    wait_until(lambda: len(runs()) == 2, deadline_s=DONE_S, what="two scheduled runs")
    desks = [Desk(desk_folder, api, run_id) for run_id in runs()]
    for desk in desks:
        desk.clears()
    return desks


def test_a_clear_of_the_whole_run_raises_it_once_for_all_tasks(desk: Desk) -> None:
    desk.airflow.clear_run(DAG_ID, desk.run_id)
    assert desk.clears() == [("plan", 1), ("stage", 1), ("commit", 1)]


def test_a_clear_of_one_task_raises_it_and_the_tasks_before_do_not_run(desk: Desk) -> None:
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    assert desk.clears() == [("stage", 1), ("commit", 1)]
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["commit"])
    assert desk.clears() == [("commit", 2)]


def test_an_automatic_retry_leaves_it_alone_and_is_an_attempt_of_its_own(desk: Desk) -> None:
    (desk.folder / "fail-stage").touch()
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    assert desk.airflow.wait_for_run(DAG_ID, desk.run_id, deadline_s=DONE_S)["state"] == "success"
    stages = [note for note in desk.notes() if note["task"] == "stage"]
    assert [(note["try"], note["clear"]) for note in stages] == [(2, 1), (3, 1)]
    assert stages[0]["attempt"] != stages[1]["attempt"]


def test_a_clear_of_a_running_task_is_refused_by_default_and_leaves_it_alone(desk: Desk) -> None:
    (desk.folder / "hold-stage").touch()
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    desk.wait_for("stage")
    with pytest.raises(InvalidRequest, match="prevent_running_task"):
        desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    (desk.folder / "hold-stage").unlink()
    assert desk.clears() == [("stage", 1), ("commit", 1)]
    assert desk.number() == 1


def test_a_clear_of_a_running_task_raises_it_for_the_next_try_only(desk: Desk) -> None:
    (desk.folder / "hold-stage").touch()
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    desk.wait_for("stage")
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"], prevent_running=False)
    desk.wait_for("stage", 2)
    (desk.folder / "hold-stage").unlink()
    assert desk.clears() == [("stage", 1), ("stage", 2), ("commit", 2)]


def test_a_task_that_runs_during_a_clear_of_another_keeps_the_old_number(desk: Desk) -> None:
    (desk.folder / "hold-stage").touch()
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    desk.wait_for("stage")
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["plan"], downstream=False)
    desk.wait_for("plan")
    (desk.folder / "hold-stage").unlink()
    assert desk.clears() == [("stage", 1), ("plan", 2), ("commit", 2)]


def test_marks_leave_it_alone(desk: Desk) -> None:
    for state in ("failed", "success"):
        desk.airflow.mark_run(DAG_ID, desk.run_id, state)
        desk.airflow.mark_task(DAG_ID, desk.run_id, "commit", state)
    assert desk.notes() == []
    assert desk.number() == 0


def test_clears_at_the_same_moment_may_share_one_number_and_never_lower_it(desk: Desk) -> None:
    """Airflow reads, adds one and writes: of three clears that overlap, all accepted, one may be counted."""

    def clear(task_id: str) -> None:
        desk.airflow.clear_tasks(
            DAG_ID, desk.run_id, [task_id], downstream=False, prevent_running=False
        )

    threads = [
        threading.Thread(target=clear, args=(task_id,)) for task_id in ("plan", "stage", "commit")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [number for _, number in desk.clears()]
    assert all(1 <= number <= 3 for number in seen)
    assert Counter(seen).total() >= 3
    assert 1 <= desk.number() <= 3


def test_a_clear_that_does_not_reset_the_run_leaves_it_alone(desk: Desk) -> None:
    """No button sends `reset_dag_runs: false`, the REST API takes it: the rerun is the same wish as before."""
    (desk.folder / "hold-stage").touch()
    desk.airflow.clear_tasks(DAG_ID, desk.run_id, ["stage"])
    desk.wait_for("stage")
    body = {"dry_run": False, "only_failed": False, "reset_dag_runs": False}
    path = f"/dags/{DAG_ID}/clearTaskInstances"
    desk.airflow.call("POST", path, body | {"dag_run_id": desk.run_id, "task_ids": ["plan"]})
    desk.wait_for("plan")
    (desk.folder / "hold-stage").unlink()
    assert desk.clears() == [("stage", 1), ("plan", 1), ("commit", 1)]


def backfill(
    desks: list[Desk], reprocess: str, conf: dict[str, object] | None = None
) -> list[list[tuple[str, int]]]:
    """Backfill both days and return what the tasks of each saw."""
    first, last = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
    api = desks[0].airflow
    made = api.create_backfill(DAG_ID, first, last, reprocess=reprocess, conf=conf)  # type: ignore[arg-type]
    api.wait_for_backfill(made["id"], deadline_s=DONE_S)
    return [desk.clears() for desk in desks]


def test_backfill_reprocessing_raises_it_where_it_runs_again_and_nowhere_else(
    scheduled: list[Desk],
) -> None:
    one, two = scheduled
    again = one.number() + 1
    assert two.number() + 1 == again
    assert backfill(scheduled, "none") == [[], []]
    assert backfill(scheduled, "failed") == [[], []]
    one.airflow.mark_run(DAG_ID, one.run_id, "failed")
    tasks = ("plan", "stage", "commit")
    assert backfill(scheduled, "failed") == [[(task, again + 1) for task in tasks], []]
    both = backfill(scheduled, "completed", {"why": "again"})
    assert both == [[(task, again + 2) for task in tasks], [(task, again + 1) for task in tasks]]
    for desk in scheduled:
        run = desk.airflow.run(DAG_ID, desk.run_id)
        assert (run["run_type"], run["conf"]) == ("backfill", {"why": "again"})
        assert desk.run_id.startswith("scheduled__")
