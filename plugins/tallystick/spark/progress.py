"""A line of progress now and then while Spark works: without it a long stage is silent in Airflow's task log."""

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
def progress_told(session: SparkSession) -> Iterator[None]:
    """Log how far each running stage is, every EVERY_S seconds, as long as the block runs."""
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(session, over), name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(EVERY_S)  # a JVM that hangs must not keep the task from ending


def _tell(session: SparkSession, over: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    begun: dict[int, float] = {}
    while not over.wait(EVERY_S):
        try:
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is None:
                    continue
                # A stage is seen first when it has run for up to one turn.
                since = begun.setdefault(stage_id, time.monotonic() - EVERY_S)
                elapsed_s = time.monotonic() - since
                done, total = stage.numCompletedTasks, stage.numTasks
                log.info(
                    "stage %d: %s, %d running, %d failed, %.0f s",
                    stage_id,
                    told(done, total, elapsed_s),
                    stage.numActiveTasks,
                    stage.numFailedTasks,
                    elapsed_s,
                )
        except Exception as error:  # noqa: BLE001 - the action itself tells what is wrong with Spark
            log.debug("no progress to tell: %s", error)


def told(done: int, total: int, elapsed_s: float) -> str:
    """How far, and, once a task is done, about how long it will take at this pace."""
    percent = f"{done} of {total} task(s) done ({done / total:.0%})"
    if not done:
        return percent
    return f"{percent}, about {elapsed_s / done * (total - done):.0f} s left"
