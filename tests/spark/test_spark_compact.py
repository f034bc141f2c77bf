"""A compaction by Spark, started by the task of a DAG on a real S3 server: the files are those of one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from support.small_lake import SmallLake, days, pipeline
from tallystick.airflow import compact_dag
from tallystick.operations.verify import verify
from tallystick.pipeline import Pipeline, Upkeep
from tallystick.runtime import system_runtime
from tallystick.store.s3 import S3Store
from tallystick.tables.reading import live_files, static_table
from tallystick_devstack.testing.servers import aws_environment, ministack

URI = "s3://lake/compact-by-spark"


def sorted_pipeline(warehouse: str) -> Pipeline:
    declared = pipeline(warehouse)
    return replace(
        declared,
        tables=[replace(t, upkeep=Upkeep(sort_by=["kind", "n"])) for t in declared.tables],
    )


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SmallLake]:
    with ministack() as endpoint:
        for name, value in aws_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(
            "AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}'
        )
        boto3.client("s3").create_bucket(Bucket="lake")
        small = SmallLake(store=S3Store(URI), runtime=system_runtime(), declared=sorted_pipeline)
        for number in range(1, 5):
            small.run(days(number, number + 1))
        yield small


def rows(lake: SmallLake, table: str) -> list[dict[str, Any]]:
    return static_table(lake.store, metadata(lake, table)).scan().to_arrow().to_pylist()


def metadata(lake: SmallLake, table: str) -> str:
    found = lake.lake.load_existing().root.tables[table].metadata
    assert found is not None
    return found


def proven(lake: SmallLake) -> None:
    proof = verify(lake.lake, deep=True)
    assert proof.proven, [str(f) for c in proof.checks for f in c.findings]


def test_spark_writes_sorted_shared_files_and_a_day_is_replaced_alone(lake: SmallLake) -> None:
    before = {name: sorted(rows(lake, name), key=repr) for name in ("events", "per_kind")}
    dag = compact_dag({"small": URI}, min_files=2, spark_conn_id="spark_default")
    task = dag.task_dict["small"]
    done = task.execute({"ti": SimpleNamespace(task_id="small", xcom_push=lambda **_: None)})
    assert done["tables"]["events"]["files_before"] == 8
    assert done["left"] == {}
    for name, expected in before.items():
        (file,) = live_files(lake.store, metadata(lake, name))
        assert "/shared/" in file.key
        found = rows(lake, name)
        assert sorted(found, key=repr) == expected
        order = [(row["kind"] is not None, row["kind"], row["n"]) for row in found]
        assert order == sorted(order), "sorted across days"
    proven(lake)
    lake.job = b"version 2"
    lake.run(days(2, 3), clear=1, keep=lambda r: r.value.get("n") != 1, accept_compaction=True)
    after = rows(lake, "events")
    assert len(after) < len(before["events"])
    proven(lake)
    assert "TALLYSTICK_KAFKA_DEFAULT" not in os.environ, "no connection to Kafka was needed"
