"""Airflow DAGs for pipelines. Only this package imports airflow.

A DAG file needs only `replay_dag`, `gc_dag` or `compact_dag`; a DAG that is scheduled by commits needs `asset_of` or
`interval_asset_of`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.runtime.lazy import lazy

if TYPE_CHECKING:
    from tallystick.airflow.assets import IntervalCommitted as IntervalCommitted
    from tallystick.airflow.assets import asset_of as asset_of
    from tallystick.airflow.assets import committed_intervals as committed_intervals
    from tallystick.airflow.assets import interval_asset_of as interval_asset_of
    from tallystick.airflow.compact import compact_dag as compact_dag
    from tallystick.airflow.dag import replay_dag as replay_dag
    from tallystick.airflow.gc import gc_dag as gc_dag

__all__ = [
    "IntervalCommitted",
    "asset_of",
    "committed_intervals",
    "compact_dag",
    "gc_dag",
    "interval_asset_of",
    "replay_dag",
]

# Every Airflow component loads the plugin of this package, and the plugin does not need the operators.
__getattr__ = lazy(
    __name__,
    {
        "IntervalCommitted": "tallystick.airflow.assets",
        "asset_of": "tallystick.airflow.assets",
        "committed_intervals": "tallystick.airflow.assets",
        "compact_dag": "tallystick.airflow.compact",
        "gc_dag": "tallystick.airflow.gc",
        "interval_asset_of": "tallystick.airflow.assets",
        "replay_dag": "tallystick.airflow.dag",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
