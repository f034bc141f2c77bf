"""Makes calls beside each other, and ends together: whatever goes wrong, what was acknowledged is known."""

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
    """Says whether other calls have failed, so that nothing new is begun; waits no longer than until then."""

    def is_set(self) -> bool:
        """Whether it is over."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait, at most until it is over."""
        ...


def call_all(
    some: Iterable[Effect], call: Call, *, threads: int, stop: threading.Event, done: list[int]
) -> None:
    """Make these calls, `threads` at once; `done` gets the numbers of those that came back well, whatever is raised.

    After the first that fails none is begun, and those that are under way are waited for: an answer that is already
    on its way must not become a doubt. Raises what a person has to mend first, else the first error by number.
    """
    failed: dict[int, BaseException] = {}

    def one(effect: Effect) -> None:
        if stop.is_set():
            return
        try:
            call(effect)
        except BaseException as error:  # noqa: BLE001 - kept and raised below, once all have ended
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
                stop.set()  # the task is ending: let those end that are under way
                raise
    if failed:
        raise _first(failed)


def _first(failed: dict[int, BaseException]) -> BaseException:
    """Anything that is none of ours, then what a person has to mend, then what time mends."""

    def rank(number: int) -> tuple[int, int]:
        error = failed[number]
        ours = isinstance(error, TallystickError)
        return (0 if not ours else 1 if isinstance(error, ActionRequired) else 2, number)

    return failed[min(failed, key=rank)]


class Pace:
    """At most so many calls per second by this process; None: as many as there are."""

    def __init__(self, per_s: float | None) -> None:
        self._gap_s = 0.0 if per_s is None else 1 / per_s
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, stop: Stopping) -> None:
        """Wait for a turn, or until all is to end."""
        if not self._gap_s:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._next)
            self._next = mine + self._gap_s
        stop.wait(mine - now)
