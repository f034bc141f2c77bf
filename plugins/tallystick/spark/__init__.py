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
from typing import Any


def run(transform: Callable[..., Any]) -> None:
    """Stage the plans that spark-submit's arguments name with `transform`, and end this process.

    Exit codes: 0 if the plans are staged, 75 if the task should retry later, 76 if another run superseded this one, 77 if
    an operator must act, 1 for any other error. Safe to repeat: a run writes only under the prefix of its own attempt,
    and commits nothing.
    """
    # pyspark, pyarrow and numba are imported here, so that a job file can be imported, tested and linted without them.
    from tallystick.spark.entry import main

    main(transform)


def run_dataframe(transform: Callable[..., Any]) -> None:
    """Stage the plans that spark-submit's arguments name with a transform of DataFrames, and end this process.

    `transform(records)` or `transform(records, context)` returns one DataFrame per declared table, by name. `records` is
    a DataFrame of the interval's decoded records with their lineage. If the pipeline reads several topics, `records` is a
    dict of such frames by topic. `context` is a `tallystick.spark.context.Context`. The exit codes are those of `run`.
    Safe to repeat, for the same reason as `run`.
    """
    from tallystick.spark.entry import main
    from tallystick.spark.frames import stage_frames

    main(transform, staging=stage_frames)


__all__ = ["run", "run_dataframe"]
