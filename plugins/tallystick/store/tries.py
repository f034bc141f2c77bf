"""Sends one write again while its outcome is unknown, until a deadline."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import OutcomeUnknown, StoreUnavailable, TallystickError
from tallystick.runtime import Runtime
from tallystick.store import Outcome, Unknown

UNKNOWN_S = 120.0
PAUSE_S = 0.05
PAUSE_MAX_S = 2.0


def pause(runtime: Runtime, tries: int) -> None:
    """Sleep before the next try, up to PAUSE_MAX_S. `tries`: the tries so far; the sleep grows exponentially with it.

    The jitter is full: each swap forces the other writers to start again, so they must not retry at the same moments.
    """
    runtime.sleep(min(PAUSE_MAX_S, PAUSE_S * 2 ** min(tries, 10)) * runtime.chance())


class WriteTries:
    """The tries of one write, for at most `unknown_s` seconds. `what` is the written object, for messages."""

    def __init__(self, runtime: Runtime, what: str, *, unknown_s: float = UNKNOWN_S) -> None:
        self._runtime, self._what = runtime, what
        self._deadline = runtime.monotonic_s() + unknown_s
        self._unknown = 0

    def send(self, write: Callable[[], Outcome]) -> Outcome:
        """Send the write once and return its outcome.

        If an earlier try is unknown, StoreUnavailable becomes `Unknown`, and any other error becomes OutcomeUnknown,
        because the earlier try may have landed. Else errors are raised unchanged.
        """
        try:
            return write()
        except StoreUnavailable as error:
            if not self._unknown:
                raise
            # This try did not land, but an earlier one may have. The caller tries until the store responds again.
            return Unknown(because=str(error))
        except TallystickError as error:
            if self._unknown:
                raise self._in_doubt(str(error)) from error
            raise

    def wait_or_raise(self, why: str) -> None:
        """Wait before the next try after one that ended unknown. Raises OutcomeUnknown if the deadline is over."""
        self._unknown += 1
        if self._runtime.monotonic_s() >= self._deadline:
            raise self._in_doubt(why)
        pause(self._runtime, self._unknown - 1)

    def _in_doubt(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the outcome of writing {self._what} is unknown after {self._unknown} tries ({why}).",
            hint="run the task again: it reads which write was applied. Nothing was deleted.",
        )
