"""Runs input splits one after another in one process: a split is read while the one before it is written and uploaded.

Most of the time of an upload is waiting for the store. The job's transform is never called by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from tallystick.engine.input_splits import InputSplit
from tallystick.engine.task import Reading, SplitRun, TaskResult, Work
from tallystick.runtime.loading import first_work


def run_in_turn(
    work: Work, splits: Sequence[InputSplit], reading_of: Callable[[InputSplit], Reading]
) -> list[TaskResult]:
    """Stage the splits under the attempt's prefix and return their results in order; raises the first error of a split.

    The rows of at most two splits are in memory. Safe to repeat, see `run_split`.
    """
    results: list[TaskResult] = []
    finishing: Future[TaskResult] | None = None
    # The thread ends before the local files of the runs are removed.
    with ExitStack() as runs, ThreadPoolExecutor(1, "tallystick-finish") as pool:
        for split in splits:
            run = runs.enter_context(SplitRun(work, split))
            with first_work():
                run.read(reading_of(split))
            if finishing is not None:
                results.append(finishing.result())
            finishing = pool.submit(run.finish)
        if finishing is not None:
            results.append(finishing.result())
    return results
