"""The modules that a driver imports at its start: none that only tasks need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    """Return the modules of a Python that has imported what a driver imports at its start."""
    program = (
        "import tallystick.spark.frames, tallystick.spark.entry, json, sys;"
        "print(json.dumps([*sys.modules]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return frozenset(json.loads(run.stdout))


@pytest.mark.parametrize("module", ["numba", "kafka", "boto3", "pandas", "pyiceberg"])
def test_a_driver_does_not_import_modules_that_only_tasks_need(
    imported: frozenset[str], module: str
) -> None:
    assert "tallystick.spark.frames" in imported
    assert module not in imported, f"{module} costs every driver its import"
