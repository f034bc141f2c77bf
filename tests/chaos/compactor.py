"""Compacts the lake of a round again and again while its runs are active: one process of `tally compact` after the other.

In one of four times, gc collects instead, with a grace for readers that is longer than a round.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from chaos.tally_process import RETRY_LATER, Ended, TallyProcess
from chaos.workspace import Lake, Workspace
from oracle.place import ROOT, Objects
from tallystick_devstack.process import wait_until

# Each file of a round has some kilobytes: a target of 16 KB gives several shared files and files that are large enough.
TARGETS = ("16KB", "64KB", "1MB")
PAUSE_S, IDLE_S = (
    0.3,
    2.0,
)  # after a process that moved something, and after one that found nothing to move
STOP_S = 660.0
COLLECTED_PART = 1 / 4
GC = ("gc", "--delete", "--json", "--reader-grace")
CANCELLED = "its grant was cancelled"


@dataclass(slots=True, kw_only=True)
class Compactions:
    """What became of compactions: published ones are counted from the lake, the others from the processes.

    `outdated`, `cancelled`: compactions that were not published; `refused`: processes that ended because S3 did not
    answer; `killed`: processes; `left`: objects of unpublished compactions that gc deleted.
    """

    published: int = 0
    killed: int = 0
    outdated: int = 0
    cancelled: int = 0
    refused: int = 0
    left: int = 0

    def add(self, other: Compactions) -> None:
        """Add the counts of another round."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, name)} {name}" for name in self.__slots__)


@dataclass(slots=True, kw_only=True)
class Compactor:
    """A thread that keeps one process running, from the first commit of the lake to the end of its `with` block.

    `current`: the running process of `tally compact`; `problems`: ends of processes that no fault explains.
    """

    workspace: Workspace
    lake: Lake
    target: str
    rng: random.Random
    note: Callable[[str], None]
    counts: Compactions = field(default_factory=Compactions)
    problems: list[str] = field(default_factory=list)
    current: TallyProcess | None = None
    _end: threading.Event = field(default_factory=threading.Event)
    _free: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        current = self.current
        if kind is not None and current is not None:
            current.kill()
        assert self._thread is not None
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self.problems.append("tally compact does not end")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the end of the running process, and start no other one during the block."""
        with self._free:
            yield

    def compact(self) -> Ended:
        """Run one more process of `tally compact`, and return its end."""
        process = self._started()
        ended = process.end()
        self.count(ended)
        return ended

    def collect(self, *, reader_grace: str = "30m", cancel_after: str = "7d") -> Ended:
        """Run `tally gc --delete`, and return its end. Without a short `cancel_after`, no grant is cancelled."""
        options = (*GC[1:], reader_grace, "--cancel-after", cancel_after)
        return TallyProcess(self.workspace, self.lake, GC[0], *options).end()

    def wait_for_one(self, deadline_s: float) -> None:
        """Wait until a compaction is published, or a process has a problem; raises SettingsError after the deadline."""
        objects = Objects(self.workspace.place(self.lake))
        try:
            wait_until(
                lambda: published(objects) > 0 or bool(self.problems),
                deadline_s=deadline_s,
                what="a published compaction",
                poll_s=0.3,
            )
        finally:
            objects.close()

    def _run(self) -> None:
        objects = Objects(self.workspace.place(self.lake), attempts=1)
        try:
            while not self._end.is_set():
                moved = False
                with self._free:
                    if not self._end.is_set() and _is_begun(objects):
                        moved = self._run_one()
                self._end.wait(PAUSE_S if moved else IDLE_S)
        except Exception as error:  # a defect of the harness must be reported
            self.problems.append(f"the compactor failed: {type(error).__name__}: {error}")
            raise
        finally:
            objects.close()

    def _run_one(self) -> bool:
        """Run one process; return False if it found nothing to move."""
        if self.rng.random() < COLLECTED_PART:
            ended = self.collect()
            if ended.code not in (0, RETRY_LATER):
                self.problems.append(f"tally gc ended with {ended}")
            return False
        self.current = self._started()
        try:
            ended = self.current.end()
        except subprocess.TimeoutExpired as error:
            self.problems.append(f"tally compact does not end: {error}")
            return False
        finally:
            self.current = None
        self.count(ended)
        return ended.code != 0 or '"tables": {}' not in ended.out

    def _started(self) -> TallyProcess:
        options = ("--target-size", self.target, "--min-files", "2", "--older-than", "0s")
        return TallyProcess(self.workspace, self.lake, "compact", *options, "--json")

    def count(self, ended: Ended) -> None:
        """Count the end of a process of `tally compact`, and keep it as a problem if no fault explains it."""
        if ended.code == 0:
            answer: dict[str, Any] = json.loads(ended.out)
            reasons = Counter(answer["left"].values())
            self.counts.cancelled += reasons.pop(CANCELLED, 0)
            self.counts.outdated += reasons.total()
            for reason in reasons:
                self.note(f"compaction outdated: {reason}")
        elif ended.is_killed:
            self.counts.killed += 1
        elif ended.code == RETRY_LATER:
            self.counts.refused += 1
        else:
            self.problems.append(f"tally compact ended with {ended}")


def _is_begun(objects: Objects) -> bool:
    """Return True if something is committed; False while S3 does not answer."""
    try:
        root = objects.find(ROOT)
    except (BotoCoreError, ClientError):
        return False
    return root is not None and root["record"] is not None


def published(objects: Objects) -> int:
    """Return the number of compactions that the root's list of records has."""
    key, count = objects.json(ROOT)["compacted"], 0
    while key is not None:
        record = objects.json(key)
        count, key = count + len(record["compactions"]), record["compacted"]
    return count
