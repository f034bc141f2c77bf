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


@pytest.mark.parametrize("module", ["numpy", "pyarrow", "pandas", "kafka", "llvmlite", "duckdb"])
def test_a_commit_does_not_import_modules_that_only_reads_need(module: str) -> None:
    """A small commit is mostly imports."""
    program = (
        "import sys, tallystick.operations.commit, tallystick.tables.staging, tallystick.store.s3;"
        f"sys.exit({module!r} in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == 0, f"{module} costs every commit its import"
