"""Example: clicks on ads, attributed to the impression before them, from two topics to tables and a topic.

`make example NAME=ads` runs it; docs/how-to/example-ads.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Lookback, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import KafkaOutput

# The fields of an impression and of a click.
EVENT = [Column("id", "string"), Column("user", "string"), Column("ad", "string")]
KNOWN = [*EVENT, Column("campaign", "string")]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="ads",
    topics=[
        Topic("examples-impressions", decode=Json(EVENT)),
        Topic("examples-clicks", decode=Json(EVENT)),
    ],
    warehouse=f"{LAKES}/ads",
    job="spark_jobs/examples/ads.py",
    tables=[
        Table("impressions", columns=KNOWN),
        Table(
            "clicks",
            columns=[*KNOWN, Column("impression", "string"), Column("shown_at", "timestamptz")],
        ),
        Table("unattributed", columns=KNOWN),
        Table("duplicates", columns=[Column("id", "string")]),
        Table(
            "per_hour",
            columns=[
                Column("hour", "timestamptz"),
                Column("campaign", "string"),
                Column("impressions", "long"),
                Column("clicks", "long"),
                Column("attributed", "long"),
            ],
            keys=["hour", "campaign"],
        ),
        # State: rows from the interval's own records alone.
        Table("recent_impressions", columns=[*EVENT, Column("log_time", "timestamptz")]),
        Table(
            "seen_clicks",
            columns=[Column("id", "string"), Column("last_seen", "timestamptz")],
            keys=["id"],
        ),
    ],
    # An impression is at most half an hour before its click, and what makes it a duplicate six hours before it.
    lookback=Lookback(
        tables=["recent_impressions", "seen_clicks"], back=timedelta(hours=6, minutes=30)
    ),
    outputs=[
        KafkaOutput(
            name="per_hour",
            table="per_hour",
            topic="examples-ads-per-hour",
            key=["hour", "campaign"],
            transaction_rows=10,  # small, so that a day takes several transactions
        ),
    ],
)

dag = replay_dag(
    pipeline,
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    job_root=Path(__file__).resolve().parents[2],
    # Spark's 200 partitions are for millions of rows: here each would be a task for a few rows.
    spark_conf={"spark.sql.shuffle.partitions": "2"},
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
