"""A run of tests in which nothing ends prints what runs, so that its log names the test that did not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CONFTEST = """
import sys
from support.slow_tests import SlowTests

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        write = lambda text: print(text, file=sys.stderr, flush=True)
        config.pluginmanager.register(SlowTests(write, silent_s=0.2))
"""
SLOW = """
import time
from pathlib import Path

def test_quick():
    pass

def test_slow():
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.05)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_does_not_end_is_printed(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_some.py").write_text(SLOW)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*command, f"-n{workers}", f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        printed = next(line for line in run.stderr if line.startswith("still running after"))
        (tmp_path / "go").touch()
        run.stderr.read()
    assert printed.rstrip().endswith("test_some.py::test_slow")
    assert run.returncode == 0
