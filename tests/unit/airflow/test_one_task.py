"""A DAG with `one_task`: the task `replay` does what `plan`, `stage` and `commit` do, and may die at any moment."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
)

import tallystick
from support.fakes import stage
from support.small_lake import day, days
from tallystick.airflow.assets import partition_key
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.declared import declared_dags
from tallystick.airflow.operators.publish import PublishOperator
from tallystick.airflow.operators.replay import ReplayOperator
from tallystick.airflow.operators.stage import StageOperator
from tallystick.airflow.outcome import airflow_errors, in_one_task
from tallystick.errors import InvalidPipeline, NotYet, Superseded
from tallystick.tables.reading import static_table
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


# The records of the first day that are rows of the table of events.
ROWS = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
STAGED_TWICE = {("_submit", True), ("_commit_one", False)}


class Killed(BaseException):
    """The end of a task's process, which no handler sees."""


def dag_of(bench: Bench, **options: Any) -> DAG:
    return replay_dag(
        bench.pipeline,
        schedule="@daily",
        start_date=day(1),
        job_root=bench.folder,
        spark_binary=str(bench.program),
        **{"one_task": True, **options},
    )


def first_run(**options: Any) -> FakeRun:
    return FakeRun(interval=days(1, 2), run_after=day(2), run_id="scheduled__1", **options)


