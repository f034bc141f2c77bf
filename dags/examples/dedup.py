"""Example: the first alarm of each device within an hour, and one e-mail per device, in any order of intervals.

`make example NAME=dedup` runs it; docs/how-to/example-dedup.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Lookback, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import EmailOutput

ALARM = [Column("device", "string"), Column("owner", "string"), Column("what", "string")]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="dedup",
    topics=[Topic("examples-dedup", decode=Json(ALARM))],
    warehouse=f"{LAKES}/dedup",
    job="spark_jobs/examples/dedup.py",
    tables=[
        Table("alarms", columns=ALARM),
        Table("notices", columns=ALARM[:2], keys=["device", "owner"]),
        Table(
            "seen",
            columns=[Column("device", "string"), Column("last_seen", "timestamptz")],
            keys=["device"],
        ),
    ],
    # As far as the horizon of duplicates. Time that is not committed yet is read from Kafka.
    lookback=Lookback(tables=["seen"], back=timedelta(hours=1)),
    outputs=[
        EmailOutput(
            name="notice",
            table="notices",
            to="owner",
            subject="Alarms of {device}",
            body="Your device {device} raises alarms. There will be no other e-mail about it.\n",
            sender="alarms@example.org",
            key=["device"],
            in_doubt="hold",  # ask a person instead of sending a second e-mail
        ),
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
