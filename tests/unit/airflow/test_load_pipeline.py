"""The DAG file of `tally replay`, if it imports Airflow itself: its DAG is built, and no handler of a logger changes."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tallystick.cli.loading import load_pipeline

FILE = """\
from datetime import UTC, datetime

from airflow.providers.standard.operators.empty import EmptyOperator

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

COLUMNS = [Column("n", "long")]
pipeline = Pipeline(
    name="small",
    topics=[Topic("events", decode=Json(COLUMNS))],
    warehouse="memory://small",
    job="spark_jobs/small.py",
    tables=[Table("events", columns=COLUMNS)],
)
with replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC)) as dag:
    dag.task_dict["commit"] >> EmptyOperator(task_id="after")
"""


def test_a_file_that_imports_airflow_itself_may_use_its_dag(tmp_path: Path) -> None:
    file = tmp_path / "dags" / "small.py"
    file.parent.mkdir()
    file.write_text(FILE)
    handlers = logging.getLogger().handlers[:]
    found = load_pipeline(file, None)
    assert "airflow" in sys.modules
    assert (found.dag_id, found.job_root) == ("small", str(tmp_path))
    assert logging.getLogger().handlers == handlers
