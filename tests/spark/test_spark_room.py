"""A stage whose finished tasks have more files than a report can list is ended before its other tasks run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

JOB = """
import logging, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pyspark.sql import SparkSession
from tallystick.errors import InvalidPipeline
from tallystick_devstack.process import wait_until
from tallystick.spark import room, stage
from unit.format.samples import SAMPLE_FILE, SAMPLE_PLAN

room.EVERY_S = 0.1
folder, tasks = Path(sys.argv[1]), 40
plan = replace(SAMPLE_PLAN, spec={**SAMPLE_PLAN.spec, "records_per_task": 7})

def task_of(adders, room):
    def task(batches):
        for batch in batches:
            number = batch.column(0)[0].as_py()
            (folder / str(number)).touch()
            if number >= 10:
                # The earlier tasks have ended: their files are enough, and a stage that continues would hang here.
                wait_until((folder / "go").exists, deadline_s=240, what="the end of the stage")
            room.add_files(adders, [SAMPLE_FILE] * 2)
            yield batch
    return task

logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
session = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())

def run(bytes_max):
    files = room.FilesOfTasks(session, plan, before=[SAMPLE_FILE], bytes_max=bytes_max)
    with files.watched():
        frame = session.range(0, tasks, 1, tasks).mapInArrow(task_of(files.adders, room), "id bigint")
        return len(stage.collected(session, frame)), files

try:
    run(room.file_bytes([SAMPLE_FILE]) * 15)
except InvalidPipeline as error:
    print("refused:", error)
print("started:", sum(f.name.isdigit() for f in folder.iterdir()))
(folder / "go").touch()
rows, files = run(room.file_bytes([SAMPLE_FILE]) * 81)
print("rows", rows, "files", files.adders[1].value)
session.stop()
"""


def test_remaining_tasks_are_not_run_once_there_are_too_many_files(tmp_path: Path) -> None:
    job, folder = tmp_path / "job.py", tmp_path / "tasks"
    job.write_text(JOB)
    folder.mkdir()
    tests = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, str(job), str(folder), str(tests)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "refused: " in output, output
    assert "files so far: each task writes a file per partition value" in output
    assert "fewer tasks, with a higher records_per_task (now 7)" in output
    # Ten have ended, two are running.
    started = next(line for line in output.splitlines() if line.startswith("started: "))
    assert int(started.removeprefix("started: ")) <= 12
    # Exactly as many as fit are accepted: one before, and two of each task, each counted once.
    assert "rows 40 files 81" in output
