"""A small process between a server and the process that starts it (the starter), so that no server outlives its starter.

Linux has no call that kills a whole process tree when one process dies. A parent-death signal reaches only one process
and is lost at a fork. A process can leave its process group with `setsid`, and JVMs, PostgreSQL backends and Spark
drivers do so. So each server gets a warden. The warden becomes the *subreaper* of the server's tree: the kernel makes it
the parent of every orphan in the tree. When the server ends, or when the starter dies (also by `kill -9`: the kernel
makes the pidfd readable), the warden kills its descendants until `waitpid` returns that there is none.

    event                       action of the warden
    SIGTERM, SIGINT             sends the stop signal to the server's process group, and continues to wait
    SIGQUIT                     kills the whole tree
    the starter dies            kills the whole tree

If the warden itself is killed with -9, the server's main process is killed by its parent-death signal.

This file runs by path under `python -I -S`. It uses only the standard library and starts in about 20 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pwd
import select
import signal
import struct
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE = 1
SECBIT_NO_SETUID_FIXUP = 1 << 2
POLL_MS = 500
SWEEP_MS = 10


def main(argv: list[str]) -> int:
    """Run the server of `argv` and return its exit code (128 + n if signal n ended it)."""
    options = _options(argv)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(
            number, lambda *_: None
        )  # the signal is read from the wake-up pipe; a handler only has to exist
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Opened before the check below: if the starter dies between the two, one of them detects it.
    starter = _open_pidfd(options.starter)
    if os.getppid() != options.starter:
        return 128 + signal.SIGKILL
    server = _spawn(options.command, options.user)
    return _watch(options, server, starter, wake_read)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="warden")
    parser.add_argument("--starter", type=int, required=True)
    parser.add_argument("--stop-signal", type=int, default=int(signal.SIGTERM))
    parser.add_argument("--user", default=None)
    parser.add_argument("command", nargs="+")
    return parser.parse_args(argv)


def _watch(options: argparse.Namespace, server: int, starter: int | None, wake_read: int) -> int:
    poll = select.poll()
    poll.register(wake_read, select.POLLIN)
    if starter is not None:
        poll.register(starter, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(POLL_MS)}
        arrived = os.read(wake_read, 4096) if wake_read in ready else b""
        code = _reap(server)
        if code is not None:
            _kill_tree()
            return code
        if starter in ready or os.getppid() != options.starter or signal.SIGQUIT in arrived:
            _kill_tree()
            return 128 + signal.SIGKILL
        if signal.SIGTERM in arrived or signal.SIGINT in arrived:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(server, options.stop_signal)


def _spawn(command: list[str], user: str | None) -> int:
    """Start the server in a process group of its own. Its exit code is 127 if it cannot be started."""
    warden = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(
            OSError
        ):  # both sides do it, so that the group exists before a stop signal is sent
            os.setpgid(pid, pid)
        return pid
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGCHLD,
            signal.SIGHUP,
        ):
            signal.signal(number, signal.SIG_DFL)
        if user is not None:
            _become(user)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it
        if os.getppid() == warden:
            os.execvp(command[0], command)
    except BaseException as error:  # noqa: BLE001 - the forked child must never return
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    os._exit(127)


def _become(user: str) -> None:
    """Change this process from root to `user`, but keep the capability that ignores file permissions.

    PostgreSQL refuses to run as root, and another user cannot reach a project below a closed home folder (/root, 0700).
    To open that folder to all users would be worse. So the capability is passed across exec as an ambient one. If root
    itself does not have it, `user` is an ordinary user.
    """
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    _prctl(
        PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP
    )  # else setuid drops the capability, and access(2) ignores it
    os.setuid(entry.pw_uid)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    kept = 1 << CAP_DAC_OVERRIDE
    sets = struct.pack(
        "=6I", kept, kept, kept, 0, 0, 0
    )  # effective, permitted, inheritable; low words, then high
    ctypes.CDLL(None, use_errno=True).capset(header, sets)
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE)


def _reap(server: int) -> int | None:
    """Reap every child that has ended. Return the server's exit code if it is one of them, else None."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == server:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _kill_tree() -> None:
    """Kill descendants until there are none.

    Orphans become children of the subreaper. So if no child is left, no descendant is left, even if some of them forked.
    """
    while True:
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        select.select([], [], [], SWEEP_MS / 1000)


def _descendants() -> list[int]:
    """Return the ids of all descendants of this process, read from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # "pid (name) state ppid ...": the name may contain spaces and brackets, so split after the last bracket.
            parent = int(entry.read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = list(children.get(os.getpid(), []))
    for pid in found:  # the list grows during the iteration
        found.extend(children.get(pid, []))
    return found


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None before Linux 5.3, then `_watch` polls."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _prctl(option: int, value: int, detail: int = 0) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, detail, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
