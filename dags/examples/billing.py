"""Example: usage per customer and hour, invoiced once; late usage and new prices are separate rows.

`make example NAME=billing` runs it; docs/how-to/example-billing.md describes it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallystick import Column, Json, Lookback, Pipeline, Table, Topic
from tallystick.airflow import replay_dag
from tallystick.outputs import HttpOutput

USAGE = [
    Column("customer", "string"),
    Column("service", "string"),
    Column("units", "int"),
    Column("used_at", "timestamptz"),
]
START, CUSTOMER = Column("window_start", "timestamptz"), Column("customer", "string")
SUMS = [Column("events", "long"), Column("cents", "long")]
KEYS = ["window_start", "customer"]
LAKES = os.environ.get("TALLYSTICK_EXAMPLES_LAKES", "s3://lake/examples")

pipeline = Pipeline(
    name="billing",
    topics=[Topic("examples-billing", decode=Json(USAGE))],
    warehouse=f"{LAKES}/billing",
    job="spark_jobs/examples/billing.py",
    tables=[
        Table(
            "invoices",
            columns=[START, Column("window_end", "timestamptz"), CUSTOMER, *SUMS],
            keys=KEYS,
        ),
        Table("corrections", columns=[START, CUSTOMER, *SUMS], keys=KEYS),
        Table("outside", columns=USAGE),
        Table("parts", columns=[START, CUSTOMER, *SUMS], keys=KEYS),
    ],
    # The window of an hour and its lateness of a quarter of an hour.
    lookback=Lookback(tables=["parts"], back=timedelta(minutes=75)),
    outputs=[
        HttpOutput(name="invoices", table="invoices", http="ledger", url="/invoices"),
        HttpOutput(name="corrections", table="corrections", http="ledger", url="/corrections"),
    ],
)

dag = replay_dag(
    pipeline,
    schedule="0 */3 * * *",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 1, 1, 3, tzinfo=UTC),  # the start of the last interval
    job_root=Path(__file__).resolve().parents[2],
    retry_delay=timedelta(seconds=float(os.environ.get("TALLYSTICK_EXAMPLES_RETRY_DELAY_S", "60"))),
    is_paused_upon_creation=True,
    tags=["tallystick", "example"],
)
