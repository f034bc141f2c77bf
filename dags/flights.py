"""The demo's pipeline: flights of 2013 from Kafka into two tables, one commit a day.

The schedule runs 4, 5 and 6 January; 1 to 3 January are for a backfill, which may start before `start_date`; the rest
of the year is for the Trigger button.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

FLIGHT = [
    Column("year", "int"),
    Column("month", "int"),
    Column("day", "int"),
    Column("dep_time", "int", required=False),
    Column("sched_dep_time", "int"),
    Column("dep_delay", "int", required=False),
    Column("arr_time", "int", required=False),
    Column("sched_arr_time", "int"),
    Column("arr_delay", "int", required=False),
    Column("carrier", "string"),
    Column("flight", "int"),
    Column("tailnum", "string", required=False),
    Column("origin", "string"),
    Column("dest", "string"),
    Column("air_time", "int", required=False),
    Column("distance", "int"),
    Column("hour", "int"),
    Column("minute", "int"),
    Column("time_hour", "timestamptz"),
    Column("departure", "timestamptz"),
]

pipeline = Pipeline(
    name="flights",
    topics=[Topic("flights", decode=Json(FLIGHT))],
    warehouse=os.environ.get("TALLYSTICK_DEMO_WAREHOUSE", "s3://lake/flights"),
    job="spark_jobs/flights.py",
    tables=[
        Table("flights", columns=FLIGHT, partition_by=["month(departure)"]),
        Table(
            "departures_hourly",
            columns=[
                Column("hour", "timestamptz"),
                Column("origin", "string"),
                Column("departures", "long"),
            ],
            keys=["hour", "origin"],
            combine={"departures": "sum"},
        ),
    ],
)

dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 4, tzinfo=UTC),
    end_date=datetime(2013, 1, 6, tzinfo=UTC),  # the start of the last interval
    max_active_runs=2,
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_DEMO_RETRY_DELAY_S", "10"))),
    tags=["tallystick", "demo"],
)
