"""Example: what killed attempts and aborted transactions leave behind, and what removes it.

`make example NAME=cleanup` runs it; docs/how-to/example-cleanup.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import gc_dag, replay_dag
from tallystick.outputs import FileOutput

LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")
FOLDER = os.environ.get("TALLYSTICK_EXAMPLES_FOLDER", "/srv/tallystick-examples")

pipeline = Pipeline(
    name="cleanup",
    topics=[
        Topic(
            "examples-cleanup",
            decode=Json([Column("carrier", "string"), Column("departure", "timestamptz")]),
        )
    ],
    warehouse=f"{LAKES}/cleanup",
    job="spark_jobs/examples/cleanup.py",
    tables=[
        Table(
            "per_airline",
            columns=[
                Column("carrier", "string"),
                Column("day", "date"),
                Column("flights", "long"),
            ],
            keys=["carrier", "day"],
        )
    ],
    outputs=[
        FileOutput(name="folder", table="per_airline", folder=f"{FOLDER}/cleanup/per-airline"),
    ],
)

dag = replay_dag(
    pipeline,
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    job_root=Path(__file__).resolve().parents[2],
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)

# Without grace for readers of older versions, so that exactly the objects of the newest version remain.
collector = gc_dag(
    {"cleanup": pipeline.warehouse},
    dag_id="cleanup_gc",
    schedule=None,
    delete=True,
    reader_grace=timedelta(0),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
