"""Ends a Spark stage as soon as its finished tasks have more files than a report can list.

Spark adds up an accumulator in the driver, once per task that succeeded. A single task with too many files fails by
itself (`tallystick.engine.room`), and the sum of all tasks is checked again at the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tallystick.engine.room import file_bytes, too_many_files
from tallystick.format.canonical import BODY_BYTES_MAX
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport

log = logging.getLogger("tallystick.spark")
EVERY_S = 1.0


class FilesOfTasks:
    """The bytes that the files of finished tasks take in the report. Tasks get `adders` in their closure."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        *,
        before: Sequence[FileReport] = (),
        bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        """Create the accumulators. `before`: files of the same attempt that are written already."""
        self._context = session.sparkContext
        self._plan = plan
        self._bytes_max = bytes_max
        self._bytes = self._context.accumulator(file_bytes(before))
        self._files = self._context.accumulator(len(before))

    @property
    def adders(self) -> tuple[Any, Any]:
        """The accumulators to which tasks add, see `add_files`."""
        return self._bytes, self._files

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Cancel Spark's jobs if there are too many files while the block runs. Raises InvalidPipeline then."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), name="files", daemon=True)
        watcher.start()
        try:
            yield
        except Exception:
            if self._too_many:
                what = f"{self._files.value} files so far"
                raise too_many_files(what, self._plan, self._bytes_max) from None
            raise
        finally:
            over.set()
            watcher.join(EVERY_S * 10)  # if the JVM hangs, the task must still end

    @property
    def _too_many(self) -> bool:
        return int(self._bytes.value) > self._bytes_max

    def _watch(self, over: threading.Event) -> None:
        logged = False
        while not over.wait(EVERY_S):
            if not self._too_many:
                continue
            if not logged:
                logged = True
                log.warning("more files than a report can list: the remaining tasks are cancelled")
            self._context.cancelAllJobs()  # at each turn: Spark may have been between two jobs


def add_files(adders: tuple[Any, Any], files: Sequence[FileReport]) -> None:
    """Add the files of a task, called in the task. If the task does not succeed, Spark drops what it added."""
    bytes_, count = adders
    bytes_.add(file_bytes(files))
    count.add(len(files))
