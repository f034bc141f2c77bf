"""DataFrame jobs under a real spark-submit: joined, shuffled, written once, accounted exactly."""

from __future__ import annotations

import json
import re
import runpy
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import tallystick.airflow
from support.flights_jobs import FRAMES_JOB, assert_frames_exact
from tallystick.format import keys
from tallystick.operations.commit import check_report, commit
from tallystick.operations.verify.run import verify
from tallystick.tables.staging import IcebergTables

PROJECT = Path(__file__).parents[2]
KILLED_AFTER_UPLOAD = """
import os
from tallystick.spark import frames, landing

def killed_once(run, name_of):
    def killing(*args):
        done = run(*args)
        try:
            os.close(os.open(os.environ["KILLED_ONCE"] + name_of(*args), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return done
        os._exit(17)  # its files are uploaded by then (C4)
    return killing

if __name__ == "__main__":
    # Functions of the job file are sent to the tasks by value.
    landing._land = killed_once(landing._land, lambda order, work_of, reading_of, split: split.task)
    frames._write = killed_once(frames._write, lambda target, name, *_: name)
"""
GONE = """
import os
from tallystick.spark import run_dataframe
from tallystick.store.open import open_store

def transform(records):
    assert records.count() == records.count() == 600
    store = open_store(os.environ["TEST_LAKE"])
    store.delete([f.key for f in store.list("scratch/") if f.key.endswith(".parquet")])
    return records.count()

if __name__ == "__main__":
    run_dataframe(transform)
"""


