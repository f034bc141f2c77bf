"""Makes calls in parallel and waits for all of them: if one fails, the calls that were acknowledged are still known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from tallystick.errors import ActionRequired, TallystickError
from tallystick.outputs.calls.effects import Effect

Call = Callable[[Effect], None]


class Stopping(Protocol):
    """A signal that is set when a call has failed, so that no other call begins."""

    def is_set(self) -> bool:
        """Return True if the signal is set."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait until the signal is set, at most `timeout` seconds."""
        ...


def call_all(
    some: Iterable[Effect], call: Call, *, threads: int, stop: threading.Event, done: list[int]
) -> None:
    """Make these calls, `threads` at once.

    `done` gets the numbers of the calls that succeeded, even if an error is raised. When a call fails, no other call
    begins, and the calls that are under way are waited for: an answer that is already on its way must not become a
    doubt. Raises an error that a person has to fix first, otherwise the first error by number.
    """
    failed: dict[int, BaseException] = {}

    def one(effect: Effect) -> None:
        if stop.is_set():
            return
        try:
            call(effect)
        except BaseException as error:  # noqa: BLE001 - kept and raised below, when all calls have ended
            failed[effect.number] = error
            stop.set()
        else:
            done.append(effect.number)

    if threads == 1:
        for effect in some:
            one(effect)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="call") as pool:
            try:
                futures: list[Future[None]] = [pool.submit(one, effect) for effect in some]
                for future in futures:
                    future.result()
            except BaseException:
                stop.set()  # the task is ending: only calls that are under way are completed
                raise
    if failed:
        raise _first(failed)


def _first(failed: dict[int, BaseException]) -> BaseException:
    """Return the error to raise.

    First one that is not tallystick's, then one that a person has to fix, then one that passes with time.
    """

    def rank(number: int) -> tuple[int, int]:
        error = failed[number]
        ours = isinstance(error, TallystickError)
        return (0 if not ours else 1 if isinstance(error, ActionRequired) else 2, number)

    return failed[min(failed, key=rank)]


class Pace:
    """A limit of calls per second for this process; None: no limit."""

    def __init__(self, per_s: float | None) -> None:
        self._gap_s = 0.0 if per_s is None else 1 / per_s
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, stop: Stopping) -> None:
        """Wait for a turn, or until `stop` is set."""
        if not self._gap_s:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._next)
            self._next = mine + self._gap_s
        stop.wait(mine - now)
