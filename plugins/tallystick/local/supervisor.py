"""The process that owns a stack: it starts the parts, starts those again that die, and stops them in reverse order.

Run as `python -m tallystick.local.supervisor STATE_DIR PROJECT_DIR PARTS LOG`, or within `up(foreground=True)`. Ctrl-C
and SIGTERM are a clean stop. Killed with -9, it takes every part with it: each one's warden sees to that.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from types import FrameType

from tallystick.errors import TallystickError
from tallystick.local.info import PARTS, SUPERVISOR_LOG, supervisor_lock
from tallystick.local.parts import LocalStack
from tallystick.local.progress import Report, say

_WATCH_S = 0.5


class _StopRequested(BaseException):
    """Ctrl-C or SIGTERM, while parts are still starting."""


def supervise(
    state_dir: Path,
    *,
    project_dir: Path,
    parts: Collection[str] = PARTS,
    report: Report | None = None,
    log: Path | None = None,
) -> None:
    """Own the stack of a state folder until SIGTERM or SIGINT, then stop it; for the main thread of a process.

    `log`: the file that this process writes to; it becomes the folder's supervisor.log once the folder is ours. Raises
    SettingsError where another supervisor owns the folder, or a part does not come up (the others are stopped).
    Safe to repeat: what an earlier stack left in the folder is used again.
    """
    tell = report or say
    stopping = threading.Event()
    starting = True

    def asked(number: int, frame: FrameType | None) -> None:
        first = not stopping.is_set()
        stopping.set()
        if first and starting:
            raise _StopRequested

    with supervisor_lock(state_dir):
        if log is not None:
            # Not earlier: whoever loses the lock must not replace what the winner writes.
            log.rename(state_dir / SUPERVISOR_LOG)
        stack = LocalStack(state_dir, project_dir=project_dir, parts=parts)
        before = {
            number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            stack.start(tell)
            starting = False
            while not stopping.wait(_WATCH_S):
                stack.revive(tell)
        except _StopRequested:
            tell("asked to stop while starting")
        finally:
            starting = False
            stopping.set()  # a second Ctrl-C does not interrupt the stop, which has deadlines of its own
            stack.stop(tell)
            for number, handler in before.items():
                signal.signal(number, handler)


def main(words: list[str]) -> int:
    """Supervise as the command line says; 0 after a clean stop, 1 where a part did not come up."""
    state_dir, project_dir, parts, log = words
    try:
        supervise(
            Path(state_dir), project_dir=Path(project_dir), parts=parts.split(","), log=Path(log)
        )
    except TallystickError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
