"""Each example is complete: a DAG that is paused upon creation, a job, a page; and the transforms are correct."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.runner.copies import module_of
from examples.runner.harness import LAKES
from examples.runner.registry import EXAMPLES, WITH_REGISTRY

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_its_dag_its_job_and_its_page(name: str) -> None:
    file = f"{module_of(name)}.py"
    found: dict[str, Any] = runpy.run_path(str(PROJECT / "dags" / "examples" / file))
    dag, pipeline = found["dag"], found["pipeline"]
    assert dag.dag_id == pipeline.name == name
    assert dag.is_paused_upon_creation
    assert ("publish" in dag.task_ids) == bool(pipeline.outputs)
    assert pipeline.warehouse == f"{LAKES}/{name}"
    assert pipeline.job == f"spark_jobs/examples/{file}"
    assert dag.task_dict["stage"].job_root == str(PROJECT)
    assert (PROJECT / pipeline.job).is_file()
    page = (PROJECT / "docs" / "how-to" / f"example-{name}.md").read_text(encoding="utf-8")
    assert f"make example NAME={name}" in page
    subject = "docs/reference/outputs.md" if pipeline.outputs else "docs/index.md"
    for linking in ("README.md", subject):
        assert f"example-{name}.md" in (PROJECT / linking).read_text(encoding="utf-8"), linking


def test_every_dag_and_job_of_an_example_is_registered() -> None:
    for folder in ("dags", "spark_jobs"):
        files = {file.stem for file in (PROJECT / folder / "examples").glob("*.py")}
        assert files == set(map(module_of, EXAMPLES)), folder
    assert set(EXAMPLES) >= WITH_REGISTRY


def test_airflow_does_not_load_the_examples_from_the_project() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(PROJECT / "dags"), bundle_path=PROJECT / "dags", bundle_name="test")
    assert not bag.import_errors
    assert set(bag.dags) == {"compact", "flights", "gc", "ontime"}


def job(name: str) -> dict[str, Any]:
    """Return the globals of a job file."""
    return runpy.run_path(str(PROJECT / "spark_jobs" / "examples" / f"{name}.py"))


def test_a_flight_is_late_from_fifteen_minutes_on_and_a_cancelled_flight_is_not() -> None:
    found = job("files")["transform"](pa.table({"dep_delay": pa.array([14, 15, None], pa.int32())}))
    assert found["departures"]["late"].to_pylist() == [False, True, False]


def test_flights_are_counted_by_hour_and_airport() -> None:
    at = [datetime(2013, 1, 1, 5, minute, tzinfo=UTC) for minute in (0, 59, 30)]
    records = pa.table(
        {
            "departure": pa.array(at, pa.timestamp("us", tz="UTC")),
            "origin": ["JFK", "JFK", "EWR"],
            "dep_time": pa.array([501, None, 530], pa.int32()),
        }
    )
    counted = job("counts")["transform"](records)["per_hour"].sort_by("origin").to_pylist()
    assert counted == [
        {"hour": at[0], "origin": "EWR", "flights": 1},
        {"hour": at[0], "origin": "JFK", "flights": 2},
    ]
