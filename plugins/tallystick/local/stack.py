"""`tally local up`, `down` and `status`: the embedded stack as its users see it.

One supervisor process owns all parts (parts.py) of one state folder; info.py says how others find them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

from tallystick.errors import SettingsError
from tallystick.local.info import (
    PARTS,
    PartInfo,
    StackInfo,
    read_stack,
    supervisor_pid,
    wanted_parts,
)
from tallystick.local.progress import Report, say

__all__ = ["PARTS", "PartInfo", "StackInfo", "down", "read_stack", "status", "up"]

_DOWN_S = 120.0
_POLL_S = 0.1
_TAIL_LINES = 40


def up(
    state_dir: Path,
    *,
    project_dir: Path,
    parts: Collection[str] = PARTS,
    foreground: bool = False,
    report: Report | None = None,
) -> StackInfo:
    """Start a stack and return once every part is up; in the foreground, return once it has been stopped.

    In the background a supervisor of its own session owns the parts; interrupting this call stops it. Raises
    SettingsError where a stack runs in that folder already, or a part does not come up. Safe to repeat: what an
    earlier stack left in the folder is used again.
    """
    tell = report or say
    make_state_dir(state_dir)
    state_dir = state_dir.resolve()
    if foreground:
        from tallystick.local.supervisor import supervise

        supervise(state_dir, project_dir=project_dir, parts=parts, report=tell)
    else:
        holder = supervisor_pid(state_dir)
        if holder is not None:
            raise SettingsError(
                f"A stack runs in {state_dir} already (process {holder}).",
                next_step="use it, or stop it with `tally local down`.",
            )
        pid, log_path = _detach(state_dir, project_dir.resolve(), wanted_parts(parts))
        try:
            _follow(state_dir, pid, log_path, tell)
        except BaseException:
            down(state_dir)
            raise
    info = read_stack(state_dir)
    if info is None:
        raise SettingsError(
            f"{state_dir} has no stack.", next_step="look into supervisor.log there."
        )
    return info


def down(state_dir: Path, *, deadline_s: float = _DOWN_S) -> bool:
    """Stop the stack of a state folder and everything it started; False where none ran.

    Safe to repeat: where nothing runs, nothing is done.
    """
    pid = supervisor_pid(state_dir)
    if pid is None:
        return False
    info = read_stack(state_dir)
    with suppress(ProcessLookupError):
        os.kill(pid, SIGTERM)
    deadline = time.monotonic() + deadline_s
    while supervisor_pid(state_dir) == pid:
        if time.monotonic() >= deadline:
            os.kill(pid, SIGKILL)  # its wardens take the parts with them
            deadline += deadline_s
        time.sleep(_POLL_S)
    last = {pid} | {
        warden for part in (info.parts.values() if info else ()) for warden in part.pids
    }
    while any(map(process_runs, last)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return True


def status(state_dir: Path) -> StackInfo | None:
    """Return the stack of a state folder as it is now, None where there never was one."""
    return read_stack(state_dir)


def make_state_dir(state_dir: Path) -> None:
    """Create the state folder for its owner alone. Safe to repeat: an existing one is only closed to others."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)


def process_runs(pid: int) -> bool:
    """Whether a process exists and has not ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != b"Z"


def _detach(state_dir: Path, project_dir: Path, parts: tuple[str, ...]) -> tuple[int, Path]:
    """Start a supervisor that is nobody's child, so that it outlives the command that asked for it."""
    log_path = state_dir / "supervisor.log"
    package = str(Path(__file__).resolve().parents[2])
    words = [
        sys.executable,
        "-m",
        "tallystick.local.supervisor",
        str(state_dir),
        str(project_dir),
        ",".join(parts),
    ]
    began = subprocess.run(
        [
            "sh",
            "-c",
            'log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo $!',
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
    return int(began.stdout), log_path


def _follow(state_dir: Path, pid: int, log_path: Path, report: Report) -> None:
    """Repeat the supervisor's progress until its stack runs; raises SettingsError with its last lines if it ends."""
    told = 0
    while True:
        runs = process_runs(pid)
        lines = log_path.read_text(errors="replace").splitlines() if log_path.exists() else []
        info = read_stack(state_dir)
        if not runs:
            shown = "\n".join(lines[-_TAIL_LINES:])
            raise SettingsError(
                f"The stack did not start:\n{shown}\n",
                next_step=f"read {log_path}, mend it, try again.",
            )
        for line in lines[told:]:
            report(line)
        told = len(lines)
        if info is not None and info.running and info.supervisor_pid == pid:
            return
        time.sleep(_POLL_S)
