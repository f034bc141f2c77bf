"""Runs a job file as `tallystick.spark.run` does, with the engine in this process also if Spark was requested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.spark.entry import main
from tallystick.spark.without_spark import stage_without_spark


def run(transform: Callable[..., Any]) -> None:
    """Run the job with this process's arguments, and exit."""
    main(transform, staging=stage_without_spark)
