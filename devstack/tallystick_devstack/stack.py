"""Implements `tally local up`, `down` and `status` for the embedded stack.

One supervisor process owns all parts (parts.py) of one state folder. Other processes find them through info.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1
from typing import TextIO

from tallystick.errors import SettingsError
from tallystick_devstack.info import (
    ALL_PARTS,
    PARTS,
    REGISTRY,
    SUPERVISOR_LOG,
    PartInfo,
    StackInfo,
    parts_to_start,
    read_stack,
    supervisor_pid,
)
from tallystick_devstack.process import started_at
from tallystick_devstack.progress import Report, print_line

__all__ = [
    "ALL_PARTS",
    "PARTS",
    "REGISTRY",
    "PartInfo",
    "StackInfo",
    "down",
    "read_stack",
    "release",
    "status",
    "up",
]

_DOWN_S = 120.0
_POLL_S = 0.1
_TAIL_LINES = 40


def up(
    state_dir: Path,
    *,
    project_dir: Path,
    parts: Collection[str] = PARTS,
    foreground: bool = False,
    bound: bool = False,
    report: Report | None = None,
) -> StackInfo:
    """Start a stack and return when every part runs. With `foreground`, return when the stack has been stopped.

    In the background, a supervisor in its own session owns the parts. If this call is interrupted or this process is
    killed during it, the supervisor stops them. `bound`: if True, it also stops them if this process ends later, until
    `release` is called. Raises SettingsError if a stack already runs in that folder (it is not touched), or if a part
    does not start. Safe to repeat: the state of an earlier stack in the folder is used again.
    """
    report = report or print_line
    make_state_dir(state_dir)
    state_dir = state_dir.resolve()
    if foreground:
        from tallystick_devstack.supervisor import supervise

        supervise(state_dir, project_dir=project_dir, parts=parts, report=report)
    else:
        holder = supervisor_pid(state_dir)
        if holder is not None:
            raise SettingsError(
                f"another stack runs in {state_dir} (process {holder}).",
                hint="use it, or stop it with `tally local down`.",
            )
        _up_in_background(state_dir, project_dir.resolve(), parts_to_start(parts), report)
        if not bound:
            release(state_dir)
    info = read_stack(state_dir)
    if info is None:
        raise SettingsError(f"{state_dir} has no stack.", hint=f"read {SUPERVISOR_LOG} there.")
    return info


def down(state_dir: Path, *, deadline_s: float = _DOWN_S) -> bool:
    """Stop the stack of a state folder and all processes that it started. Return False if none ran.

    Safe to repeat: if no stack runs, nothing is done.
    """
    pid = supervisor_pid(state_dir)
    if pid is None:
        return False
    # The process that holds the lock may continue after its stack has stopped, so wait for the lock and not for its end.
    _stop(state_dir, pid, lambda: supervisor_pid(state_dir) == pid, deadline_s)
    return True


def release(state_dir: Path) -> None:
    """Make the stack of a state folder independent of the process that started it.

    Safe to repeat: a supervisor that watches no process ignores the signal. If there is no supervisor, nothing is done.
    """
    pid = supervisor_pid(state_dir)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGUSR1)


def _stop(state_dir: Path, pid: int, holds: Callable[[], bool], deadline_s: float) -> None:
    """Send SIGTERM to a supervisor, kill it if it does not stop before the deadline, and wait for its wardens."""
    info = read_stack(state_dir)
    mine = info is not None and info.supervisor_pid == pid
    if holds():  # if it has ended, its id may belong to another process
        with suppress(ProcessLookupError):
            os.kill(pid, SIGTERM)
    deadline = time.monotonic() + deadline_s
    while holds():
        if time.monotonic() >= deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)  # its wardens then kill the parts
            deadline += deadline_s
        time.sleep(_POLL_S)
    last = {pid} | {
        warden
        for part in (info.parts.values() if info is not None and mine else ())
        for warden in part.pids
    }
    while any(map(process_runs, last)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def status(state_dir: Path) -> StackInfo | None:
    """Return the current stack of a state folder, or None if there never was one."""
    return read_stack(state_dir)


def make_state_dir(state_dir: Path) -> None:
    """Create the state folder with mode 0700. Safe to repeat: of an existing folder, only the mode is changed."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)


def process_runs(pid: int) -> bool:
    """Return True if a process exists and has not ended (a zombie counts as ended)."""
    return started_at(pid) is not None


def _up_in_background(
    state_dir: Path, project_dir: Path, parts: tuple[str, ...], report: Report
) -> None:
    """Start a supervisor and follow it until its stack runs. If this fails, stop this supervisor completely.

    Another `up` of the same folder may have won the race: its supervisor and its log are not touched.
    """
    handle, name = tempfile.mkstemp(prefix="supervisor.", suffix=".log", dir=state_dir)
    log_path = Path(name)
    try:
        with os.fdopen(
            handle, errors="replace"
        ) as log:  # it stays open, because the supervisor renames the file
            pid = _detach(state_dir, project_dir, parts, log_path)
            try:
                _follow(state_dir, pid, log, report)
            except BaseException:
                _stop(state_dir, pid, lambda: process_runs(pid), _DOWN_S)
                raise
    finally:
        log_path.unlink(missing_ok=True)


def _detach(state_dir: Path, project_dir: Path, parts: tuple[str, ...], log_path: Path) -> int:
    """Start a supervisor that is not a child of this process, so that it can outlive it; return its process id."""
    package = str(Path(__file__).resolve().parents[1])
    words = [
        sys.executable,
        "-m",
        "tallystick_devstack.supervisor",
        str(state_dir),
        str(project_dir),
        ",".join(parts),
        str(log_path),
        f"{os.getpid()}:{started_at(os.getpid())}",
    ]
    began = subprocess.run(
        [
            "sh",
            "-c",
            'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!',
            "sh",
            str(log_path),
            *words,
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        },
        stdout=subprocess.PIPE,
        start_new_session=True,
        check=True,
    )
    return int(began.stdout)


def _follow(state_dir: Path, pid: int, log: TextIO, report: Report) -> None:
    """Report the supervisor's log lines until its stack runs. Raises SettingsError with its last lines if it ends."""
    reported = 0
    while True:
        runs = process_runs(pid)
        log.seek(0)
        lines = log.read().splitlines()
        info = read_stack(state_dir)
        if not runs:
            shown = "\n".join(lines[-_TAIL_LINES:])
            raise SettingsError(
                f"The stack did not start:\n{shown}\n",
                hint=f"fix the problem in these lines ({state_dir / SUPERVISOR_LOG} is the log of the last stack that "
                "started), then try again.",
            )
        for line in lines[reported:]:
            report(line)
        reported = len(lines)
        if info is not None and info.running and info.supervisor_pid == pid:
            return
        time.sleep(_POLL_S)
