"""Logs the progress of running Spark stages. Without it, a long stage writes nothing to Airflow's task log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

log = logging.getLogger("tallystick.spark")
EVERY_S = 10.0


@contextmanager
def progress_logged(session: SparkSession) -> Iterator[None]:
    """Log the progress of each running stage every EVERY_S seconds, as long as the block runs."""
    over = threading.Event()
    logger = threading.Thread(target=_log, args=(session, over), name="progress", daemon=True)
    logger.start()
    try:
        yield
    finally:
        over.set()
        logger.join(EVERY_S)  # if the JVM hangs, the task must still end


def _log(session: SparkSession, over: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    begun: dict[int, float] = {}
    while not over.wait(EVERY_S):
        try:
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is None:
                    continue
                # When a stage is first seen, it has run for up to EVERY_S.
                since = begun.setdefault(stage_id, time.monotonic() - EVERY_S)
                elapsed_s = time.monotonic() - since
                done, total = stage.numCompletedTasks, stage.numTasks
                log.info(
                    "stage %d: %s, %d running, %d failed, %.0f s",
                    stage_id,
                    progress_text(done, total, elapsed_s),
                    stage.numActiveTasks,
                    stage.numFailedTasks,
                    elapsed_s,
                )
        except Exception as error:  # noqa: BLE001 - if Spark fails, the action itself raises
            log.debug("no progress to log: %s", error)


def progress_text(done: int, total: int, elapsed_s: float) -> str:
    """Return the progress as text. If a task is done, it includes an estimate of the seconds left at this rate."""
    percent = f"{done} of {total} task(s) done ({done / total:.0%})"
    if not done:
        return percent
    return f"{percent}, about {elapsed_s / done * (total - done):.0f} s left"
