"""`tally` of this tree as a process of its own, as an operator or a timer would start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from chaos.tap import BUCKET, COMMAND
from chaos.victims import kill, thaw
from chaos.workspace import REPO, Lake, Workspace

TALLY = Path(sys.executable).with_name("tally")
END_S = 600.0
RETRY_LATER = 75
_SHOWN = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a process: its exit code (negative: a signal), standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def is_killed(self) -> bool:
        """True if SIGKILL ended it."""
        return self.code == -signal.SIGKILL

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.err.strip()[-_SHOWN:] or self.out.strip()[-_SHOWN:]}"


class TallyProcess:
    """One running command on a round's lake. Its requests go through the tap, and have its name in their user agent."""

    def __init__(self, workspace: Workspace, lake: Lake, *argv: str) -> None:
        self.argv = argv
        uri = f"s3://{BUCKET}/{lake.name}"
        # Files, not pipes: nothing reads while the process is stopped.
        self._out: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `end`
        self._err: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [TALLY, argv[0], uri, *argv[1:]],
            env=_environment(workspace, lake, argv[0]),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )
        self.process = psutil.Process(self._process.pid)

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def end(self, deadline_s: float = END_S) -> Ended:
        """Wait for the end of the process. Raises subprocess.TimeoutExpired, and then it is killed."""
        try:
            code = self._process.wait(deadline_s)
        finally:
            self.kill()
            with self._out, self._err:
                out, err = (_all_of(file) for file in (self._out, self._err))
        return Ended(code=code, out=out, err=err)

    def kill(self) -> None:
        """Kill the process. Safe to repeat: a process that has ended is unaffected."""
        if self._process.poll() is None:
            thaw([self.process])
            kill(self.process)
            self._process.wait()


def _environment(workspace: Workspace, lake: Lake, command: str) -> dict[str, Any]:
    return {
        **os.environ,
        **workspace.stack.s3.environment(),
        **lake.environment,
        "AWS_ENDPOINT_URL_S3": workspace.tap.url,
        "AWS_SDK_UA_APP_ID": f"{COMMAND}{command}",
        "PYTHONPATH": str(REPO / "plugins"),
    }


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
