"""The demo with its stack still running, for programs that look at its result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick.lake import Lake
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.info import read_stack

DAG = "flights"
LAKE = f"s3://lake/{DAG}"
_TALLY = "from tallystick.cli import main; main()"


@contextmanager
def running_demo(settings: Mapping[str, str]) -> Iterator[tuple[Lake, AirflowApi]]:
    """Run `make demo` with these variables, and yield its lake and its Airflow; the stack is stopped at the end.

    The environment of this process has the stack's variables meanwhile. Fails if the demo does not pass.
    """
    with tempfile.TemporaryDirectory(prefix="tally-demo-") as folder:
        # PostgreSQL runs as another user, who must reach it.
        Path(folder).chmod(0o711)
        state = Path(folder) / "state"
        command = [sys.executable, "-m", "examples.demo", "--state", str(state)]
        ended = subprocess.run(command, env={**os.environ, **settings}, check=False)
        try:
            info = read_stack(state)
            assert ended.returncode == 0, f"the demo ended with exit code {ended.returncode}"
            assert info is not None
            with pytest.MonkeyPatch.context() as patch:
                for name, value in info.environment().items():
                    patch.setenv(name, value)
                lake = Lake(open_store(LAKE), system_runtime(), proven=True)
                yield lake, info.airflow()
        finally:
            down = [sys.executable, "-c", _TALLY, "local", "down", "--state-dir", str(state)]
            subprocess.run(down, check=False)
