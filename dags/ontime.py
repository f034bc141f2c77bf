"""The share of flights that left on time, per airline and day: a DataFrame job over the demo's topic.

It has a separate lake, so it reads the same topic as `flights.py` independently of it. Switch the DAG on in Airflow to
run 1 to 6 January.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

pipeline = Pipeline(
    name="ontime",
    topics=[
        Topic(
            "flights",
            decode=Json(
                [
                    Column("carrier", "string"),
                    Column("dep_delay", "int", required=False),
                    Column("departure", "timestamptz"),
                ]
            ),
        )
    ],
    warehouse=os.environ.get("TALLYSTICK_ONTIME_WAREHOUSE", "s3://lake/ontime"),
    job="spark_jobs/ontime.py",
    tables=[
        Table(
            "ontime_daily",
            columns=[
                Column("carrier", "string"),
                Column("day", "date"),
                Column("airline", "string", required=False),
                Column("flights", "long"),
                Column("on_time", "long"),
                Column("share", "double"),
            ],
            partition_by=["month(day)"],
            keys=["carrier", "day"],
        )
    ],
)

dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 6, tzinfo=UTC),  # the start of the last interval
    max_active_runs=2,
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_DEMO_RETRY_DELAY_S", "10"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "demo"],
)
