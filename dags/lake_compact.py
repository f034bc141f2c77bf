"""Compaction of the demo's lakes, once a day: small files of committed intervals become files of the declared size.

The DAG is paused upon creation. Trigger it to compact what ended more than a day ago.
"""

from __future__ import annotations

import os

from tallystick.airflow import compact_dag

dag = compact_dag(
    {
        "flights": os.environ.get("TALLYSTICK_DEMO_WAREHOUSE", "s3://lake/flights"),
        "ontime": os.environ.get("TALLYSTICK_ONTIME_WAREHOUSE", "s3://lake/ontime"),
    },
    is_paused_upon_creation=True,
)
