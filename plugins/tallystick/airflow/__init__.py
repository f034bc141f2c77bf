"""Airflow DAGs for pipelines. Only this package imports airflow.

A DAG file needs only `replay_dag` or `gc_dag`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.runtime.lazy import lazy

if TYPE_CHECKING:
    from tallystick.airflow.dag import replay_dag as replay_dag
    from tallystick.airflow.gc import gc_dag as gc_dag

__all__ = ["gc_dag", "replay_dag"]

# Every Airflow component loads the plugin of this package, and the plugin does not need the operators.
__getattr__ = lazy(
    __name__, {"gc_dag": "tallystick.airflow.gc", "replay_dag": "tallystick.airflow.dag"}
)


def __dir__() -> list[str]:
    return sorted(__all__)
