"""The example `files`: one file per day, written under a hidden name and then renamed; one day is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from examples.checks import CheckResult, run_check
from examples.checks.sent import part
from examples.demo.flights import csv_archive
from examples.files import check
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, create_topic, flights, produce
from examples.runner.publisher_kill import KillResult

TOPIC, PARTITIONS = "examples-files", 3
DAYS, KILL_DAY, REPLACED_DAY = (1, 2, 3), 4, 2
LATE, LATER = 15, 30
ABORTED = 40
_READ_S = 0.002


class Files:
    """Three days by the schedule, the second replaced by a changed job, the fourth with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.folder = harness.folder / "departures"
        self.late_minutes: dict[datetime, int] = {}
        self.texts_read: dict[str, list[str]] = {}

    def fill(self) -> int:
        """Send four days of real flights; before those of the second day, copies in a transaction that is aborted."""
        first = flights(1, 1, partitions=PARTITIONS)
        second = flights(2, 2, partitions=PARTITIONS)
        rest = flights(3, KILL_DAY, partitions=PARTITIONS)
        batches = [
            Batch(end="plain", records=first),
            Batch(end="aborted", records=second[:ABORTED]),
            Batch(end="committed", records=second),
            Batch(end="plain", records=rest),
        ]
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the days of the schedule, then the second again by a changed job, while a reader reads its file."""
        runs = self.harness.catch_up(len(DAYS))
        self.late_minutes = {day(number): LATE for number in DAYS}
        self.harness.log(
            "three days are published; the job is changed, and Clear of plan of 2 January"
        )
        self.harness.change_job(f"LATE_MINUTES = {LATE}", f"LATE_MINUTES = {LATER}")
        name = f"{part(day(REPLACED_DAY))}.jsonl"
        with self._reader(name):
            self.harness.clear(runs[DAYS.index(REPLACED_DAY)])
        self.late_minutes[day(REPLACED_DAY)] = LATER

    def with_kill(self) -> KillResult:
        """Run the fourth day."""
        file = self.folder / f"{part(day(KILL_DAY))}.jsonl"
        result = self.harness.kill_publisher(
            day(KILL_DAY), day(KILL_DAY + 1), count_published=lambda: int(file.exists())
        )
        self.late_minutes[day(KILL_DAY)] = LATER
        return result

    def check(self) -> CheckResult:
        """Check the folder alone."""
        return run_check(
            lambda: check.compare(
                self.folder,
                self.harness.sent,
                csv_archive(),
                late_minutes=self.late_minutes,
                texts_read=self.texts_read,
            )
        )

    @contextmanager
    def _reader(self, name: str) -> Iterator[None]:
        """Read a file repeatedly within the block, and record each text that differs from the previous text."""
        texts = self.texts_read.setdefault(name, [])
        stop = threading.Event()
        thread = threading.Thread(target=_read, args=(self.folder / name, texts, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _read(path: Path, texts: list[str], stop: threading.Event) -> None:
    while True:
        last = stop.is_set()
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = "(no file)"
        if not texts or text != texts[-1]:
            texts.append(text)
        if last:
            return
        stop.wait(_READ_S)
