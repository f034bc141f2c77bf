"""Runs a job file under spark-submit. The only package that imports pyspark, and a job file's only import.

from tallystick.spark import run

def transform(records): ...             # per batch, Arrow in, Arrow out: one pass, the fast path

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

    Exit codes: 0 staged, 75 try again later, 76 someone else decided, 77 a person has to act, 1 anything else. Safe to
    repeat: a run writes under its own attempt's prefix only, and publishes nothing.
    """
    # pyspark, pyarrow and numba load here: a job file can be imported, tested and linted without them.
    from tallystick.spark.entry import main

    main(transform)


def run_dataframe(transform: Callable[..., Any]) -> None:
    """Stage the plans that spark-submit's arguments name with a transform of DataFrames, and end this process.

    `transform(records)` or `transform(records, context)` returns one DataFrame per declared table, by name. `records` is
    the interval's decoded records with their lineage; where the pipeline reads several topics, a dict of such frames by
    topic. `context` is `tallystick.spark.context.Context`. Exit codes and repeats are as with `run`.
    """
    from tallystick.spark.entry import main
    from tallystick.spark.frames import stage_frames

    main(transform, staging=stage_frames)


__all__ = ["run", "run_dataframe"]
