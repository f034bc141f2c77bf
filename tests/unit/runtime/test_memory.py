"""A process that stages records keeps the memory that it frees, unless its user has set it otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tallystick.runtime.memory import MEMORY_ENVIRONMENT, keep_freed_memory

KEEP = "import os; from tallystick.runtime.memory import keep_freed_memory as k; k(os.environ); "
# The pages that the kernel cleared for three blocks, larger than what glibc keeps by itself, allocated ten times.
FAULTS = """
import resource
import numpy as np
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def blocks():
    return [np.ones(24 << 20, np.uint8) for _ in range(3)]
blocks()
before = faults()
for _ in range(10):
    blocks()
print(faults() - before)
"""
PURGES = "import pyarrow"
THREADS = "import numpy, threading; print(len(os.listdir('/proc/self/task')))"


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in MEMORY_ENVIRONMENT}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=kept | environ,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt(3) is glibc's")
def test_pages_of_freed_blocks_are_used_again() -> None:
    cleared = int(run(FAULTS).stdout)
    assert cleared > 100
    assert int(run(KEEP + FAULTS).stdout) < cleared // 10


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt(3) is glibc's")
def test_what_the_user_has_set_for_malloc_stays() -> None:
    own = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    assert int(run(KEEP + FAULTS, **own).stdout) > 100


@pytest.mark.parametrize(("own", "found"), [({}, "20000"), ({"MIMALLOC_PURGE_DELAY": "7"}, "7")])
def test_pyarrow_reads_the_delay(own: dict[str, str], found: str) -> None:
    settings = run(KEEP + PURGES, MIMALLOC_VERBOSE="1", **own).stderr
    assert f"'purge_delay': {found}" in settings


@pytest.mark.skipif(sys.platform != "linux", reason="it counts the threads in /proc")
@pytest.mark.parametrize(("own", "found"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_starts_no_threads(own: dict[str, str], found: str) -> None:
    assert run(KEEP + THREADS, **own).stdout.strip() == found


# Arguments that fail only after the process has begun to work.
REPLAY = """
import sys
import tallystick.runtime.memory as memory
keep = memory.keep_freed_memory
def noted(environ):
    keep(environ)
    print(sorted({"numpy", "pyarrow"} & sys.modules.keys()), environ["OPENBLAS_NUM_THREADS"])
memory.keep_freed_memory = noted
sys.argv = ["tally", "replay", "missing.py", "--from", "2013-01-01", "--to", "2013-01-02"]
from tallystick.cli import run
print(run() != 0)
"""


def test_replay_sets_it_before_pyarrow_and_numpy_are_loaded() -> None:
    assert run(REPLAY).stdout.split("\n")[:2] == ["[] 1", "True"]


def test_of_the_environment_only_what_libraries_read_later_is_changed() -> None:
    environ = {"OPENBLAS_NUM_THREADS": "3"}
    keep_freed_memory(environ)
    assert environ == {"OPENBLAS_NUM_THREADS": "3", "MIMALLOC_PURGE_DELAY": "20000"}