@pytest.fixture
def ontime_lake(spark_lake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a lake with the pipeline of the project's own example."""
    # The DAG file's pipeline without its DAG: Airflow is not needed here.
    monkeypatch.setitem(vars(tallystick.airflow), "replay_dag", lambda *_, **__: None)
    monkeypatch.setenv("TALLYSTICK_ONTIME_WAREHOUSE", spark_lake.uri)
    pipeline = runpy.run_path(str(PROJECT / "dags" / "ontime.py"))["pipeline"]
    spark_lake.pipeline = lambda: pipeline
    spark_lake.job.write_bytes((PROJECT / "spark_jobs" / "ontime.py").read_bytes())
    return spark_lake


def assert_conf_without_secrets(configuration: dict[str, Any], login: dict[str, str]) -> None:
    """Check that Spark's and the JVM's configuration in a job contain no secret and no setting of Kafka."""
    assert configuration["conf"]["spark.master"] == "local[2]"
    assert configuration["session"]["spark.sql.session.timeZone"] == "UTC"
    assert configuration["properties"]["java.version"]
    # The search can find them: both are in the job's environment, which tallystick reads.
    assert "canary" in json.dumps(login)
    for place, values in configuration.items():
        assert "canary" not in json.dumps(values), place
        assert login["bootstrap_servers"] not in json.dumps(values), place


def test_a_dataframe_job_with_a_join_and_a_shuffle_is_staged_exactly(frames_lake: Any) -> None:
    plans = [frames_lake.plan(0), frames_lake.plan(1)]
    seen_file = frames_lake.folder / "configuration.json"
    ended = frames_lake.submit(plans, master="local[2]", TEST_SEEN=str(seen_file))
    assert_conf_without_secrets(json.loads(seen_file.read_text()), frames_lake.servers.login)
    for day, plan in enumerate(plans):
        report = frames_lake.report(ended, day)
        check_report(frames_lake.lake, plan, report)
        assert_frames_exact(frames_lake, plan, report, day)
        assert {f.key for f in report.files if f.table == "flights"} == frames_lake.uploaded(
            plan, "flights"
        )
        # Two outputs and one landing: each input split was read from Kafka once.
        attempt = keys.scratch_prefix(plan.key, report.attempt)
        listed = [item.key for item in frames_lake.lake.store.list(attempt)]
        assert sum(key.endswith(".parquet") for key in listed) == 4
        assert sum(key.endswith(".json") for key in listed) == 1
        assert all(f.lineage for f in report.files if f.table != "origins")
        assert not any(f.lineage for f in report.files if f.table == "origins")
    # Kafka's settings reach the tasks only in their closures.
    assert frames_lake.servers.login["bootstrap_servers"] not in ended.output
    assert "canary" not in ended.output + " ".join(ended.argv)


def test_files_of_tasks_killed_after_their_uploads_are_in_no_report(
    frames_lake: Any,
) -> None:
    job = FRAMES_JOB.replace('repartition(5, "tailnum")', "repartition(5)")
    head, main = job.split("if __name__")
    frames_lake.job.write_text(f"{head}{KILLED_AFTER_UPLOAD}\nif __name__{main}")
    plan = frames_lake.plan(0)
    killed = frames_lake.folder / "killed-"
    ended = frames_lake.submit([plan], master="local[2,3]", KILLED_ONCE=str(killed))
    report = frames_lake.report(ended)
    check_report(frames_lake.lake, plan, report)
    assert_frames_exact(frames_lake, plan, report, 0)
    for table in ("dead_letters", "flights", "origins"):
        orphans = frames_lake.uploaded(plan, table) - {f.key for f in report.files}
        assert orphans, "the killed task uploaded nothing: the test killed it too early"
    listed = frames_lake.lake.store.list(keys.scratch_prefix(plan.key, report.attempt))
    assert sum(item.key.endswith(".parquet") for item in listed) == 8, "4 input splits, each twice"
    # The result is exact because its input never changes. The job logs the warning nevertheless.
    assert "table flights: Repartition 5, true distributes rows in turns" in ended.output
    assert "table origins: " not in ended.output.replace("table origins: 3 rows", "")


UNFIT = {
    'records.groupBy("origin").agg(F.count("*").alias("flights"))': (
        "job job.py: table 'origins': expected column 'name' of type string, found none"
    ),
    'per_origin.withColumn("flights", F.col("flights").cast("string"))': (
        "job job.py: table 'origins', column 'flights': expected long, found string"
    ),
    'records.select("nowhere")': (
        "job job.py: the transform raised AnalysisException: [UNRESOLVED_COLUMN"
    ),
    # Partial rows, as an Arrow job would return: only their tasks can detect it, so it is the last one.
    "per_origin.union(per_origin.coalesce(1))": (
        "job job.py, table 'origins': expected one row per key, found 2 rows of the key origin=EWR, name=United"
    ),
}
# Each transform as its own job, in one JVM: starting a JVM takes longer than refusing all of them.
ONE_JOB_PER_TRANSFORM = """
import os, sys
from pathlib import Path
from tallystick.spark.entry import run_job
from tallystick.spark.frames import stage_frames
from tallystick.store.open import open_store

def main():
    for number, transform in enumerate(TRANSFORMS):
        environ = {**os.environ, "TALLYSTICK_RESULT_FILE": f"{PLACE}/{number}.json"}
        code = run_job(transform, sys.argv[1:], environ=environ, job=Path(__file__), staging=stage_frames)
        written = list(open_store(os.environ["TEST_LAKE"]).list("tables/flights/data/"))
        Path(f"{PLACE}/{number}.end").write_text(f"{code} {len(written)}")

if __name__ == "__main__":
    main()
"""


def test_an_output_that_does_not_fit_is_refused(frames_lake: Any, tmp_path: Path) -> None:
    head = FRAMES_JOB.partition("if __name__")[0]
    transforms = [
        head.replace('"origins": per_origin', f'"origins": {origins}').replace(
            "def transform(", f"def transform_{number}("
        )
        for number, origins in enumerate(UNFIT)
    ]
    names = ", ".join(f"transform_{number}" for number in range(len(UNFIT)))
    place = tmp_path / "ends"
    place.mkdir()
    last = f"PLACE, TRANSFORMS = {str(place)!r}, [{names}]\n{ONE_JOB_PER_TRANSFORM}"
    frames_lake.job.write_text("\n".join([*transforms, last]))
    plan = frames_lake.plan(0)
    ended = frames_lake.submit([plan], TEST_LAKE=frames_lake.uri)
    assert ended.code == 0, ended.output
    for number, message in enumerate(UNFIT.values()):
        code, written = (place / f"{number}.end").read_text().split()
        assert code == "77", ended.output
        # All but the last are detected before anything is evaluated, so no file was written.
        assert (int(written) > 0) is (number == len(UNFIT) - 1)
        error = json.loads((place / f"{number}.json").read_text())["error"]
        assert error["kind"] == "invalid_pipeline"
        assert error["message"].startswith(message)
        assert "clear `plan`" in error["hint"]


def test_the_example_returns_the_share_of_flights_on_time_per_airline_and_day(
    ontime_lake: Any,
) -> None:
    plan = ontime_lake.plan(1)
    ended = ontime_lake.submit([plan])
    report = ontime_lake.report(ended)
    tables = IcebergTables(ontime_lake.lake.store, ontime_lake.lake.runtime)
    done = commit(ontime_lake.lake, tables, plan_key=plan.key, report_key=report.key)
    assert (done.totals.records, done.totals.dead_letters) == (600, 10)
    rows = ontime_lake.rows([f for f in report.files if f.table == "ontime_daily"]).to_pylist()
    # By hand: 600 flights of a day, of which every 40th was cancelled, all of one airline.
    assert rows == [
        {
            "carrier": "UA",
            "day": date(2013, 1, 2),
            "airline": "United Air Lines Inc.",
            "flights": 600,
            "on_time": 585,
            "share": 0.975,
        }
    ]
    proof = verify(ontime_lake.lake, deep=True)
    assert proof.proven, proof


def test_a_landed_file_that_is_deleted_raises_an_error_with_its_key(frames_lake: Any) -> None:
    frames_lake.job.write_text(GONE)
    plan = frames_lake.plan(0)
    ended = frames_lake.submit([plan], TEST_LAKE=frames_lake.uri)
    assert ended.code == 77, ended.output
    error = ended.result["error"]
    assert error["kind"] == "corrupt"
    assert error["message"].startswith(f"{frames_lake.uri}/scratch/")
    assert re.search(r"\.parquet: expected ETag .*, found no object\.$", error["message"])
    assert "clear task `stage`" in error["hint"]
