"""Compaction as a DAG: its tasks, and a task executed on a lake in memory; with Spark only the start of the job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.small_lake import SmallLake, days
from tallystick.airflow import compact as compact_module
from tallystick.airflow import compact_dag
from tallystick.airflow import spark_submit as spark_submit_module
from tallystick.airflow.compact import JOB
from tallystick.errors import InvalidPipeline, InvalidRequest
from tallystick.format import keys
from tallystick.operations.compact import CompactOptions, compact
from tallystick.operations.compact.arguments import (
    CompactArguments,
    parse_compact_arguments,
    to_argv,
)
from tallystick.operations.compact.local import LocalWriter
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store
from tallystick.tables.reading import live_files
from unit.airflow.test_dag import PROJECT

LAKE = "memory://compact-dag"
OPTIONS = CompactOptions(until=datetime(2013, 2, 1, tzinfo=UTC), files_min=2)


@pytest.fixture
def lake() -> SmallLake:
    store = open_store(LAKE)
    assert isinstance(store, MemoryStore)
    store.delete([listed.key for listed in store.list("")])
    small = SmallLake(store=store)
    for number in range(1, 5):
        small.run(days(number, number + 1))
    return small


def execute(dag: DAG) -> Any:
    task = dag.task_dict["small"]
    return task.execute({"ti": SimpleNamespace(task_id="small", xcom_push=lambda **_: None)})


def shared(lake: SmallLake, table: str) -> int:
    metadata = lake.lake.load_existing().root.tables[table].metadata
    assert metadata is not None
    return sum(keys.kind(f.key) == "shared file" for f in live_files(lake.store, metadata))


def test_it_has_a_task_per_lake_one_at_a_time_and_no_catchup() -> None:
    dag = compact_dag({"a": LAKE, "b": "memory://other"}, tables={"a": ["events"]})
    assert set(dag.task_dict) == {"a", "b"}
    assert (dag.max_active_tasks, dag.max_active_runs, dag.catchup) == (1, 1, False)
    assert dag.fileloc == __file__
    assert {name: task.tables for name, task in dag.task_dict.items()} == {
        "a": ("events",),
        "b": (),
    }


def test_a_run_compacts_in_its_own_process_and_the_next_one_finds_nothing(
    lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    dag = compact_dag({"small": LAKE}, min_files=2)
    done = execute(dag)
    assert done["tables"]["events"]["files_before"] == 8
    assert (shared(lake, "events"), shared(lake, "per_kind")) == (1, 1)
    assert "events: 8 files" in capsys.readouterr().out
    assert execute(dag)["tables"] == {}
    assert "nothing to compact" in capsys.readouterr().out


def test_only_the_named_tables_are_compacted(lake: SmallLake) -> None:
    execute(compact_dag({"small": LAKE}, min_files=2, tables={"small": ["per_kind"]}))
    assert (shared(lake, "events"), shared(lake, "per_kind")) == (0, 1)


def test_intervals_that_ended_later_are_left_alone(lake: SmallLake) -> None:
    assert (
        execute(compact_dag({"small": LAKE}, min_files=2, older_than=timedelta(days=36_500)))[
            "tables"
        ]
        == {}
    )
    assert shared(lake, "events") == 0


def test_a_lake_without_any_plan_is_no_error() -> None:
    store = open_store(LAKE)
    store.delete([listed.key for listed in store.list("")])
    assert execute(compact_dag({"small": LAKE}))["tables"] == {}


def test_an_unknown_table_fails_the_task_without_a_retry(lake: SmallLake) -> None:
    del lake
    with pytest.raises(AirflowFailException, match="the lake has no table 'none'"):
        execute(compact_dag({"small": LAKE}, tables={"small": ["none"]}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"lakes": {}},
        {"lakes": {"Flights": LAKE}},
        {"lakes": {"a": LAKE}, "tables": {"b": ["events"]}},
        {"lakes": {"a": LAKE}, "spark_conf": {"spark.sql.extensions": "x.Y"}},
    ],
)
def test_a_wrong_declaration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidPipeline):
        compact_dag(**wrong)


# ------------------------------------------------------------ with Spark


class Submit:
    """A spark-submit that runs the compaction of its arguments in this process, or dies."""

    def __init__(self, lake: SmallLake, *, dies: dict[str, str] | None = None) -> None:
        self.lake, self.dies = lake, dies
        self.started: list[dict[str, Any]] = []

    def __call__(self, **options: Any) -> Submit:
        self.started.append(options)
        return self

    def submit(self, job: str) -> None:
        assert job == str(JOB)
        result = Path(self.started[-1]["result_file"])
        if self.dies is not None:
            if self.dies:
                result.write_text(json.dumps({"error": self.dies}))
            raise spark_submit_module.job_died(1, ["it died"])
        arguments = parse_compact_arguments(self.started[-1]["application_args"])
        small = self.lake
        found = compact(small.lake, small.tables, LocalWriter(small.lake), arguments.options)
        result.write_text(json.dumps(found.to_json()))


def spark_dag() -> DAG:
    return compact_dag({"small": LAKE}, min_files=2, spark_conn_id="spark_default")


def test_the_job_file_is_in_the_package() -> None:
    assert JOB.is_file()
    assert JOB.is_relative_to(Path(compact_module.__file__).parents[1])
    # The folder of the file that spark-submit starts is the first on sys.path.
    assert {p.name for p in JOB.parent.glob("*.py")} == {"__init__.py", "compact_files.py"}


def test_spark_is_started_only_if_there_is_something_to_do(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Submit(lake)
    monkeypatch.setattr(spark_submit_module, "ScrubbedSparkSubmit", submit)
    assert execute(spark_dag())["tables"]["events"]["files_after"] == 1
    assert execute(spark_dag())["tables"] == {}
    (started,) = submit.started
    assert "kafka" not in started, "it needs no connection to Kafka"


@pytest.mark.parametrize(
    ("written", "error", "text"),
    [
        ({}, AirflowException, "it died"),
        (
            {"kind": "store_unavailable", "message": "S3 is slow.", "hint": "wait."},
            AirflowException,
            "S3 is slow",
        ),
        (
            {"kind": "corrupt", "message": "a file is gone.", "hint": "restore it."},
            AirflowFailException,
            "a file is gone",
        ),
    ],
)
def test_the_error_of_the_job_is_that_of_the_task(
    lake: SmallLake,
    monkeypatch: pytest.MonkeyPatch,
    written: dict[str, str],
    error: type[Exception],
    text: str,
) -> None:
    monkeypatch.setattr(spark_submit_module, "ScrubbedSparkSubmit", Submit(lake, dies=written))
    with pytest.raises(error, match=text) as raised:
        execute(spark_dag())
    assert type(raised.value) is error or not written


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        CompactOptions(until=OPTIONS.until, tables=("a", "b"), target_bytes=1 << 20, files_min=9),
    ],
)
def test_the_arguments_of_the_job_are_read_as_they_were_written(options: CompactOptions) -> None:
    arguments = CompactArguments(lake_uri="s3://lake/flights", options=options)
    assert parse_compact_arguments(to_argv(arguments)) == arguments


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--lake", "s3://lake/flights"],
        ["--lake", "s3://lake/flights", "--until", "yesterday"],
        ["--lake", "s3://lake/flights", "--until", "2026-01-01T00:00:00.000Z", "--min-files", "x"],
        ["--lake", "s3://lake/flights", "--until", "2026-01-01T00:00:00.000Z", "--min-files", "1"],
        ["--lake", "s3://lake/flights", "--until", "2026-01-01T00:00:00.000Z", "--other"],
    ],
)
def test_other_arguments_are_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        parse_compact_arguments(argv)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demos_compaction_is_paused_upon_creation() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(PROJECT / "dags"), bundle_path=PROJECT / "dags", bundle_name="test")
    dag = bag.dags["compact"]
    assert dag.is_paused_upon_creation
    assert set(dag.task_dict) == {"flights", "ontime"}
