"""`tally local logs` on an Airflow that answers from values: what is shown first, what is left out, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from support.local_stack import running_stack, use_stack
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.commands import logs
from tallystick_devstack.task_logs import log_lines
from unit.cli.invoke import tally, tally_json

FIRST, SECOND = "scheduled__2015-09-12T01:00:00+00:00", "scheduled__2015-09-12T02:00:00+00:00"
HOUSE = "tallystick.airflow.outcome"


def event(text: str, *, level: str = "info", logger: str = "task", **more: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-25T16:52:50.602Z",
        "event": text,
        "level": level,
        "logger": logger,
        **more,
    }


def frame(filename: str) -> dict[str, Any]:
    return {"filename": filename, "lineno": 7, "name": "f"}


OWN_ERROR = [
    event("::group::Pre Execute"),
    event("Filling up the DagBag"),
    event("::endgroup::"),
    event("old pattern", level="warning", logger="py.warnings"),
    event("pipeline wiki, mode process"),
    event("identity_changed: topic 'wikitickr' does not exist.", level="error", logger=HOUSE),
    event("Next: check the topic's name.", level="error", logger=HOUSE),
    event(
        "Task failed with exception",
        level="error",
        error_detail=[
            {"exc_type": "AirflowFailException", "exc_value": "again", "frames": [frame("/a.py")]}
        ],
    ),
]
OTHER_ERROR = [
    event(
        "Task failed with exception",
        level="error",
        error_detail=[
            {
                "exc_type": "ValueError",
                "exc_value": "no rows",
                "frames": [frame("/x/site-packages/airflow/a.py"), frame("/project/dags/wiki.py")],
            },
            {"exc_type": "KeyError", "exc_value": "'edit'", "frames": []},
        ],
    ),
]


class FakeAirflow(AirflowApi):
    """Answers from values; `calls` counts the requests for a run."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "admin", "hidden")
        self.states = {FIRST: "success", SECOND: "failed"}
        self.dag_ids = {"wiki": False, "gc": True}
        self.errors: list[dict[str, Any]] = []
        self.task_list = [self.one("plan", "success"), self.one("stage", "failed", try_number=2)]
        self.events: dict[tuple[str, int], list[Any]] = {
            ("plan", 1): ["a plain line", event("planned 2 ranges")],
            ("stage", 1): OTHER_ERROR,
            ("stage", 2): OWN_ERROR,
        }
        self.steps: list[Mapping[str, Any]] = []

    @staticmethod
    def one(
        task_id: str, state: str, *, try_number: int = 1, map_index: int = -1
    ) -> dict[str, Any]:
        return {
            "task_id": task_id,
            "dag_id": "wiki",
            "dag_run_id": SECOND,
            "map_index": map_index,
            "state": state,
            "try_number": try_number,
            "max_tries": 3,
            "start_date": "2026-11-25T16:52:50.5Z" if try_number else None,
            "end_date": "2026-11-25T16:53:00.75Z" if try_number else None,
        }

    def dags(self) -> list[dict[str, Any]]:
        return [{"dag_id": name, "is_paused": paused} for name, paused in self.dag_ids.items()]

    def import_errors(self) -> list[dict[str, Any]]:
        return self.errors

    def runs(self, dag_id: str, **_: str) -> list[dict[str, Any]]:
        found = self.states if dag_id == "wiki" else {}
        return [
            {
                "dag_run_id": run_id,
                "state": state,
                "run_after": run_id[11:],
                "note": None,
                "data_interval_start": "2015-09-12T01:00:00Z",
                "data_interval_end": "2015-09-12T02:00:00Z",
            }
            for run_id, state in self.states.items()
            if found
        ]

    def latest_run(self, dag_id: str) -> dict[str, Any] | None:
        return self.runs(dag_id)[-1] if self.runs(dag_id) else None

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        if self.steps:
            for name, value in self.steps.pop(0).items():
                setattr(self, name, value)
        return next(run for run in self.runs(dag_id) if run["dag_run_id"] == run_id)

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return deepcopy(self.task_list)

    def tries(
        self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1
    ) -> list[dict[str, Any]]:
        return [
            self.one(task_id, "failed", try_number=n) for name, n in self.events if name == task_id
        ]

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int, *, map_index: int = -1
    ) -> list[Any]:
        return self.events.get((task_id, try_number), [])


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeAirflow:
    api = FakeAirflow()
    monkeypatch.setattr("tallystick_devstack.info.StackInfo.airflow", lambda _: api)
    monkeypatch.setattr(logs, "_FOLLOW_S", 0.0)
    use_stack(monkeypatch, running_stack(tmp_path, airflow_url="http://127.0.0.1:1"))
    return api


