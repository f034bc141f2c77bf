"""The example `files`: one file per day, written under a hidden name and then renamed; one day is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from examples.checks import Ruling, ruling
from examples.checks.sent import part
from examples.demo.flights import csv_archive
from examples.files import check
from examples.runner.produce import Batch, create_topic, flights, produce
from examples.runner.scene import Scene, day
from examples.runner.strike import Blow

TOPIC, PARTITIONS = "examples-files", 3
DAYS, STRUCK_DAY, REPLACED_DAY = (1, 2, 3), 4, 2
LATE, LATER = 15, 30
ABORTED = 40
_LOOK_S = 0.002


class Files:
    """Three days by the schedule, the second one replaced by a changed job, the fourth under a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.folder / "departures"
        self.late_minutes: dict[datetime, int] = {}
        self.seen: dict[str, list[str]] = {}

    def fill(self) -> int:
        """Four days of real flights; before the second day's a transaction of copies that is aborted."""
        first = flights(1, 1, partitions=PARTITIONS)
        second = flights(2, 2, partitions=PARTITIONS)
        rest = flights(3, STRUCK_DAY, partitions=PARTITIONS)
        batches = [
            Batch(end="plain", records=first),
            Batch(end="aborted", records=second[:ABORTED]),
            Batch(end="committed", records=second),
            Batch(end="plain", records=rest),
        ]
        create_topic(self.scene.kafka, TOPIC, partitions=PARTITIONS)
        return produce(self.scene.kafka, TOPIC, batches, sent=self.scene.sent)

    def plain(self) -> None:
        """The schedule's three days; then the second one again, by a changed job, before a reader's eyes."""
        runs = self.scene.catch_up(len(DAYS))
        self.late_minutes = {day(number): LATE for number in DAYS}
        self.scene.say("three days are out; the job is changed, and Clear of plan of 2 January")
        self.scene.change_job(f"LATE_MINUTES = {LATE}", f"LATE_MINUTES = {LATER}")
        name = f"{part(day(REPLACED_DAY))}.jsonl"
        with self._reader(name):
            self.scene.clear(runs[DAYS.index(REPLACED_DAY)])
        self.late_minutes[day(REPLACED_DAY)] = LATER

    def struck(self) -> Blow:
        """The fourth day."""
        file = self.folder / f"{part(day(STRUCK_DAY))}.jsonl"
        blow = self.scene.strike(
            day(STRUCK_DAY), day(STRUCK_DAY + 1), out=lambda: int(file.exists())
        )
        self.late_minutes[day(STRUCK_DAY)] = LATER
        return blow

    def judge(self) -> Ruling:
        """The folder alone."""
        return ruling(
            lambda: check.judge(
                self.folder,
                self.scene.sent,
                csv_archive(),
                late_minutes=self.late_minutes,
                seen=self.seen,
            )
        )

    @contextmanager
    def _reader(self, name: str) -> Iterator[None]:
        """Read a file again and again, and keep each text that differs from the one before."""
        texts = self.seen.setdefault(name, [])
        enough = threading.Event()
        thread = threading.Thread(target=_read, args=(self.folder / name, texts, enough))
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()


def _read(path: Path, texts: list[str], enough: threading.Event) -> None:
    while True:
        last = enough.is_set()
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = "(no file)"
        if not texts or text != texts[-1]:
            texts.append(text)
        if last:
            return
        enough.wait(_LOOK_S)
