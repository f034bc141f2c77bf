"""Ends all processes that a test run has started when the run ends: at its last test, by Ctrl-C, TERM, HUP or kill -9.

A Spark driver or the supervisor of a stack has its own session, so signals to pytest or to its terminal do not reach it.
Therefore pytest starts this file as a process in its own session, too. It waits for pytest's end, then ends every
process that has the run's mark in its environment; a warden (tallystick_devstack.warden) ends its servers.

With ENDS_WITH_PARENT set, as `make test` sets it, pytest ends with its parent too. Standard library only: it runs by
path under `python -I -S`.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TALLYSTICK_TEST_RUN"
ENDS_WITH_PARENT = "TALLYSTICK_TEST_ENDS_WITH_PARENT"
GRACE_S = 15.0  # a supervisor stops its stack in about 8 s
POLL_S = 0.1


def watch() -> None:
    """Start the process that ends the remaining ones. Call it in pytest's main process, before that starts anything."""
    inherited = dict(os.environ)
    inherited.pop(MARK, None)
    os.environ[MARK] = mark = secrets.token_hex(16)
    parent = [str(os.getppid())] if os.environ.pop(ENDS_WITH_PARENT, "") else []
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark, str(os.getpid()), *parent],
        env=inherited,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert watcher.stdout is not None
    watcher.stdout.read()  # it closes its end after it has opened a pidfd of both of us
    watcher.stdout.close()
    watcher.returncode = 0  # it outlives this process: no warning about a child without a wait


def main(words: list[str]) -> None:
    """Wait for the end of pytest, or of its parent, and end the processes with the mark."""
    mark, run, *parents = words
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run_fd = os.pidfd_open(int(run))
    poll = select.poll()
    for descriptor in [run_fd, *(os.pidfd_open(int(parent)) for parent in parents)]:
        poll.register(descriptor, select.POLLIN)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)  # a reader of pytest's output waits for the last writer
    ended = poll.poll()
    if run_fd not in {descriptor for descriptor, _ in ended}:
        _end_run(run_fd)
    _end_marked(f"{MARK}={mark}".encode())


def _end_run(run_fd: int) -> None:
    """End pytest after the end of its parent."""
    end = select.poll()
    end.register(run_fd, select.POLLIN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(run_fd, number)
        if end.poll(GRACE_S * 1000):
            return


def _end_marked(mark: bytes) -> None:
    """Terminate every marked process, and kill those that still exist after GRACE_S, until there are none."""
    terminated: set[int] = set()
    deadline = time.monotonic() + GRACE_S
    while found := marked(mark):
        late = time.monotonic() > deadline
        for pid in found if late else found - terminated:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        terminated |= found
        time.sleep(POLL_S)


def marked(mark: bytes) -> set[int]:
    """Return the ids of the processes with the mark in their environment; a zombie has an empty one."""
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                found.add(int(environment.parent.name))
    return found - {os.getpid()}


if __name__ == "__main__":
    main(sys.argv[1:])
