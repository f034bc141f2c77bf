"""tallystick: Airflow-orchestrated, exactly-once batch replay from Kafka to Iceberg tables on plain S3.

Public names are loaded on first use, so that parsing a DAG file costs nothing that it does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.pipeline import Column as Column
    from tallystick.pipeline import Json as Json
    from tallystick.pipeline import Lookback as Lookback
    from tallystick.pipeline import Pipeline as Pipeline
    from tallystick.pipeline import Table as Table
    from tallystick.pipeline import Topic as Topic

__version__ = "0.1.0"
__all__ = ["Column", "Json", "Lookback", "Pipeline", "Table", "Topic", "__version__"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("tallystick.pipeline"), name)
    raise AttributeError(f"module 'tallystick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
