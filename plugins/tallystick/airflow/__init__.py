"""The doors: pipelines as Airflow DAGs. The only package that imports airflow.

A DAG file needs `replay_dag` or `gc_dag`, and no more.
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
    # Lazy: every Airflow component loads the plugin in this package, and none of them needs the operators for it.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tallystick.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
