"""Runs the process that owns a stack: it starts the parts, restarts dead parts, and stops them in reverse order.

It runs as `python -m tallystick_devstack.supervisor STATE_DIR PROJECT_DIR PARTS LOG STARTER`, or inside
`up(foreground=True)`. It stops cleanly after Ctrl-C, SIGTERM or SIGHUP (a closed terminal), and when the process STARTER
(its id and start time) ends, unless it gets SIGUSR1 before that. If it is killed with -9, the wardens kill every part.
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
from tallystick_devstack.progress import Report, print_line
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
    """Run the stack of a state folder until SIGTERM, SIGINT or SIGHUP, then stop it. Call it in the main thread only.

    `log`: the file that this process writes to. It becomes the folder's supervisor.log when this process has the lock.
    `starter`, as `pid:started_at`: a process whose end also stops the stack, until SIGUSR1 arrives. Raises SettingsError
    if another supervisor owns the folder, or if a part does not start (the others are then stopped).
    Safe to repeat: the state of an earlier stack in the folder is used again.
    """
    report = report or print_line
    stopping = threading.Event()
    starting = True

    def request_stop(number: int, frame: FrameType | None) -> None:
        first = not stopping.is_set()
        stopping.set()
        if first and starting:
            raise _StopRequested

    with supervisor_lock(state_dir):
        if log is not None:
            # Not before the lock is held: a process without the lock must not replace the log of its owner.
            log.rename(state_dir / SUPERVISOR_LOG)
        stack = LocalStack(state_dir, project_dir=project_dir, parts=parts)
        before = {
            number: signal.signal(number, request_stop)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
            # Under nohup, SIGHUP is ignored and must stay ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        }
        released = threading.Event()
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: released.set())
        if starter is not None:
            threading.Thread(target=_follow, args=(starter, released), daemon=True).start()
        try:
            stack.start(report)
            starting = False
            while not stopping.wait(_WATCH_S):
                stack.revive(report)
                rotate([*stack.logs(), state_dir / SUPERVISOR_LOG])
        except _StopRequested:
            report("stop requested while starting")
        finally:
            starting = False
            stopping.set()  # a second Ctrl-C must not interrupt the stop, which has its own deadlines
            stack.stop(report)
            released.set()
            for number, handler in before.items():
                signal.signal(number, handler)


def _follow(starter: str, released: threading.Event) -> None:
    """Send SIGTERM to this process when the starter has ended, unless `released` is set before."""
    pid, _, started = starter.partition(":")
    while not released.wait(_WATCH_S):
        if started_at(int(pid)) != started:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def main(words: list[str]) -> int:
    """Supervise the stack of the command line. Return 0 after a clean stop, 1 after an error such as a failed part."""
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
        print_line(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
