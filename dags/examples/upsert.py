"""Example: payments into PostgreSQL by their transaction id; the table has the row of the latest day for each id.

`make example NAME=upsert` runs it; docs/how-to/example-upsert.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import PostgresOutput

PAYMENT = [
    Column("txn_id", "string"),
    Column("account", "string"),
    Column("cents", "long"),
    Column("status", "string"),
    Column("happened", "timestamptz"),
]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="upsert",
    topics=[Topic("examples-upsert", decode=Json(PAYMENT))],
    warehouse=f"{LAKES}/upsert",
    job="spark_jobs/examples/upsert.py",
    tables=[Table("payments", columns=PAYMENT, keys=["txn_id"])],
    outputs=[
        # The connection: the variable TALLYSTICK_POSTGRES_EXAMPLES of the tasks, or Airflow's `postgres_examples`.
        PostgresOutput(
            name="bank",
            table="payments",
            into="public.payments",
            key=["txn_id"],
            postgres="examples",
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
