"""Example: orders in Avro whose schemas are in a registry; the table follows them.

`make example NAME=orders-avro` runs it; docs/how-to/example-orders-avro.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Avro, Column, Pipeline, Table, Topic
from tallystick.airflow import replay_dag

ORDER_KEY = [Column("shop", "string"), Column("order_id", "long")]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="orders-avro",
    topics=[
        Topic(
            "examples-orders-avro",
            decode=Avro(registry="default", schema="follow"),
            key=Avro(ORDER_KEY, registry="default"),
        )
    ],
    warehouse=f"{LAKES}/orders-avro",
    job="spark_jobs/examples/orders_avro.py",
    tables=[Table("orders", topic="examples-orders-avro")],
)

dag = replay_dag(
    pipeline,
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 1, tzinfo=UTC),  # the start of the last interval
    job_root=Path(__file__).resolve().parents[2],
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
