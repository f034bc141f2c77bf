"""Collects what the demo's lakes need no more, once a day: attempts that lost, superseded plans, old metadata.

It waits to be switched on; Trigger with *Delete* off says what would go.
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
