"""Garbage collection for the demo's lakes, once a day: attempts that were not committed, superseded plans, old metadata.

The DAG is paused upon creation. Trigger it with *Delete* off to list what would be deleted.
"""

from __future__ import annotations

import os

from tallystick.airflow import gc_dag

dag = gc_dag(
    {
        "flights": os.environ.get("TALLYSTICK_DEMO_WAREHOUSE", "s3://lake/flights"),
        "ontime": os.environ.get("TALLYSTICK_ONTIME_WAREHOUSE", "s3://lake/ontime"),
    },
    delete=True,
    is_paused_upon_creation=True,
)