def test_without_a_dag_the_dags_and_the_files_that_are_broken_are_listed(
    airflow: FakeAirflow,
) -> None:
    airflow.errors = [{"filename": "x.py", "stack_trace": "Traceback\n  File\nNameError: nope\n"}]
    text = tally("local", "logs").stdout
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [
        ["wiki", "no", "failed"],
        ["gc", "yes", "no"],
    ]
    assert SECOND in text
    assert "Not imported: x.py: NameError: nope" in text
    form = tally_json("local", "logs")
    assert form["import_errors"] == [{"file": "x.py", "why": "NameError: nope"}]
    airflow.dag_ids = {}
    assert "No DAGs yet. Next: copy a DAG file to dags/" in tally("local", "logs").stdout


def test_the_error_of_the_latest_run_comes_first_and_airflows_own_lines_are_left_out(
    airflow: FakeAirflow,
) -> None:
    result = tally("local", "logs", "wiki")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    head = f"DAG wiki, run {SECOND}: failed, interval 2015-09-12 01:00 to 2015-09-12 02:00 task"
    assert " ".join(result.stdout.split()).startswith(head)
    first = result.stdout.split("---", maxsplit=1)[0]
    assert "stage  failed   2 of 4  2026-11-25 16:52:50.500" in first
    assert (
        "stage failed:\n  identity_changed: topic 'wikitickr' does not exist.\n  Next: check the topic's name.\n"
        in first
    )
    assert "--- plan, try 1 of 4: success" in lines
    assert "16:52:50.602          planned 2 ranges" in lines
    assert "16:52:50.602  ERROR   Next: check the topic's name." in lines
    for left_out in ("DagBag", "::group::", "old pattern", "AirflowFailException"):
        assert left_out not in result.stdout
    everything = tally("local", "logs", "wiki", "--all").stdout
    for shown in ("DagBag", "old pattern", "AirflowFailException: again", 'File "/a.py", line 7'):
        assert shown in everything


def test_another_error_is_shown_with_the_frames_of_the_project(airflow: FakeAirflow) -> None:
    result = tally("local", "logs", "wiki", "--task", "stage", "--try", "1")
    assert "stage failed:\n  ValueError: no rows\n" in result.stdout
    assert 'File "/project/dags/wiki.py", line 7, in f' in result.stdout
    assert "site-packages" not in result.stdout
    assert "plan" not in result.stdout
    assert "KeyError: 'edit'" in result.stdout


def test_of_a_failed_task_without_an_error_in_its_log_the_schedulers_log_is_named(
    airflow: FakeAirflow,
) -> None:
    airflow.events["stage", 2] = [event("::group::Pre Execute")]
    shown = "".join(tally("local", "logs", "wiki").stdout.split())
    assert "stagefailed:itsloghasnoerror:use--all,orread" in shown
    assert "airflow/scheduler.log." in shown


