"""A run of tests in which nothing ends prints what runs, so that its log names the test that did not end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.slow_tests import SlowTests

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
    deadline = time.monotonic() + 60
    while not Path(__file__).with_name("go").exists():
        assert time.monotonic() < deadline, "this test was not printed"
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
        running = (line for line in run.stderr if line.startswith("still running after"))
        # On a busy machine, the quick test takes longer than the plugin waits, too.
        printed = any(line.rstrip().endswith("test_some.py::test_slow") for line in running)
        (tmp_path / "go").touch()
        run.stderr.read()
    assert printed
    assert run.returncode == 0


def test_the_end_of_the_session_is_not_lost_if_it_comes_right_after_that_of_a_test() -> None:
    plugin = SlowTests(print, silent_s=300)

    class EndsMeanwhile(threading.Event):
        def clear(self) -> None:
            plugin._ended.set()
            self.set()
            super().clear()

    plugin._step = EndsMeanwhile()
    plugin.pytest_runtest_logfinish("the last test")
    plugin.pytest_sessionstart()
    plugin._thread.join(timeout=30)
    assert not plugin._thread.is_alive()
