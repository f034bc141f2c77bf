"""Runs a job file as `tallystick.spark.run` does, with the engine in this process instead of Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.engine.attempt import assemble
from tallystick.engine.task import run_split
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.spark.entry import main
from tallystick.spark.stage import Order


def run(transform: Callable[..., Any]) -> None:
    """Run the job with this process's arguments, and exit."""
    main(transform, staging=stage_here)


def stage_here(
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    staged: Sequence[tuple[Plan, Report]] = (),
) -> Report:
    """Stage an Arrow job split by split."""
    del staged
    work = order.work(lake.store, transform)
    results = [run_split(work, split, order.reading(split)) for split in order.splits]
    return assemble(work, order.splits, results)
