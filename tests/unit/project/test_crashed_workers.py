"""A run in which workers of pytest-xdist crash ends, and reports each test once: pytest-xdist alone waits for ever."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CONFTEST = """
from support.in_order import InOrder

def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return InOrder(config, log)
"""
# In each file: tests that pass, one that ends its process like a crash, if the file is one of those, and more tests.
SOME = """
import os
import signal
import pytest

@pytest.mark.parametrize("number", range({before}))
def test_before(number):
    pass
{crash}
@pytest.mark.parametrize("number", range({after}))
def test_after(number):
    pass
"""
CRASH = """
def test_that_crashes():
    os.kill(os.getpid(), signal.SIGKILL)
"""
TIMEOUT_S = 120
RESULT = re.compile(r"(PASSED|FAILED|ERROR) (\S+::\S+)")


@pytest.mark.parametrize(
    ("crashing", "before", "after"),
    [((3,), 3, 4), ((0,), 0, 1), ((0, 7), 1, 0), ((6, 7), 1, 0)],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_each_test_is_reported_once_and_the_run_ends(
    tmp_path: Path, crashing: tuple[int, ...], before: int, after: int, workers: int
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    expected = {}
    for number in range(8):
        name = f"test_{number}.py"
        crash = CRASH if number in crashing else ""
        (tmp_path / name).write_text(SOME.format(before=before, after=after, crash=crash))
        passing = [("before", i) for i in range(before)] + [("after", i) for i in range(after)]
        expected |= {f"{name}::test_{kind}[{i}]": "PASSED" for kind, i in passing}
        if crash:
            expected[f"{name}::test_that_crashes"] = "FAILED"
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"-n{workers}"]
    run = subprocess.run(
        [*command, "--dist=loadfile", f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    # The lines of the summary repeat the failures.
    results = RESULT.findall(run.stdout.partition("= FAILURES =")[0])
    assert Counter(test for _, test in results) == dict.fromkeys(expected, 1), run.stdout
    assert {test: result for result, test in results} == expected
    assert run.returncode == 1
