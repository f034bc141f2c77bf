"""A DAG with `one_task`: the task `replay` does what `plan`, `stage` and `commit` do, and may die at any moment."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

import tallystick
from support.fakes import stage
from support.small_lake import day, days
from tallystick.airflow.assets import partition_key
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.declared import declared_dags
from tallystick.airflow.operators.replay import ReplayOperator
from tallystick.airflow.operators.stage import StageOperator
from tallystick.airflow.outcome import in_one_task
from tallystick.errors import InvalidPipeline, NotYet, Superseded
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


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


@pytest.fixture
def replay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the task, whose job stages in this process what it is started for."""

    def submit(_: Any, lake: Any, __: Any, plans: Any, *, attempt: str, **___: Any) -> Any:
        return [
            {"plan": p.key, "report": stage(lake, bench.log, p.key, attempt=attempt)} for p in plans
        ]

    monkeypatch.setattr(StageOperator, "_submit", submit)
    return dag_of(bench).task_dict["replay"]


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


def test_a_run_is_committed_and_returns_what_commit_returns(bench: Bench, replay: Any) -> None:
    run = first_run()
    returned = run.execute(replay)
    assert returned["covered"] == [days(1, 2).to_json()]
    assert returned["committed"]["intervals"] == 1
    assert run.events[replay.asset.name].extra == returned
    assert "records" in run.pushed["replay", "tallystick_note"]
    assert replay.linked == bench.lake.where(returned["record"])


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
    bench: Bench, replay: Any, monkeypatch: pytest.MonkeyPatch, dies_in: str, *, after: bool
) -> None:
    act: Callable[..., Any] = getattr(ReplayOperator, dies_in)

    def dying(*given: Any, **named: Any) -> Any:
        if after:
            act(*given, **named)
        raise Killed

    run = first_run()
    with monkeypatch.context() as patch:
        patch.setattr(ReplayOperator, dies_in, dying)
        with pytest.raises(Killed):
            run.execute(replay)
    again = first_run()
    returned = again.execute(replay)
    whole = FakeRun(interval=days(2, 3), run_after=day(3), run_id="scheduled__2")
    undisturbed = whole.execute(replay)
    assert returned["generation"] == undisturbed["generation"] == 1
    assert returned["covered"] == [days(1, 2).to_json()]
    was_committed = (dies_in, after) == ("_commit_one", True)
    assert returned["committed"]["intervals"] == int(not was_committed)
    assert returned["totals"]["records"] > 0
    # The task that died emitted no event: Airflow stores events together with its success.
    assert again.events[replay.asset.name].extra == returned
    of_intervals = again.events[replay.interval_asset.name].extra["intervals"]
    assert list(of_intervals) == [partition_key(day(1))]


def test_a_cleared_task_changes_nothing_until_the_job_changes(bench: Bench, replay: Any) -> None:
    first = first_run().execute(replay)
    unchanged = first_run(clear_number=1).execute(replay)
    assert (unchanged["generation"], unchanged["record"]) == (1, first["record"])
    bench.deploy("version 2")
    replaced = first_run(clear_number=2).execute(replay)
    assert replaced["generation"] == 2


def test_a_retry_with_another_job_names_the_task_to_clear(
    bench: Bench, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ReplayOperator, "_submit", dying)
        with pytest.raises(Killed):
            first_run().execute(replay)
    bench.deploy("version 2")
    run = first_run()
    with pytest.raises(AirflowFailException, match="clear this run's task `replay` to replan"):
        run.execute(replay)
    assert "task `replay`" in run.pushed["replay", "error"]["hint"]
    cleared = first_run(clear_number=1).execute(replay)
    assert cleared["covered"] == [days(1, 2).to_json()]


def test_a_run_that_must_wait_is_rescheduled(
    bench: Bench, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(*_: Any, **__: Any) -> Any:
        raise NotYet("lateness: expected later, found now.", hint="wait.")

    monkeypatch.setattr(ReplayOperator, "plan_run", not_yet)
    with pytest.raises(AirflowRescheduleException):
        first_run().execute(replay)
    assert bench.calls == []


def test_the_notes_of_all_steps_are_left(replay: Any) -> None:
    run = first_run()
    ti = run.context("replay")["ti"]
    replay.leave(ti, "a gap is at risk")
    replay.leave(ti, "10 records")
    assert run.pushed["replay", "tallystick_note"] == "a gap is at risk; 10 records"


def hints() -> Iterator[str]:
    """Yield the hints of all errors that the package raises, each value in them as `...`."""
    for file in sorted(Path(tallystick.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                yield _text(node.value)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(_text(part) if isinstance(part, ast.Constant) else "..." for part in parts)


def test_no_hint_names_a_task_that_a_dag_with_one_task_does_not_have() -> None:
    named = [hint for hint in hints() if "plan task" in hint or "stage task" in hint]
    named += [hint for hint in hints() if "task `plan`" in hint]
    assert len(named) > 15
    for hint in named:
        shown = in_one_task(Superseded("found.", hint=hint)).hint
        assert "task `replay`" in shown
        assert "plan task" not in shown, shown
        assert "stage task" not in shown, shown
        assert "task `plan`" not in shown, shown
