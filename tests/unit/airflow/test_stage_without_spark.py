"""A stage task with `without_spark_offsets_max`: which plans a plain Python process stages, and how it is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.fakes import stage
from support.small_lake import day, days
from tallystick.airflow.dag import replay_dag
from tallystick.errors import InvalidPipeline
from tallystick.protocol.staging import offsets
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
JOB = """\
import json
import os
import sys
from pathlib import Path

here = Path(__file__).parent
call = {"argv": sys.argv[1:], "python": sys.executable, "environ": sorted(os.environ)}
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(call) + "\\n")
result = here / "result.json"
if not result.exists():
    sys.exit("ConnectionError: no result was prepared")
Path(os.environ["TALLYSTICK_RESULT_FILE"]).write_text(result.read_text())
"""


class Planned:
    """A planned run of a day, its plan and its DAG, with a job that records how it was started."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.job = bench.folder / bench.pipeline.job
        self.job.parent.mkdir(exist_ok=True)
        self.job.write_text(JOB)
        self.run = FakeRun(interval=days(1, 2), run_after=day(2), run_id="scheduled__1")
        self.run.execute(bench.task("plan"))
        (one,) = self.run.returned["plan"]["plans"]
        plan = bench.lake.plan(one["plan"])
        assert plan is not None
        self.plan = plan

    def stage(self, **options: Any) -> Any:
        """Execute the task `stage` of a DAG with these options. The process, if one is started, stages the plan."""
        dag = replay_dag(
            self.bench.pipeline,
            schedule="@daily",
            start_date=day(1),
            job_root=self.bench.folder,
            spark_binary=str(self.bench.program),
            **options,
        )
        return self.run.execute(dag.task_dict["stage"])

    def prepare(self) -> str:
        """Stage the plan as the process would, and let the process return the report. Return its key."""
        attempt = self.run.attempt.hex
        key = stage(self.bench.lake, self.bench.log, self.plan.key, attempt=attempt)
        result = [{"plan": self.plan.key, "report": key}]
        (self.job.parent / "result.json").write_text(json.dumps(result))
        self.bench.write_program(result)
        return key

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How the job was started as a plain Python process."""
        file = self.job.parent / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def planned(bench: Bench) -> Planned:
    return Planned(bench)


def test_a_small_plan_is_staged_by_a_python_process_and_committed(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "canary")
    report = planned.prepare()
    staged = planned.stage(without_spark_offsets_max=offsets(planned.plan))
    assert staged == [{"plan": planned.plan.key, "report": report}]
    (call,) = planned.calls
    where = planned.bench.lake.where(planned.plan.key)
    assert call["argv"][:4] == [
        "--plan",
        f"{where}@{planned.plan.sha256}",
        "--attempt",
        planned.run.attempt.hex,
    ]
    assert call["argv"][-1] == "--without-spark"
    assert call["python"] == sys.executable
    # The environment is that of a driver: no secret of Airflow.
    assert "TALLYSTICK_KAFKA_DEFAULT" in call["environ"]
    assert not [name for name in call["environ"] if name.startswith("AIRFLOW")]
    assert planned.bench.calls == []
    assert planned.run.execute(planned.bench.task("commit"))["covered"] == [days(1, 2).to_json()]


@pytest.mark.parametrize("less", [1, None])
def test_a_larger_plan_and_every_plan_without_the_option_start_spark(
    planned: Planned, less: int | None
) -> None:
    planned.prepare()
    options = {} if less is None else {"without_spark_offsets_max": offsets(planned.plan) - less}
    planned.stage(**options)
    assert len(planned.bench.calls) == 1
    assert planned.calls == []


def test_a_plan_without_offsets_starts_spark_if_the_option_is_off(bench: Bench) -> None:
    """A job of DataFrames with a lookback has rows for such a plan, and only Spark can run it."""
    task = bench.task("stage")
    assert not task._is_without_spark([])


def test_a_deferrable_task_does_not_wait_on_a_cluster_for_a_small_plan(planned: Planned) -> None:
    report = planned.prepare()
    staged = planned.stage(deferrable=True, without_spark_offsets_max=1_000)
    assert staged == [{"plan": planned.plan.key, "report": report}]


def test_a_process_that_dies_is_named_and_the_task_retries(planned: Planned) -> None:
    with pytest.raises(AirflowException) as caught:
        planned.stage(without_spark_offsets_max=1_000)
    assert not isinstance(caught.value, AirflowFailException)
    name = Path(sys.executable).name
    assert f"{name} ended with exit code 1 before the job wrote a result" in str(caught.value)
    assert "ConnectionError: no result was prepared" in str(caught.value)


def test_a_python_that_is_not_there_is_named(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/nowhere/python")
    with pytest.raises(AirflowFailException, match="'/nowhere/python' cannot be started"):
        planned.stage(without_spark_offsets_max=1_000)


def test_a_negative_number_of_offsets_is_refused(planned: Planned) -> None:
    with pytest.raises(InvalidPipeline, match="expected at least 0, found -1"):
        planned.stage(without_spark_offsets_max=-1)