def test_a_run_is_named_by_its_id_or_its_unique_beginning(airflow: FakeAirflow) -> None:
    assert tally_json("local", "logs", "wiki", FIRST)["run_id"] == FIRST
    assert tally_json("local", "logs", "wiki", "scheduled__2015-09-12T01")["run_id"] == FIRST
    form = tally_json("local", "logs", "wiki")
    assert (form["run_id"], form["state"]) == (SECOND, "failed")
    assert [one["task_id"] for one in form["tasks"]] == ["plan", "stage"]
    assert form["tasks"][1]["error"][0].startswith("identity_changed")
    assert form["tasks"][1]["lines"][-1]["detail"][-1] == "AirflowFailException: again"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wikki"], "did you mean wiki?"),
        (["wiki", "scheduled__"], "expected one run, found 2 that begin so"),
        (["wiki", "manual__2015"], "no run of that name"),
        (["wiki", "--task", "stag"], "did you mean stage?"),
        (["wiki", "--task", "stage", "--try", "3"], "expected a try 3, found 1, 2"),
        (["gc"], "found none (it is paused). Next: start one: airflow dags unpause gc."),
        (["--task", "stage"], "--task: expected a DAG with it"),
        (["--follow"], "--follow: expected a DAG with it"),
        (["wiki", "--try", "1"], "--try: expected --task with it"),
        (["wiki", "--follow", "--json"], "--follow: expected text with it"),
        (["wiki", "--follow", "--task", "stage", "--try", "1"], "expected the last try with it"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    airflow: FakeAirflow, words: list[str], message: str
) -> None:
    result = tally("local", "logs", *words)
    assert (result.exit_code, result.stdout) == (77, "")
    assert message in " ".join(result.stderr.split())


def test_an_unknown_dag_names_the_files_that_could_not_be_imported(airflow: FakeAirflow) -> None:
    airflow.errors = [{"filename": "mine.py", "stack_trace": "SyntaxError: invalid syntax"}]
    result = tally("local", "logs", "mine")
    assert "Not imported: mine.py: SyntaxError: invalid syntax." in " ".join(result.stderr.split())


def test_follow_prints_each_line_once_until_the_run_ends(airflow: FakeAirflow) -> None:
    lines = [event(f"line {n}") for n in range(5)]
    one = FakeAirflow.one
    airflow.states[SECOND] = "running"
    airflow.task_list = [one("plan", "running"), one("stage", "waiting", try_number=0)]
    group = "::group::Log message source details"
    # Airflow names the places of the log first, and their number changes.
    sources = [{"event": text} for text in (group, "no server", "no file", "::endgroup::")]
    airflow.events = {("plan", 1): [*sources, *lines[:1]]}
    airflow.steps = [
        {},
        {"events": {("plan", 1): [*sources[::3], *lines[:2]]}},
        {"events": {("plan", 1): lines[:2]}},
        # The first try got another line before the second began.
        {
            "events": {("plan", 1): lines[:3], ("plan", 2): lines[3:4]},
            "task_list": [one("plan", "running", try_number=2)],
        },
        {},
        {"events": {("plan", 2): lines[3:]}, "states": {SECOND: "success"}},
    ]
    result = tally("local", "logs", "wiki", "--follow")
    assert result.exit_code == 0, result.stderr
    shown = [line[-6:] for line in result.stdout.splitlines() if line[-6:-1] == "line "]
    assert shown == [f"line {n}" for n in range(5)]
    assert airflow.steps == []
    assert result.stdout.count("--- plan, try 2") == 2


def test_control_characters_of_a_log_cannot_move_the_cursor(airflow: FakeAirflow) -> None:
    airflow.events[("plan", 1)] = [event("a\x1b[2Jb\rc")]
    assert "a\\x1b[2Jb" in tally("local", "logs", "wiki").stdout


def test_a_mapped_task_is_named_with_its_index(airflow: FakeAirflow) -> None:
    airflow.task_list = [FakeAirflow.one("plan", "success", map_index=3)]
    assert "--- plan[3], try 1 of 4" in tally("local", "logs", "wiki").stdout


def test_a_group_ends_even_if_its_last_line_is_the_last() -> None:
    found = log_lines([event("::group::a"), event("in"), event("::endgroup::"), event("out")])
    assert [line.folded for line in found] == [True, True, True, False]


@pytest.mark.parametrize(
    ("logger", "folded"), [("task.stdout", False), ("task.stderr", False), ("task", True)]
)
def test_what_a_task_prints_is_shown_also_if_it_arrives_in_a_group(
    logger: str, folded: bool
) -> None:
    """Airflow reads a task's output and its log by two ways, so that lines of both can be in any order."""
    events = [
        {"event": "::group::Post Execute", "logger": "task"},
        {"event": "counting rows", "logger": logger},
        {"event": "::endgroup::", "logger": "task"},
    ]
    assert log_lines(events)[1].folded is folded
