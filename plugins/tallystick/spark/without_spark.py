"""Stages a small Arrow job in the driver's own process, split by split, with the code that Spark's tasks run.

Most of a small interval's cost is the start of Spark: a JVM, its classes, and Python workers. Nothing here imports
pyspark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.engine.attempt import assemble
from tallystick.engine.in_turn import run_in_turn
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.spark.order import Order

log = logging.getLogger("tallystick.spark")


def stage_without_spark(
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    staged: Sequence[tuple[Plan, Report]] = (),
) -> Report:
    """Stage an Arrow job in this process and return its report, which is not written yet; raises the errors of its tasks.

    `staged` is not used: an Arrow job has no lookback. Safe to repeat: each upload has a key of its own under the
    attempt's prefix, and no report names the files of an attempt that failed (C4).
    """
    del staged
    work = order.work(lake.store, transform)
    groups = order.groups
    log.info("without Spark: %d input split(s) in %d group(s)", len(order.splits), len(groups))
    with order.readings() as reading_of:
        results = run_in_turn(work, groups, reading_of)
    return assemble(work, order.splits, results)
