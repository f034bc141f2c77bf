"""Runs `tally` in a process of its own: a fork of a server that has already imported what the commands import.

A new Python for each command would spend most of its time on imports.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest.mock import patch

IMPORTED = [
    "boto3.s3.transfer",
    "duckdb",
    "pyarrow.parquet",
    "pyiceberg.table",
    "tallystick.cli.app",
    "tallystick.cli.replay_run",
    "tallystick.kafka.planning",
    "tallystick.operations.commit",
    "tallystick.operations.compact.local",
    "tallystick.operations.plan",
    "tallystick.store.s3",
    "tallystick.tables.sql",
    "tallystick.tables.staging",
]
# To start a process also polls the other ones, so that two threads could read the exit code of one.
_lock = threading.Lock()


def forked_tally(
    *argv: str, environ: Mapping[str, str], folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command in this folder, with this environment alone. It must end by itself; threads may call this."""
    context = multiprocessing.get_context("forkserver")
    assert isinstance(context, ForkServerContext)
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as place:
        outputs = [str(Path(place, name)) for name in ("stdout", "stderr")]
        arguments = (argv, dict(environ), str(folder), outputs)
        process = context.Process(target=_run, args=arguments)
        # The server starts with the first process, and imports the modules of this repository, too.
        with _lock, patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
            process.start()
        has_ended = wait([process.sentinel], timeout_s)
        with _lock:
            if not has_ended:
                process.kill()
            process.join()
        assert has_ended, f"tally {' '.join(argv)} did not end within {timeout_s:g} s"
        assert process.exitcode is not None
        out, err = (Path(output).read_text() for output in outputs)
        return subprocess.CompletedProcess(["tally", *argv], process.exitcode, out, err)


def _run(argv: tuple[str, ...], environ: dict[str, str], folder: str, outputs: list[str]) -> None:
    from tallystick.cli import main

    for number, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["tally", *argv]
    main()
