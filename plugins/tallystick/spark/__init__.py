"""Runs a job file under spark-submit. The only package that imports pyspark, and a job file's only import.

from tallystick.spark import run

def transform(records): ...

if __name__ == "__main__":
    run(transform)
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


__all__ = ["run"]
