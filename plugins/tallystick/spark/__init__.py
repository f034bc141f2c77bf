"""Runs a job file under spark-submit. The only package that imports pyspark, and a job file's only import.

from tallystick.spark import run

def transform(records): ...             # per batch, Arrow in, Arrow out: one pass, the faster kind

if __name__ == "__main__":
    run(transform)

from tallystick.spark import run_dataframe

def transform(records, context): ...    # per interval, Spark DataFrames: joins, windows, anything that shuffles

if __name__ == "__main__":
    run_dataframe(transform)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tallystick.runtime.lazy import lazy
from tallystick.runtime.loading import loading

if TYPE_CHECKING:
    from tallystick.spark.context import Context as Context
    from tallystick.spark.state import deduplicated as deduplicated
    from tallystick.spark.state import running as running
    from tallystick.spark.state import sessioned as sessioned
    from tallystick.spark.state import windowed as windowed
    from tallystick.stateful import Aggregate as Aggregate
    from tallystick.stateful import Sessions as Sessions
    from tallystick.stateful import Windows as Windows

__all__ = [
    "Aggregate",
    "Context",
    "Sessions",
    "Windows",
    "deduplicated",
    "run",
    "run_dataframe",
    "running",
    "sessioned",
    "windowed",
]

# pyspark, pyarrow and numpy are imported on first use: a job file can be imported, tested and linted without them.
__getattr__ = lazy(
    __name__,
    {"Context": "tallystick.spark.context"}
    | {n: "tallystick.spark.state" for n in ("deduplicated", "running", "sessioned", "windowed")}
    | {name: "tallystick.stateful" for name in ("Aggregate", "Sessions", "Windows")},
)


def __dir__() -> list[str]:
    return sorted(__all__)


def run(transform: Callable[..., Any]) -> None:
    """Stage the plans that spark-submit's arguments name with `transform`, and end this process.

    Exit codes: 0 if the plans are staged, 75 if the task should retry later, 76 if another run superseded this one, 77 if
    an operator must act, 1 for any other error. Safe to repeat: a run writes only under the prefix of its own attempt,
    and commits nothing.
    """
    with loading():
        from tallystick.spark.entry import main

    main(transform)


def run_dataframe(transform: Callable[..., Any]) -> None:
    """Stage the plans that spark-submit's arguments name with a transform of DataFrames, and end this process.

    `transform(records)` or `transform(records, context)` returns one DataFrame per declared table, by name. `records` is
    a DataFrame of the interval's decoded records with their lineage. If the pipeline reads several topics, `records` is a
    dict of such frames by topic. `context` is a `tallystick.spark.context.Context`. The exit codes are those of `run`.
    Safe to repeat, for the same reason as `run`.
    """
    with loading():
        from tallystick.spark.entry import main
        from tallystick.spark.frames import stage_frames

    main(transform, staging=stage_frames)
