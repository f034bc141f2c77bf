"""The modules that a driver imports at its start: none that only tasks need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["numba", "kafka", "boto3", "pandas", "pyiceberg"])
def test_a_driver_does_not_import_modules_that_only_tasks_need(module: str) -> None:
    program = f"import tallystick.spark.frames, tallystick.spark.entry, sys; print({module!r} in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n", f"{module} costs every driver its import"
