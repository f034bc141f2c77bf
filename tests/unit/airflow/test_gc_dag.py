"""Garbage collection as a DAG: its tasks and parameters, and a task executed on a lake in memory."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from support.small_lake import SmallLake, good_lake
from tallystick.airflow import gc_dag
from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.operations.gc import collect
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store
from unit.airflow.test_dag import PROJECT

LAKE = "memory://gc-dag"


@pytest.fixture
def lake() -> SmallLake:
    store = open_store(LAKE)
    assert isinstance(store, MemoryStore)
    store.delete([listed.key for listed in store.list("")])
    return good_lake(store)


def dag_of(**options: Any) -> DAG:
    return gc_dag({"small": LAKE}, reader_grace=timedelta(0), **options)


def execute(dag: DAG, *, delete: bool) -> Any:
    """Execute the task with the parameter of the Trigger form."""
    return dag.task_dict["small"].execute(
        {
            "params": {"delete": delete},
            "ti": SimpleNamespace(task_id="small", xcom_push=lambda **_: None),
        }
    )


def test_a_dag_without_delete_is_a_dry_run() -> None:
    assert dag_of().params["delete"] is False
    assert dag_of(delete=True).params["delete"] is True


def test_it_has_a_task_per_lake_one_at_a_time_and_no_catchup() -> None:
    dag = gc_dag({"a": LAKE, "b": "memory://other"}, delete=True)
    assert set(dag.task_dict) == {"a", "b"}
    assert (dag.max_active_tasks, dag.max_active_runs, dag.catchup) == (1, 1, False)
    assert dag.fileloc == __file__


def test_a_dry_run_counts_what_the_next_run_deletes(
    lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(lake.keys(""))
    dry = execute(dag_of(), delete=False)
    assert set(lake.keys("")) == before
    assert dry["objects"] > 0
    assert "would delete (a dry run)" in capsys.readouterr().out
    real = execute(dag_of(), delete=True)
    assert real["objects"] == len(before - set(lake.keys("")))
    # The small lake has a grant that was planned in 2024: it is cancelled, and its owner is named.
    assert (
        "cancelled the grant of [2013-01-06T00:00:00.000Z, 2013-01-07T00:00:00.000Z)"
        in capsys.readouterr().out
    )
    assert execute(dag_of(), delete=True)["objects"] == 0


def test_each_task_uses_the_reader_grace_of_its_lake_unless_the_dag_has_one(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[timedelta | None] = []

    def collected(*_: Any, reader_grace: timedelta | None, **options: Any) -> Any:
        given.append(reader_grace)
        return collect(*_, reader_grace=reader_grace, **options)

    monkeypatch.setattr("tallystick.airflow.gc.collect", collected)
    execute(gc_dag({"small": LAKE}), delete=False)
    execute(dag_of(), delete=False)
    assert given == [None, timedelta(0)]


def test_a_lake_without_any_plan_is_no_error() -> None:
    store = open_store(LAKE)
    store.delete([listed.key for listed in store.list("")])
    assert execute(dag_of(), delete=True)["objects"] == 0


def test_a_vanished_root_fails_the_task_without_a_retry(lake: SmallLake) -> None:
    lake.store.delete([keys.ROOT])
    with pytest.raises(AirflowFailException, match=r"memory://gc-dag/root\.json does not exist"):
        execute(dag_of(), delete=True)


@pytest.mark.parametrize("lakes", [{}, {"Flights": LAKE}, {"a/b": LAKE}])
def test_lakes_without_a_name_are_refused(lakes: dict[str, str]) -> None:
    with pytest.raises(InvalidPipeline):
        gc_dag(lakes)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demos_gc_is_paused_upon_creation() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(PROJECT / "dags"), bundle_path=PROJECT / "dags", bundle_name="test")
    dag = bag.dags["gc"]
    assert dag.is_paused_upon_creation
    assert set(dag.task_dict) == {"flights", "ontime"}
