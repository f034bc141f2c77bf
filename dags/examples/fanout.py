"""Example: 500 topics by a pattern, a table for each with the columns of its own schemas, one commit per interval.

`make example NAME=fanout` runs it; docs/how-to/example-fanout.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Avro, Pipeline, Topics
from tallystick.airflow import replay_dag

LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="fanout",
    topics=[
        Topics(
            # `_confluent-fanout.metrics` matches, too, and is left out because of how its name begins.
            pattern=r".*fanout\.(?P<name>.+)",
            table="{name}",
            decode=Avro(registry="default", schema="follow"),
        )
    ],
    warehouse=f"{LAKES}/fanout",
    job="spark_jobs/examples/fanout.py",
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
