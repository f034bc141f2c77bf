"""Runs tasks one after another in one process: a task reads while the one before it writes and uploads.

Most of the time of an upload is waiting for the store. The job's transform is never called by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from tallystick.engine.input_splits import InputSplit
from tallystick.engine.task import Reading, TaskResult, TaskRun, Work
from tallystick.runtime.loading import first_work


def run_in_turn(
    work: Work,
    groups: Sequence[Sequence[InputSplit]],
    reading_of: Callable[[InputSplit], Reading],
) -> list[TaskResult]:
    """Stage groups of splits under the attempt's prefix and return the results in order; raises the first error.

    The rows of at most two groups are in memory. Safe to repeat, see `run_splits`.
    """
    results: list[TaskResult] = []
    finishing: Future[list[TaskResult]] | None = None
    # The thread ends before the local files of the runs are removed.
    with ExitStack() as runs, ThreadPoolExecutor(1, "tallystick-finish") as pool:
        for splits in groups:
            run = runs.enter_context(TaskRun(work, splits))
            with first_work():
                run.read(reading_of)
            if finishing is not None:
                results += finishing.result()
            finishing = pool.submit(run.finish)
        if finishing is not None:
            results += finishing.result()
    return results
