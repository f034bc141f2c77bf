"""The stage under a real spark-submit, from a real broker to a real S3 server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyspark

from support.flights_jobs import assert_arrow_exact, by_place
from tallystick.operations.commit import check_report
from tallystick_devstack.class_archive import make_spark_archive, submit_options

KILLED_AFTER_UPLOAD = """
import os
from tallystick.engine import combine

def transform(records):
    try:
        os.close(os.open(os.environ["KILLED_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        # A task computes its partial rows last: its files are uploaded by then (C4).
        combine.PartialRows.to_ipc = lambda self: os._exit(17)
    return flights(records)
"""

KILLED_IN_ITS_SECOND_SPLIT = """
import os
from pathlib import Path
from tallystick.engine import combine

def transform(records):
    first, second = (Path(os.environ["KILLED"], name) for name in ("first", "second"))
    if first.exists() and not second.exists():
        second.touch()
        combine.PartialRows.to_ipc = lambda self: os._exit(17)
    first.touch()
    return flights(records)
"""

PRINTS_ITS_PYSPARK = """
import sys
import pyspark

print("driver:", pyspark.__file__, file=sys.stderr)

def transform(records):
    print("worker:", pyspark.__file__, file=sys.stderr)
    return flights(records)
"""


def test_two_plans_in_one_job_are_staged_exactly(spark_lake: Any) -> None:
    spark_lake.change_transform(PRINTS_ITS_PYSPARK)
    plans = [spark_lake.plan(0), spark_lake.plan(1)]
    mapped = spark_lake.folder / "cds.log"
    make_spark_archive()  # `make setup` made it, unless Java or pyspark has changed since
    ended = spark_lake.submit(
        plans,
        master="local[2]",
        SPARK_SUBMIT_OPTS=f"{submit_options({})} -Xlog:cds=info:file={mapped}",
    )
    # The archive of `make setup` matches the class path of a real driver.
    assert "Mapped dynamic region" in mapped.read_text()
    # Not from Spark's zip file, whose modules are compiled at each import.
    for process in ("driver", "worker"):
        assert f"{process}: {pyspark.__file__}" in ended.output

    for day, plan in enumerate(plans):
        report = spark_lake.report(ended, day)
        assert ended.result[day]["plan"] == report.plan == plan.key
        check_report(spark_lake.lake, plan, report)
        assert_arrow_exact(spark_lake, report, day)
        assert {f.key for f in report.files if f.table == "flights"} == spark_lake.uploaded(
            plan, "flights"
        )
    # One version of Spark in Python and in the JVM: the job checks it and logs it.
    assert f"spark {pyspark.__version__} at local[2]: 4 task(s)" in ended.output

    secret = (
        spark_lake.lake.store.get(spark_lake.report(ended).key).body.decode()
        + ended.output
        + " ".join(ended.argv)
    )
    assert "canary" not in secret
    assert spark_lake.servers.login["bootstrap_servers"] not in " ".join(ended.argv)

    dead = by_place(spark_lake.rows([f for f in report.files if f.table == "dead_letters"]))
    produced = spark_lake.servers.produced
    assert {p: r["reason"].split(":")[0] for p, r in dead.items()} == {
        p: kind for p, kind in produced.dead.items() if p[1] >= produced.middle[p[0]]
    }
    typed = next(r for r in dead.values() if r["reason"].startswith("type"))
    assert typed["reason"] == 'type: field year: "x" is not an int'
    assert (typed["key"], typed["value"]) == (b"k", b'{"year": "x"}')
    assert json.loads(typed["headers"]) == [
        ["origin", base64.b64encode(b"test").decode()],
        ["origin", None],
    ]
    assert next(r for r in dead.values() if r["reason"].startswith("tombstone"))["value"] is None


def test_files_of_a_task_killed_after_its_upload_are_in_no_report(spark_lake: Any) -> None:
    spark_lake.change_transform(KILLED_AFTER_UPLOAD)
    plan = spark_lake.plan(0)
    ended = spark_lake.submit(
        [plan], master="local[2,3]", KILLED_ONCE=str(spark_lake.folder / "killed")
    )

    report = spark_lake.report(ended)
    assert (spark_lake.folder / "killed").exists()
    check_report_apart_from_orphans(spark_lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)


def test_a_task_killed_in_its_second_split_leaves_nothing_of_its_first_in_the_report(
    spark_lake: Any,
) -> None:
    """Two small splits share a task: the first has its result when the task dies, and both are staged again."""
    spark_lake.records_per_task = 500_000
    spark_lake.change_transform(KILLED_IN_ITS_SECOND_SPLIT)
    plan = spark_lake.plan(0)
    ended = spark_lake.submit([plan], master="local[1,3]", KILLED=str(spark_lake.folder))

    report = spark_lake.report(ended)
    assert "at local[1,3]: 1 task(s)" in ended.output
    assert (spark_lake.folder / "second").exists()
    check_report_apart_from_orphans(spark_lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)


def check_report_apart_from_orphans(spark_lake: Any, plan: Any, report: Any) -> None:
    check_report(spark_lake.lake, plan, report)
    reported = {f.key for f in report.files if f.table == "flights"}
    orphans = spark_lake.uploaded(plan, "flights") - reported
    assert orphans, "the killed task uploaded nothing: the test killed it too early"


def test_a_changed_job_is_refused_before_spark_starts(spark_lake: Any) -> None:
    plan = spark_lake.plan(0)
    spark_lake.job.write_text(spark_lake.job.read_text() + "# deployed since\n")
    ended = spark_lake.submit([plan])
    assert ended.code == 77, ended.output
    assert ended.result["error"]["kind"] == "job_changed"
    assert "clear the plan task" in ended.result["error"]["hint"]
    assert spark_lake.uploaded(plan, "flights") == set()


def test_an_error_in_a_task_reaches_the_operator_unchanged(spark_lake: Any) -> None:
    failing = '    raise KeyError("field")\n    """Return one row'
    source = spark_lake.job.read_text()
    spark_lake.job.write_text(source.replace('    """Return one row', failing))
    ended = spark_lake.submit([spark_lake.plan(0)])
    assert ended.code == 77, ended.output
    error = ended.result["error"]
    assert error["kind"] == "invalid_pipeline"
    assert "the transform raised KeyError: 'field'" in error["message"]
    assert error["message"].startswith("job job.py, flights[0] [0, ")
    assert "batch from offset 0" in error["message"]
    assert "Traceback" not in error["message"]


def test_an_unreachable_broker_is_a_retryable_error_that_names_the_endpoint(
    spark_lake: Any,
) -> None:
    settings = json.dumps({"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 1000})
    ended = spark_lake.submit([spark_lake.plan(0)], TALLYSTICK_KAFKA_DEFAULT=settings)
    assert ended.code == 75, ended.output
    assert ended.result["error"]["kind"] == "kafka_unavailable"
    assert "127.0.0.1:1" in ended.result["error"]["message"]


def test_another_python_of_the_workers_is_named(spark_lake: Any, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho /elsewhere\n")
    other.chmod(0o755)
    ended = spark_lake.submit(
        [spark_lake.plan(0)],
        PYSPARK_PYTHON=str(other),
        PYSPARK_DRIVER_PYTHON=str(Path(pyspark.__file__).parents[4] / "bin" / "python"),
    )
    assert ended.code == 77, ended.output
    assert str(other) in ended.result["error"]["message"]
    assert "PYSPARK_PYTHON=" in ended.result["error"]["hint"]
