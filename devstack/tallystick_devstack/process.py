"""Starts, watches and stops the child processes of the embedded stack. None of them outlives this process.

Each child runs under a warden (see warden.py). The warden kills the child's whole process tree when the child ends or
when this process dies, by any signal. This needs no thread, no `atexit` hook and no pid file.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tallystick.errors import SettingsError
from tallystick_devstack.rotation import last_rotation

_WARDEN = Path(__file__).with_name("warden.py")
_POLL_S = 0.05
_KILL_S = 10.0
_TAIL_BYTES = 64 * 1024
_PORT_S = 20.0
_INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "JAVA_HOME",
    "SSL_CERT_FILE",
)


class Watched(Protocol):
    """The interface of a process for `wait_until`."""

    name: str
    log_path: Path

    @property
    def alive(self) -> bool: ...

    def tail(self, lines: int = 20) -> str: ...


class ChildProcess:
    """A server that runs until it is stopped, ends by itself, or the process that started it dies.

    The output of the whole tree is appended to `log_path`. `env` is the complete environment of the child, not an
    addition to this process's. `stop_signal` is sent to the child's process group. `user` is the account that it runs as
    (root only). If the program cannot be started, the exit code is 127 and the log has the reason.
    Raises SettingsError on systems other than Linux, which have no subreaper.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: str | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise SettingsError(
                f"embedded stack: expected Linux, found {sys.platform}.",
                hint="run it on Linux, e.g. in a virtual machine or a container; `tally` itself needs no stack.",
            )
        self.name = name
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        warden = [sys.executable, "-I", "-S", str(_WARDEN), "--starter", str(os.getpid())]
        warden += ["--stop-signal", str(int(stop_signal))]
        warden += ["--user", user] if user is not None else []
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        self._rotation = last_rotation(log_path)
        with log_path.open("ab") as log:
            self._warden = subprocess.Popen(
                [*warden, "--", *map(str, command)],
                env=dict(os.environ if env is None else env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only this process, which stops the servers in order
            )

    @property
    def pid(self) -> int:
        """Process id of the warden. The server is a child of the warden."""
        return self._warden.pid

    @property
    def alive(self) -> bool:
        """True if the child still runs."""
        return self._warden.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The child's exit code: 128 + n if signal n ended it, None while it runs."""
        return self._warden.poll()

    def stop(self, grace_s: float = 10.0) -> None:
        """Send the stop signal to the child, wait up to `grace_s`, then kill its whole tree.

        Safe to repeat: if the child has ended, nothing is done.
        """
        self._send(signal.SIGTERM, grace_s)
        self.kill()

    def request_stop(self) -> None:
        """Send the stop signal and do not wait. Safe to repeat: a server that is stopping gets it again."""
        self._send(signal.SIGTERM, 0.0)

    def kill(self) -> None:
        """Kill the child's whole tree at once, like a power failure. Safe to repeat: if it has ended, nothing is done."""
        self._send(signal.SIGQUIT, _KILL_S)
        self._send(signal.SIGKILL, _KILL_S)

    def _send(self, number: signal.Signals, patience_s: float) -> None:
        if self.alive:
            self._warden.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._warden.wait(patience_s)

    def tail(self, lines: int = 20) -> str:
        """Return the last lines that this child (not an earlier one with the same log) has written."""
        with self.log_path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            same = self._rotation == last_rotation(self.log_path) and self._log_start <= end
            start = self._log_start if same else 0
            log.seek(max(start, end - _TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_to_end(
    command: Sequence[str | Path],
    *,
    name: str,
    log_path: Path,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> None:
    """Run a program to its end. Raises SettingsError with its last log lines if it fails or takes too long."""
    with ChildProcess(command, name=name, log_path=log_path, env=env, user=user) as child:
        wait_until(
            lambda: not child.alive, deadline_s=deadline_s, what=f"the end of {name}", process=child
        )
        if child.exit_code != 0:
            raise failed_to_start(f"{name} ended with exit code {child.exit_code}.", child)


def base_environment() -> dict[str, str]:
    """Return the few variables that every part may get: no credentials and no settings of other programs."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def started_at(pid: int) -> str | None:
    """Return the start time of a process in the kernel's ticks, or None if it has ended (a zombie counts as ended).

    The kernel reuses the ids of ended processes, but the pair of id and start time is unique.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] == b"Z" else words[19].decode()


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Return True if a server could bind this port of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: TIME_WAIT does not prevent a bind
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_for_port(port: int, server: str) -> None:
    """Wait until a server can bind a port that is set for it. Raises SettingsError if it is still in use after 20 s.

    A killed server holds its port for some time after its warden has ended, and the kernel accepts connections there.
    Without this wait, such a connection counts as the response of the next server.
    """
    try:
        wait_until(lambda: port_is_free(port), deadline_s=_PORT_S, what=f"the end of port {port}")
    except SettingsError:
        raise SettingsError(
            f"port {port} of 127.0.0.1, which is set for {server}, is in use.",
            hint="stop the process that listens there, or choose another port.",
        ) from None


def port_accepts(port: int) -> bool:
    """Return True if a server accepts connections on this port of the loopback interface."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def wait_until(
    check: Callable[[], bool],
    *,
    deadline_s: float,
    what: str,
    process: Watched | None = None,
    poll_s: float = _POLL_S,
) -> None:
    """Call `check` until it returns True.

    Raises SettingsError with the process's last log lines if the process has ended, or if `deadline_s` seconds have
    passed.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        # Read before the check: if the process ends between the two, the check is called once more before this raises.
        ended = process is not None and not process.alive
        if check():
            return
        if process is not None and ended:
            raise failed_to_start(f"{process.name} ended before {what}.", process)
        if time.monotonic() >= deadline:
            message = f"{what} did not happen within {deadline_s:g} s."
            if process is None:
                raise SettingsError(
                    message, hint="check that the machine is not overloaded, then try again."
                )
            raise failed_to_start(message, process)
        time.sleep(poll_s)


def failed_to_start(message: str, process: Watched) -> SettingsError:
    """Build an error with the last log lines of a process and the path of its log."""
    lines = process.tail() or "(it wrote nothing)"
    return SettingsError(
        f"{message} Its last lines:\n{lines}\n",
        hint=f"read the whole log in {process.log_path}, fix the cause, then try again.",
    )
