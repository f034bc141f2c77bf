"""The process that owns a stack: it starts the parts, starts those again that die, and stops them in reverse order.

Run as `python -m tallystick_devstack.supervisor STATE_DIR PROJECT_DIR PARTS LOG STARTER`, or within
`up(foreground=True)`. Ctrl-C, SIGTERM and a closed terminal are a clean stop, and so is the end of the process STARTER
(its number and when it started) unless SIGUSR1 came before it. Killed with -9, it takes every part with it: each one's
warden sees to that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from types import FrameType

from tallystick.errors import TallystickError
from tallystick_devstack.info import PARTS, SUPERVISOR_LOG, supervisor_lock
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.process import started_at
from tallystick_devstack.progress import Report, say
from tallystick_devstack.rotation import rotate

_WATCH_S = 0.5


class _StopRequested(BaseException):
    """A request to stop while parts are still starting."""


def supervise(
    state_dir: Path,
    *,
    project_dir: Path,
    parts: Collection[str] = PARTS,
    report: Report | None = None,
    log: Path | None = None,
    starter: str | None = None,
) -> None:
    """Own the stack of a state folder until SIGTERM, SIGINT or SIGHUP, then stop it; for the main thread of a process.

    `log`: the file that this process writes to; it becomes the folder's supervisor.log once the folder is ours.
    `starter`, as `pid:started_at`: a process whose end is a request to stop, too, until SIGUSR1 comes. Raises
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
            number: signal.signal(number, asked)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            # Under nohup a closed terminal is ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        }
        released = threading.Event()
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: released.set())
        if starter is not None:
            threading.Thread(target=_follow, args=(starter, released), daemon=True).start()
        try:
            stack.start(tell)
            starting = False
            while not stopping.wait(_WATCH_S):
                stack.revive(tell)
                rotate([*stack.logs(), state_dir / SUPERVISOR_LOG])
        except _StopRequested:
            tell("asked to stop while starting")
        finally:
            starting = False
            stopping.set()  # a second Ctrl-C does not interrupt the stop, which has deadlines of its own
            stack.stop(tell)
            released.set()
            for number, handler in before.items():
                signal.signal(number, handler)


def _follow(starter: str, released: threading.Event) -> None:
    """Ask this process to stop once the starter has ended, unless it has released us before."""
    pid, _, started = starter.partition(":")
    while not released.wait(_WATCH_S):
        if started_at(int(pid)) != started:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def main(words: list[str]) -> int:
    """Supervise as the command line says; 0 after a clean stop, 1 where a part did not come up."""
    state_dir, project_dir, parts, log, starter = words
    try:
        supervise(
            Path(state_dir),
            project_dir=Path(project_dir),
            parts=parts.split(","),
            log=Path(log),
            starter=starter,
        )
    except TallystickError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
