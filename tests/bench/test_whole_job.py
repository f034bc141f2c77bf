"""The whole job, side by side with plain Spark: the guard of what this project promises about its cost.

`make test` runs it after all other tests, alone on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.control_groups import needs_group

REPO = Path(__file__).parents[2]
OURS, SPARK = "tallystick-without-spark", "spark-best"
# Measured: 5.2 to 5.5 (`make bench`).
TIMES_MIN = 3.5
# Plan, stage and commit of 8 partitions and three tables: the same in each published round.
REQUESTS_MAX = {"get": 16, "list": 6, "put if": 39, "delete many": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the run of each contender: 20,000 records into three tables, once."""
    folder = tmp_path_factory.mktemp("bench")
    words = ["--contenders", f"{OURS},{SPARK}", "--tables", "three", "--seed", "1"]
    words += ["--records", "20000", "--rounds", "0", "--small-rounds", "1"]
    ended = subprocess.run(
        [sys.executable, "-m", "bench.whole_job", *words, "--out", folder / "bundle.json"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    # 0: each table of both has exactly the expected rows, by an independent reader.
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((folder / "bundle.json").read_text())["runs"]
    assert sorted(run["contender"] for run in found) == sorted([OURS, SPARK])
    return {run["contender"]: run for run in found}


@needs_group
def test_a_small_run_takes_a_fraction_of_the_cpu_time_of_plain_spark(runs: dict[str, Any]) -> None:
    ours, spark = (sum(step["cpu_s"] for step in runs[name]["steps"]) for name in (OURS, SPARK))
    assert ours * TIMES_MIN <= spark, f"tallystick took {ours:.1f} CPU-s, plain Spark {spark:.1f}"


@needs_group
def test_a_small_run_takes_few_requests(runs: dict[str, Any]) -> None:
    found = runs[OURS]["s3"]["kinds"]
    assert found.keys() <= REQUESTS_MAX.keys()
    assert all(found[kind] <= REQUESTS_MAX[kind] for kind in found), found
