"""Example: one file of JSON lines per day, in two phases: written under a hidden name, then renamed.

`make example NAME=files` runs it; docs/how-to/example-files.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import FileOutput

FLIGHT = [
    Column("carrier", "string"),
    Column("flight", "int"),
    Column("origin", "string"),
    Column("dest", "string"),
    Column("dep_delay", "int", required=False),
    Column("departure", "timestamptz"),
]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")
FOLDER = os.environ.get("TALLYSTICK_EXAMPLES_FOLDER", "/srv/tallystick-examples")

pipeline = Pipeline(
    name="files",
    topics=[Topic("examples-files", decode=Json(FLIGHT))],
    warehouse=f"{LAKES}/files",
    job="spark_jobs/examples/files.py",
    tables=[Table("departures", columns=[*FLIGHT, Column("late", "boolean")])],
    outputs=[
        FileOutput(name="folder", table="departures", folder=f"{FOLDER}/files/departures"),
    ],
)

dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 3, tzinfo=UTC),  # the start of the last interval
    job_root=Path(__file__).resolve().parents[2],
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
