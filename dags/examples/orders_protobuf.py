"""Example: orders and refunds in Protobuf, two messages of one topic whose schema imports another, into two tables.

`make example NAME=orders-protobuf` runs it; docs/how-to/example-orders-protobuf.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Pipeline, Protobuf, Table, Topic
from tallystick.airflow import replay_dag

BOTH = [
    Column("order_id", "long"),
    Column("happened", "timestamptz"),
    Column("currency", "string", source="total.currency"),
    Column("cents", "long", source="total.cents"),
]
# A message that does not have a field has no value in its column, so these are optional.
ORDER = [
    Column("status", "string", required=False),
    Column(
        "lines",
        "list<struct<sku: string, quantity: int, price: struct<currency: string, cents: long>>>",
        required=False,
    ),
    Column("points", "map<string, long>", required=False),
    Column("card_network", "string", required=False, source="card.network"),
    Column("voucher", "string", required=False),
]
REFUND = [Column("reason", "string", required=False)]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="orders-protobuf",
    topics=[
        Topic(
            "examples-orders-protobuf",
            decode=Protobuf([*BOTH, *ORDER, *REFUND], registry="default"),
        )
    ],
    warehouse=f"{LAKES}/orders-protobuf",
    job="spark_jobs/examples/orders_protobuf.py",
    tables=[
        Table("orders", columns=[*BOTH, *ORDER]),
        Table("refunds", columns=[*BOTH, *REFUND]),
    ],
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
