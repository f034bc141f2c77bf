"""The doors: pipelines as Airflow DAGs. The only package that imports airflow; a DAG file needs `replay_dag` alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.airflow.dag import replay_dag as replay_dag

__all__ = ["replay_dag"]


def __getattr__(name: str) -> Any:
    # Lazy: every Airflow component loads the plugin in this package, and none of them needs the operators for it.
    if name == "replay_dag":
        return importlib.import_module("tallystick.airflow.dag").replay_dag
    raise AttributeError(f"module 'tallystick.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
