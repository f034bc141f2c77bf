"""What a driver loads before it knows what to do: nothing that only tasks need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["numba", "kafka", "boto3", "pandas", "pyiceberg"])
def test_a_driver_does_not_load_what_only_a_task_needs(module: str) -> None:
    program = f"import tallystick.spark.frames, tallystick.spark.entry, sys; print({module!r} in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n", f"{module} costs every driver its import"
