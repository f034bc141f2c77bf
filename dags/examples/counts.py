"""Example: flights per hour and airport, from a topic to a topic, each count once for consumers that read committed.

`make example NAME=counts` runs it; docs/how-to/example-counts.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import KafkaOutput

FLIGHT = [
    Column("origin", "string"),
    Column("dep_time", "int", required=False),
    Column("departure", "timestamptz"),
]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="counts",
    topics=[Topic("examples-counts", decode=Json(FLIGHT))],
    warehouse=f"{LAKES}/counts",
    job="spark_jobs/examples/counts.py",
    tables=[
        Table(
            "per_hour",
            columns=[
                Column("hour", "timestamptz"),
                Column("origin", "string"),
                Column("flights", "long"),
            ],
            keys=["hour", "origin"],
            combine={"flights": "sum"},
        )
    ],
    outputs=[
        KafkaOutput(
            name="per_hour",
            table="per_hour",
            topic="examples-flights-per-hour",
            key=["hour", "origin"],
            transaction_rows=10,  # small, so that a day takes several transactions
        ),
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
