"""Processes that poll and write, and the numbers that they share."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

PAUSE_S = 0.02
_ENDS_WITHIN_S = 120.0


class Progress:
    """Counters of all processes: polls that were begun and completed, commits, errors that are not retryable; the end."""

    def __init__(self, context: SpawnContext) -> None:
        self._begun = context.Value("q", 0)
        self._polls = context.Value("q", 0)
        self._failures = context.Value("q", 0)
        self._commits = context.Value("q", 0)
        self._ends = context.Event()

    @property
    def polls(self) -> int:
        """The completed polls."""
        return _value(self._polls)

    @property
    def failures(self) -> int:
        """The polls that ended with an error that is not retryable."""
        return _value(self._failures)

    @property
    def commits(self) -> int:
        """The commits of the writer."""
        return _value(self._commits)

    def next_number(self) -> int:
        """Return the number of a poll; no other process gets it."""
        return _increment(self._begun) - 1

    def add_poll(self) -> None:
        """Count a completed poll."""
        _increment(self._polls)

    def add_failure(self) -> None:
        """Count a poll with an error that is not retryable."""
        _increment(self._failures)

    def add_commit(self) -> None:
        """Count a commit."""
        _increment(self._commits)

    def end(self) -> None:
        """End all processes after what they are doing."""
        self._ends.set()

    @property
    def is_ended(self) -> bool:
        """True after `end`, and if the process that started this one is gone."""
        parent = multiprocessing.parent_process()
        return self._ends.is_set() or (parent is not None and not parent.is_alive())

    def wait_for_polls(self, count: int) -> bool:
        """Wait until a number of polls is completed; return False at the end."""
        return self.wait_for(lambda: self.polls >= count)

    def wait_for(self, condition: Callable[[], bool], *, limit_s: float | None = None) -> bool:
        """Wait until a condition is true; return False at the end or after a limit."""
        ends_s = None if limit_s is None else time.monotonic() + limit_s
        while not condition():
            if self.is_ended or (ends_s is not None and time.monotonic() > ends_s):
                return False
            time.sleep(PAUSE_S)
        return True


def _value(value: Any) -> int:
    return int(value.value)


def _increment(value: Any) -> int:
    with value.get_lock():
        value.value += 1
        return int(value.value)


@dataclass(slots=True)
class Worker:
    """A process that calls one function and returns its result through a pipe."""

    process: BaseProcess
    receiver: Connection

    @classmethod
    def start(cls, context: SpawnContext, target: Callable[..., Any], *arguments: Any) -> Worker:
        """Start a process. Spawned, not forked: a forked child would share this process's sockets."""
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(sender, target, arguments), daemon=True)
        process.start()
        sender.close()
        return cls(process=process, receiver=receiver)

    @property
    def has_ended(self) -> bool:
        """True if there is a result, or the process is gone."""
        return self.receiver.poll(0)

    def result(self) -> Any:
        """Wait for the result. Raises RuntimeError with the traceback if the function failed, or the process is gone."""
        if not self.receiver.poll(_ENDS_WITHIN_S):
            raise RuntimeError(f"{self.process.name} did not end within {_ENDS_WITHIN_S:g} s")
        try:
            is_good, found = self.receiver.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"{self.process.name}: exit {self.process.exitcode}") from None
        self.process.join()
        if not is_good:
            raise RuntimeError(f"{self.process.name}:\n{found}")
        return found

    def kill(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.receiver.close()


def _call(sender: Connection, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        found = (True, target(*arguments))
    except BaseException:  # noqa: BLE001 - raised again by the process that waits for the result
        found = (False, traceback.format_exc())
    sender.send(found)
    sender.close()
