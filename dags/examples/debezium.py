"""Example: the change events that Debezium makes of a PostgreSQL table, each a row, with its operation.

`make example NAME=debezium` runs it; docs/how-to/example-debezium.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Debezium, Json, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")
# Optional, because tombstones and TRUNCATE have no row.
ORDER = [
    Column("customer", "string", required=False),
    Column("amount", "decimal(12,2)", required=False),
    Column("placed", "timestamptz", required=False),
    Column("shipped", "date", required=False, parse="epoch_days"),
    Column("note", "string", required=False),
]
KEY = [Column("id", "long", required=False)]

pipeline = Pipeline(
    name="debezium",
    topics=[
        Topic(
            "shop.public.orders",
            decode=Debezium(
                ORDER,
                decimals="base64",
                before="before",
                event=[Column("lsn", "long", required=False, source="source.lsn")],
                tombstones="keep",
                truncates="keep",
            ),
            key=Json(KEY, tombstones="keep"),
        )
    ],
    warehouse=f"{LAKES}/debezium",
    job="spark_jobs/examples/debezium.py",
    tables=[Table("order_changes", topic="shop.public.orders")],
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
