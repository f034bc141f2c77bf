"""The DAG that the factory builds: its form, its schedule, and the cost of parsing it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DataInterval
from airflow.timetables.interval import CronDataIntervalTimetable

from support.small_lake import pipeline
from tallystick.airflow import replay_dag
from tallystick.airflow.assets import asset_of, interval_asset_of
from tallystick.airflow.plugin import TallystickPlugin
from tallystick.errors import InvalidPipeline, InvalidRequest
from tallystick.operations.run_request import NAMES, RunParams, defaults, parse_params

PROJECT = Path(__file__).parents[3]
START = datetime(2013, 1, 4, tzinfo=UTC)
HEAVY = (
    "pyspark",
    "pyarrow",
    "kafka",
    "boto3",
    "botocore",
    "pyiceberg",
    "numba",
    "numpy",
    "pandas",
    "duckdb",
)


def dag_of(**options: Any) -> DAG:
    return replay_dag(
        pipeline("s3://lake/small"), **{"schedule": "@daily", "start_date": START, **options}
    )


def test_three_tasks_in_a_row() -> None:
    dag = dag_of()
    assert [t.task_id for t in dag.topological_sort()] == ["plan", "stage", "commit"]
    assert [t.max_active_tis_per_dag for t in dag.topological_sort()] == [None, 2, 3]
    assert dag_of(max_active_stages=None).task_dict["stage"].max_active_tis_per_dag is None
    assert dag.task_dict["stage"].durable is False
    assert dag.dag_id == "small"


def test_cron_text_means_data_intervals_in_utc() -> None:
    timetable = dag_of(schedule="0 * * * *").timetable
    assert isinstance(timetable, CronDataIntervalTimetable)
    assert dag_of(schedule=None).timetable.__class__.__name__ == "NullTimetable"


def test_job_root_is_the_parent_of_the_dag_files_folder() -> None:
    assert dag_of().task_dict["plan"].job_root == str(Path(__file__).resolve().parent.parent)
    assert dag_of(job_root="/srv/project").task_dict["stage"].job_root == "/srv/project"
    assert dag_of().fileloc == __file__


def test_form_offers_every_parameter_and_no_other() -> None:
    params = dag_of().params
    assert tuple(params) == NAMES
    assert params.dump() == defaults()
    for name in NAMES:
        schema = params.get_param(name).schema
        assert schema["title"], name
        assert schema["type"], name
        assert schema.get("description_md"), name
    assert parse_params(params.dump()) == RunParams()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "erase"),
        ("from", 20130101),
        ("to", ["2013-01-01"]),
        ("force", "yes"),
        ("take_over", 1),
    ],
)
def test_form_refuses_what_the_plan_would_refuse(name: str, value: Any) -> None:
    params = dag_of().params
    with pytest.raises(ValueError, match=name):
        params[name] = value
    with pytest.raises(InvalidRequest):
        parse_params({**defaults(), "from": "2013-01-01", "to": "2013-01-02", name: value})


@pytest.mark.parametrize("value", ["2013-01-04", "2013-01-04T06:00:00+00:00", "2013-01-04T06:00"])
def test_form_takes_each_spelling_of_a_date_that_the_plan_takes(value: str) -> None:
    params = dag_of().params
    params["from"] = value
    params["to"] = "2013-01-05"
    assert parse_params(params.dump()).start is not None


def test_an_invalid_date_that_the_form_accepts_is_refused_by_the_plan() -> None:
    params = dag_of().params
    params["from"] = "yesterday"
    params["to"] = "2013-01-05"
    with pytest.raises(InvalidRequest, match="from='yesterday'"):
        parse_params(params.dump())


def test_once_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(InvalidPipeline, match=r"@once.*is empty"):
        dag_of(schedule="@once")


@pytest.mark.parametrize(
    ("given", "without", "message", "step"),
    [
        ({}, "schedule", "replay_dag: expected the argument 'schedule', found none.", "'@daily'"),
        ({}, "start_date", "replay_dag: expected the argument 'start_date', found none.", "UTC"),
        (
            {"shedule": "@daily"},
            "schedule",
            "replay_dag: expected no argument 'shedule', found one.",
            "did you mean 'schedule'?",
        ),
        (
            {"wait": 1},
            "",
            "replay_dag: expected no argument 'wait', found one.",
            "some of pipeline",
        ),
    ],
)
def test_a_missing_or_unknown_argument_is_named_with_the_next_step(
    given: dict[str, Any], without: str, message: str, step: str
) -> None:
    options = {"schedule": "@daily", "start_date": START, **given}
    options.pop(without, None)
    with pytest.raises(InvalidPipeline) as refused:
        replay_dag(pipeline("s3://lake/small"), **options)
    assert refused.value.message == message
    assert step in refused.value.hint


def test_pool_limits_the_stages() -> None:
    dag = dag_of(pool="spark")
    assert (dag.task_dict["stage"].pool, dag.task_dict["plan"].pool) == ("spark", "default_pool")


def test_start_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="has no time zone"):
        dag_of(start_date=datetime(2013, 1, 4))  # noqa: DTZ001


def test_spark_options_are_checked_when_the_dag_is_parsed() -> None:
    with pytest.raises(InvalidPipeline, match=r"spark\.jars"):
        dag_of(spark_conf={"spark.jars": "s3://x/y.jar"})


def test_commit_announces_the_pipelines_asset() -> None:
    asset, per_interval = dag_of().task_dict["commit"].outlets
    assert (asset.name, asset.uri) == ("s3://lake/small?pipeline=small",) * 2
    assert asset == asset_of(pipeline("s3://lake/small"))
    assert per_interval == interval_asset_of(pipeline("s3://lake/small"))


def test_assets_of_two_pipelines_share_neither_name_nor_uri_as_airflow_demands() -> None:
    small = pipeline("s3://lake/small")
    assets = [
        asset_of(p)
        for p in (
            small,
            replace(small, name="other"),  # has the lake of `small` by mistake
            replace(small, warehouse="s3://lake/elsewhere"),
        )
    ]
    assert len({a.name for a in assets}) == len({a.uri for a in assets}) == 3


def test_serialised_dag_contains_no_path_of_this_machine() -> None:
    stored = str(
        DagSerialization.serialize_dag(
            dag_of(job_root="/canary/project", spark_binary="/canary/bin")
        )
    )
    assert "canary" not in stored


def test_page_explains_the_user_actions() -> None:
    for action in ("schedule", "Backfill", "Clear", "Trigger", "replace"):
        assert action in str(dag_of().doc_md)


def demo() -> DAG:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(PROJECT / "dags"), bundle_path=PROJECT / "dags", bundle_name="test")
    assert bag.import_errors == {}
    return bag.dags["flights"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dags_folder_has_no_import_errors() -> None:
    dag = demo()
    assert dag.fileloc == str(PROJECT / "dags" / "flights.py")
    assert dag.task_dict["plan"].job_root == str(PROJECT)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_example_of_a_dataframe_job_is_paused_upon_creation() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(PROJECT / "dags"), bundle_path=PROJECT / "dags", bundle_name="test")
    dag = bag.dags["ontime"]
    assert dag.is_paused_upon_creation
    assert (PROJECT / dag.task_dict["stage"].pipeline.job).exists()


def test_demo_catches_up_the_fourth_to_the_sixth_of_january() -> None:
    stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(demo()))
    days: list[int] = []
    info = None
    while True:
        info = stored.next_dagrun_info(last_automated_run_info=info)
        if info is None:
            break
        assert isinstance(info.data_interval, DataInterval)
        days.append(info.data_interval.start.day)
    assert days == [4, 5, 6]
    before_the_start = stored.iter_dagrun_infos_between(
        datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)
    )
    assert [i.data_interval.start.day for i in before_the_start if i.data_interval] == [1, 2, 3]


def test_parsing_a_dag_file_loads_nothing_heavy() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(PROJECT / 'dags')!r}); import flights;"
        f"print(sorted(m for m in {HEAVY!r} if m in sys.modules))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines()[-1] == "[]"


def test_parsing_a_dag_file_loads_few_modules() -> None:
    """The measure is a number of modules, not time: those that a DAG file loads in addition to Airflow."""
    code = (
        "import sys, airflow.sdk, airflow.providers.apache.spark.operators.spark_submit;"
        "before = set(sys.modules);"
        f"sys.path.insert(0, {str(PROJECT / 'dags')!r}); import flights;"
        "print(len([m for m in set(sys.modules) - before if not m.startswith('tallystick')]))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(seen.stdout.splitlines()[-1]) < 60


def test_plugin_is_found_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    (found,) = [e for e in entry_points(group="airflow.plugins") if e.name == "tallystick"]
    assert found.load() is TallystickPlugin
    assert (PROJECT / "plugins" / ".airflowignore").read_text().split() == ["tallystick/"]