class Replay:
    """The task, whose job stages in this process what it is started for. `started`: the plans of each start."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.task: Any = dag_of(bench).task_dict["replay"]
        self.started: list[list[str]] = []

    def submit(self, lake: Any, _: Any, plans: Any, *, attempt: str, **__: Any) -> Any:
        self.started.append([one.key for one in plans])
        return [
            {"plan": p.key, "report": stage(lake, self.bench.log, p.key, attempt=attempt)}
            for p in plans
        ]

    def rows(self) -> list[tuple[int, int]]:
        """Return partition and offset of each row of the table of events."""
        metadata = self.bench.lake.load_existing().root.tables["events"].metadata
        assert metadata is not None
        found = static_table(self.bench.lake.store, metadata).scan().to_arrow()
        return sorted((r["_kafka_partition"], r["_offset"]) for r in found.to_pylist())


@pytest.fixture
def replay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Replay:
    made = Replay(bench)
    monkeypatch.setattr(StageOperator, "_submit", made.submit)
    return made


def test_one_task_has_the_limits_of_the_stage_and_the_assets_of_the_commit(bench: Bench) -> None:
    dag = dag_of(bench, pool="loads", max_active_stages=5)
    (task,) = dag.topological_sort()
    three = dag_of(bench, one_task=False).task_dict
    assert (task.task_id, task.max_active_tis_per_dag, task.pool) == ("replay", 5, "loads")
    assert task.outlets == three["commit"].outlets
    assert "clear `replay`" in (dag.doc_md or "")


def test_deferrable_and_one_task_are_refused_together(bench: Bench) -> None:
    with pytest.raises(InvalidPipeline, match="use one of them"):
        dag_of(bench, deferrable=True)


def test_check_finds_the_pipeline_of_a_dag_with_one_task(bench: Bench) -> None:
    (found,) = declared_dags([dag_of(bench)], datetime(2013, 1, 1, tzinfo=UTC))
    assert (found.pipeline, found.job_root, found.first) == (
        bench.pipeline,
        str(bench.folder),
        day(1),
    )


def test_a_run_is_committed_and_returns_what_commit_returns(bench: Bench, replay: Replay) -> None:
    run = first_run()
    returned = run.execute(replay.task)
    assert returned["covered"] == [days(1, 2).to_json()]
    assert returned["committed"]["intervals"] == 1
    assert run.events[replay.task.asset.name].extra == returned
    assert "records" in run.pushed["replay", "tallystick_note"]
    assert replay.task.linked == bench.lake.where(returned["record"])


@pytest.mark.parametrize(
    ("dies_in", "after"),
    [
        ("plan_intervals", False),
        ("plan_intervals", True),
        ("_submit", False),
        ("_submit", True),
        ("_commit_one", False),
        ("_commit_one", True),
    ],
)
def test_a_task_that_dies_is_repeated_and_each_record_is_committed_once(
    bench: Bench, replay: Replay, monkeypatch: pytest.MonkeyPatch, dies_in: str, *, after: bool
) -> None:
    act: Callable[..., Any] = getattr(ReplayOperator, dies_in)

    def dying(*given: Any, **named: Any) -> Any:
        if after:
            act(*(given[1:] if isinstance(act, MethodType) else given), **named)
        raise Killed

    run = first_run()
    with monkeypatch.context() as patch:
        patch.setattr(ReplayOperator, dies_in, dying)
        with pytest.raises(Killed):
            run.execute(replay.task)
    again = first_run()
    returned = again.execute(replay.task)
    assert returned["covered"] == [days(1, 2).to_json()]
    assert returned["generation"] == 1
    assert returned["totals"] == returned["committed"]["totals"]
    assert replay.rows() == ROWS
    # What an earlier try committed is counted, as a retry of `commit` counts it, and is not staged again.
    was_committed = (dies_in, after) == ("_commit_one", True)
    counted = returned["committed"]
    assert (counted["intervals"], counted["already"]) == (1, int(was_committed))
    assert counted["rows"]["events"] == len(ROWS)
    assert len(replay.started) == (2 if (dies_in, after) in STAGED_TWICE else 1)
    note = again.pushed["replay", "tallystick_note"]
    assert ("committed before" in note) is was_committed
    # The task that died emitted no event: Airflow stores events together with its success.
    assert again.events[replay.task.asset.name].extra == returned
    of_intervals = again.events[replay.task.interval_asset.name].extra["intervals"]
    assert list(of_intervals) == [partition_key(day(1))]


def test_a_cleared_task_changes_nothing_until_the_job_changes(bench: Bench, replay: Replay) -> None:
    first = first_run().execute(replay.task)
    unchanged = first_run(clear_number=1).execute(replay.task)
    assert (unchanged["generation"], unchanged["record"]) == (1, first["record"])
    assert len(replay.started) == 1
    # The event per interval is not emitted again, so Airflow must find only the other Asset among the outlets.
    assert replay.task.outlets == [replay.task.asset]
    bench.deploy("version 2")
    replaced = first_run(clear_number=2).execute(replay.task)
    assert replaced["generation"] == 2


def test_a_retry_with_another_job_names_the_task_to_clear(
    bench: Bench, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ReplayOperator, "_submit", dying)
        with pytest.raises(Killed):
            first_run().execute(replay.task)
    bench.deploy("version 2")
    run = first_run()
    with pytest.raises(AirflowFailException, match="clear this run's task `replay` to replan"):
        run.execute(replay.task)
    assert "task `replay`" in run.pushed["replay", "error"]["hint"]
    cleared = first_run(clear_number=1).execute(replay.task)
    assert cleared["covered"] == [days(1, 2).to_json()]


def test_a_run_that_must_wait_is_rescheduled(
    bench: Bench, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(*_: Any, **__: Any) -> Any:
        raise NotYet("lateness: expected later, found now.", hint="wait.")

    monkeypatch.setattr(ReplayOperator, "plan_run", not_yet)
    with pytest.raises(AirflowRescheduleException):
        first_run().execute(replay.task)
    assert replay.started == []


@pytest.mark.parametrize("during", ["plan_intervals", "stage_plans"])
def test_a_task_that_airflow_ends_commits_nothing_afterwards(
    replay: Replay, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    """Between the signal and the end of the process are some seconds, enough for a small commit."""
    act: Callable[..., Any] = getattr(ReplayOperator, during)

    def ended(self: Any, *given: Any) -> Any:
        self.on_kill()
        return act(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(ReplayOperator, during, ended)
        with pytest.raises(AirflowException, match="before its commit"):
            first_run().execute(replay.task)
    assert replay.bench.lake.load_existing().root.tables["events"].metadata is None
    assert len(replay.started) == (0 if during == "plan_intervals" else 1)
    fresh = dag_of(replay.bench).task_dict["replay"]
    assert first_run().execute(fresh)["covered"] == [days(1, 2).to_json()]


def test_an_error_keeps_the_note_of_an_earlier_step(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        replay.task.leave(run.context("replay")["ti"], "a gap is at risk")
        raise Superseded("found another.", hint="clear task `plan`.")

    run = first_run()
    monkeypatch.setattr(StageOperator, "_submit", failing)
    with pytest.raises(AirflowFailException):
        run.execute(replay.task)
    note = run.pushed["replay", "tallystick_note"]
    assert note.startswith("a gap is at risk; replay: superseded: found another.")
    assert note.endswith("Next: clear task `replay`.")


@pytest.mark.parametrize(
    ("one_task", "shown"), [(True, "task `replay`"), (False, "`plan`"), (None, "`plan`")]
)
def test_another_task_of_the_dag_names_the_one_to_clear(
    bench: Bench, one_task: bool | None, shown: str
) -> None:
    """As `publish` does. None: an operator outside of any DAG."""
    if one_task is None:
        task: Any = PublishOperator(task_id="publish", pipeline=bench.pipeline)
    else:
        (task, *_) = dag_of(bench, one_task=one_task).topological_sort()
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        task_id="publish", task=task, xcom_push=lambda key, value: pushed.update({key: value})
    )
    with (
        pytest.raises(AirflowFailException, match=f"Next: clear {shown}"),
        airflow_errors("", ti),
    ):
        raise Superseded("found.", hint="clear `plan`.")
    assert pushed["error"]["hint"] == f"clear {shown}."


def test_the_warning_of_many_dead_letters_names_this_task(replay: Replay) -> None:
    shown = replay.task.named("The log of `stage` has the reasons. Correct it and clear `plan`.")
    assert shown == "The log of task `replay` has the reasons. Correct it and clear task `replay`."


def test_the_notes_of_all_steps_are_left(replay: Replay) -> None:
    run = first_run()
    ti = run.context("replay")["ti"]
    replay.task.leave(ti, "a gap is at risk")
    replay.task.leave(ti, "10 records")
    assert run.pushed["replay", "tallystick_note"] == "a gap is at risk; 10 records"


def texts() -> Iterator[str]:
    """Yield each text of the package that is no docstring, and in which an error or a log may name a task to clear."""
    for file in sorted(Path(tallystick.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text())
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
            ):
                yield node.value


def test_no_text_names_a_task_that_a_dag_with_one_task_does_not_have() -> None:
    named = [
        text for text in texts() if re.search(r"clear[^.]*(plan|stage|commit)\b(`| task)", text)
    ]
    assert len(named) > 30
    for text in named:
        if "that run's plan task" in text:
            continue  # of `tally gc`, which does not know the DAG of the run
        shown = in_one_task(text)
        assert "task `replay`" in shown, text
        assert not re.search(r"clear[^.]*(plan|stage|commit)\b(`| task)", shown), shown
