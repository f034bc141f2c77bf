"""A pipeline with a lake and a log in memory, its DAG, and a script as spark-submit that records its calls."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from support.fakes import FakeLog, stage
from support.small_lake import day, fill, pipeline
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.opening import open_lake
from tallystick.lake import Lake
from tallystick.pipeline import Pipeline
from unit.airflow.runs import AirflowEvents, FakeRun

NAMES = itertools.count()


class Bench:
    """One pipeline with its lake, its log, its DAG and the spark-submit that its stage task starts."""

    def __init__(self, folder: Path, *, lateness: timedelta = timedelta(0)) -> None:
        self.folder = folder
        base = pipeline(f"memory://operators-{next(NAMES)}")
        self.pipeline = Pipeline(
            name=base.name,
            topics=base.topics,
            warehouse=base.warehouse,
            job=base.job,
            tables=base.tables,
            lateness=lateness,
        )
        self.log = FakeLog()
        fill(self.log)
        self.deploy("version 1")
        self.program = folder / "spark-submit"
        self.write_program(
            {
                "error": {
                    "kind": "action_required",
                    "message": "nothing was prepared.",
                    "hint": "prepare.",
                }
            },
            code=77,
        )

    def deploy(self, source: str) -> None:
        job = self.folder / self.pipeline.job
        job.parent.mkdir(exist_ok=True)
        job.write_text(f"# {source}\n")

    def write_program(self, result: Any, *, code: int = 0, prints: str = "the job talks") -> None:
        """Write a spark-submit that prints `prints`, writes `result` (None: no result file) and exits with `code`."""
        text = None if result is None else json.dumps(result)
        self.program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            f"open(sys.argv[0] + '.calls', 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"text = {text!r}\n"
            f"if text is not None:\n    open(os.environ['TALLYSTICK_RESULT_FILE'], 'w').write(text)\n"
            f"print({prints!r})\nsys.exit({code})\n"
        )
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[list[str]]:
        file = self.program.with_name("spark-submit.calls")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def lake(self) -> Lake:
        return open_lake(self.pipeline)

    @property
    def dag(self) -> DAG:
        return replay_dag(
            self.pipeline,
            schedule="@daily",
            start_date=day(1),
            job_root=self.folder,
            spark_binary=str(self.program),
        )

    def task(self, name: str) -> Any:
        return self.dag.task_dict[name]

    def stage(self, run: FakeRun) -> Any:
        """Execute the task `stage` with a spark-submit that stages what was planned."""
        left = [p["plan"] for p in run.returned["plan"]["plans"] if not p["committed"]]
        snapshot = self.lake.load_existing()
        open_ = [k for k in left if not _committed(snapshot.whole_ledger().entries, k)]
        self.write_program(
            [
                {"plan": k, "report": stage(self.lake, self.log, k, attempt=run.attempt.hex)}
                for k in open_
            ]
        )
        return run.execute(self.task("stage"))

    def run_all(self, run: FakeRun) -> Any:
        """Execute all three tasks."""
        run.execute(self.task("plan"))
        self.stage(run)
        return run.execute(self.task("commit"))


def _committed(entries: Any, key: str) -> bool:
    return any(e.committed is not None and e.committed.plan == key for e in entries)


class _Planner:
    log: FakeLog

    def __init__(self, _: Any) -> None: ...

    def __enter__(self) -> FakeLog:
        return self.log

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow_events: AirflowEvents) -> Bench:
    del airflow_events  # the commit tasks of its runs read their events there
    monkeypatch.setenv("TALLYSTICK_KAFKA_DEFAULT", '{"bootstrap_servers": "nowhere:9092"}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    base = Bench(tmp_path)
    monkeypatch.setattr(_Planner, "log", base.log, raising=False)
    monkeypatch.setattr("tallystick.kafka.planning.LogPlanner", _Planner)
    return base
