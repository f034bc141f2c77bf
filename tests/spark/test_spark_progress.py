"""A long stage logs its progress while it runs, from Spark's own status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.spark.progress import progress_text
from tallystick_devstack.process import wait_until

JOB = """
import logging, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tallystick_devstack.process import wait_until
from tallystick.spark import progress, stage

progress.EVERY_S = 0.2
release = Path(sys.argv[1])

def task(batches):
    for batch in batches:
        if batch.column(0)[0].as_py() >= 3:
            wait_until(release.exists, deadline_s=400, what="the release of the tasks")
        yield batch

logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
session = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
rows = stage.collected(session, session.range(0, 5, 1, 5).mapInArrow(task, "id bigint"))
print("rows", len(rows))
session.stop()
"""


def test_a_long_stage_logs_how_many_tasks_are_done(tmp_path: Path) -> None:
    job, release, output = tmp_path / "job.py", tmp_path / "release", tmp_path / "output"
    job.write_text(JOB)
    with output.open("wb") as stream:
        running = subprocess.Popen(
            [sys.executable, str(job), str(release)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    try:
        wait_until(
            lambda: (
                "stage 0: 3 of 5 task(s) done (60%), about" in output.read_text()
                or running.poll() is not None
            ),
            deadline_s=400,
            what="the line of three of five tasks",
        )
        assert ", 2 running, 0 failed" in output.read_text(), output.read_text()
        release.touch()
        assert running.wait(300) == 0
    finally:
        running.kill()
        running.wait()
    assert "rows 5" in output.read_text()


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (0, "0 of 16 task(s) done (0%)"),
        (4, "4 of 16 task(s) done (25%), about 60 s left"),
        (16, "16 of 16 task(s) done (100%), about 0 s left"),
    ],
)
def test_the_remaining_time_is_estimated_from_the_elapsed_time(done: int, line: str) -> None:
    assert progress_text(done, 16, 20.0) == line
