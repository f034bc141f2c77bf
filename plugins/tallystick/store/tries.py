"""The tries of one write whose outcome may be unknown: when to send it again, and when to give up."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import OutcomeUnknown, StoreUnavailable, TallystickError
from tallystick.runtime import Runtime
from tallystick.store import Outcome, Unknown

UNKNOWN_S = 120.0
PAUSE_S = 0.05
PAUSE_MAX_S = 2.0


def pause(runtime: Runtime, tries: int) -> None:
    """Sleep before the next try, the longer the more tries there were.

    Full jitter: each swap invalidates the work of the others, so writers must not stay in step.
    """
    runtime.sleep(min(PAUSE_MAX_S, PAUSE_S * 2 ** min(tries, 10)) * runtime.chance())


class WriteTries:
    """The tries of one write of `what`, for at most `unknown_s` after the first."""

    def __init__(self, runtime: Runtime, what: str, *, unknown_s: float = UNKNOWN_S) -> None:
        self._world, self._what = runtime, what
        self._deadline = runtime.monotonic_s() + unknown_s
        self._unknown = 0

    def send(self, write: Callable[[], Outcome]) -> Outcome:
        """Send once; an error after an unknown try must not hide that it is unknown. Raises OutcomeUnknown then."""
        try:
            return write()
        except StoreUnavailable as error:
            if not self._unknown:
                raise
            # This try did not land, an earlier one may have: try until the store answers again.
            return Unknown(because=str(error))
        except TallystickError as error:
            if self._unknown:
                raise self._in_doubt(str(error)) from error
            raise

    def wait_or_give_up(self, why: str) -> None:
        """Wait before the next try after one that ended unknown. Raises OutcomeUnknown once the time is up."""
        self._unknown += 1
        if self._world.monotonic_s() >= self._deadline:
            raise self._in_doubt(why)
        pause(self._world, self._unknown - 1)

    def _in_doubt(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"writing {self._what} has no certain outcome after {self._unknown} tries ({why}).",
            hint="nothing was deleted; run the task again: it finds out what landed.",
        )
