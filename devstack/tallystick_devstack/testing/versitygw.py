"""Runs a second S3 server for tests: versitygw over a folder, built once per machine with the installed Go.

Its implementation is independent of ministack: if a test passes on both, it does not depend on one server's behaviour.
In versions before 1.8.0, several concurrent conditional writes can succeed, so these versions cannot test races.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tallystick_devstack.process import (
    ChildProcess,
    free_port,
    port_accepts,
    run_to_end,
    wait_until,
)

VERSION: Final = "1.8.0"
_MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_BUILD_S: Final = 600.0
_START_S: Final = 30.0


def go() -> str | None:
    """Return the `go` of PATH, or None if there is none. versitygw cannot be built without it."""
    return shutil.which("go")


def binary() -> Path:
    """Return the program. If this machine has none, build it (about a minute).

    Raises SettingsError if the build fails, RuntimeError if there is no Go. Safe to repeat: a second process waits for
    the first, and the program appears by one rename.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tallystick"
    caches.mkdir(parents=True, exist_ok=True)
    program = caches / f"versitygw-{VERSION}"
    with (caches / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(caches, program)
    return program


def _build(caches: Path, program: Path) -> None:
    found = go()
    if found is None:
        raise RuntimeError("there is no go on PATH")
    with tempfile.TemporaryDirectory(prefix="versitygw.tmp-", dir=caches) as scratch:
        run_to_end(
            # Without optimization and cgo, the build takes 73 CPU seconds instead of 116. Tests need no fast server.
            [found, "install", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", _MODULE],
            name=f"the build of versitygw {VERSION}",
            log_path=caches / "versitygw.build.log",
            deadline_s=_BUILD_S,
            env={**os.environ, "GOBIN": scratch, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
        )
        (Path(scratch) / "versitygw").rename(program)


@contextmanager
def versitygw() -> Iterator[str]:
    """Run versitygw over a folder of its own, on loopback; yield its endpoint URL."""
    with tempfile.TemporaryDirectory(prefix="tallystick-versitygw-") as folder:
        state = Path(folder)
        (state / "objects").mkdir()
        port = free_port()
        process = ChildProcess(
            [
                binary(),
                *("--port", f"127.0.0.1:{port}", "--quiet"),
                "posix",
                state / "objects",
            ],
            name="versitygw",
            log_path=state / "versitygw.log",
            # The keys are not in argv, because every user of the machine can read argv.
            env={**os.environ, "ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "test-secret"},
        )
        try:
            wait_until(
                lambda: port_accepts(port),
                deadline_s=_START_S,
                what=f"versitygw answering at 127.0.0.1:{port}",
                process=process,
            )
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stop(grace_s=5.0)
