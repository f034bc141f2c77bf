"""Example: a running average per sensor; its state is a table that is committed in the same swap as the averages.

`make example NAME=average` runs it; docs/how-to/example-average.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Lookback, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import FileOutput

LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")
FOLDER = os.environ.get("TALLYSTICK_EXAMPLES_FOLDER", "/srv/tallystick-examples")

# In `sensor_parts` of one interval alone, in `averages` of all time up to its end.
SUMS = [
    Column("sensor", "string"),
    Column("as_of", "timestamptz"),
    Column("readings", "long"),
    Column("total", "decimal(38,2)"),
]

pipeline = Pipeline(
    name="average",
    topics=[
        Topic(
            "examples-readings",
            decode=Json([Column("sensor", "string"), Column("celsius", "decimal(5,2)")]),
        )
    ],
    warehouse=f"{LAKES}/average",
    job="spark_jobs/examples/average.py",
    tables=[
        Table(
            "averages",
            columns=[*SUMS, Column("average", "decimal(12,6)")],
            keys=["sensor", "as_of"],
        ),
        Table("sensor_parts", columns=SUMS, keys=["sensor", "as_of"]),
    ],
    # All earlier time. Time that is not committed yet is left out; when it is committed, the interval becomes stale.
    lookback=Lookback(tables=["sensor_parts"], back=None, uncommitted="stale"),
    outputs=[
        FileOutput(name="folder", table="averages", folder=f"{FOLDER}/average/averages"),
    ],
)

dag = replay_dag(
    pipeline,
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    job_root=Path(__file__).resolve().parents[2],
    # Spark's 200 partitions are for millions of rows: here most would be tasks without rows.
    spark_conf={"spark.sql.shuffle.partitions": "2"},
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
