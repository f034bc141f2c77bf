"""Airflow DAGs for pipelines. Only this package imports airflow.

A DAG file needs only `replay_dag` or `gc_dag`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.airflow.dag import replay_dag as replay_dag
    from tallystick.airflow.gc import gc_dag as gc_dag

_HOMES = {"gc_dag": "tallystick.airflow.gc", "replay_dag": "tallystick.airflow.dag"}
__all__ = ["gc_dag", "replay_dag"]


def __getattr__(name: str) -> Any:
    # Imported lazily: every Airflow component loads the plugin of this package, and it does not need the operators.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tallystick.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
