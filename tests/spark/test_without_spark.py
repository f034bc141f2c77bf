"""A job in a plain Python process: the same rows, accounts and errors as under Spark, and no Spark in it."""

from __future__ import annotations

import json
import sys
from typing import Any

from support.flights_jobs import assert_arrow_exact
from tallystick.operations.commit import check_report

SHOWS_ITS_PROCESS = """
import os
import sys

print("driver", os.getpid(), file=sys.stderr)

def transform(records):
    print("task", os.getpid(), sorted({"pyspark", "py4j"} & sys.modules.keys()), file=sys.stderr)
    return flights(records)
"""

DIES_ONCE = """
import os
from tallystick.engine import combine

def transform(records):
    try:
        os.close(os.open(os.environ["DIED_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        # A task computes its partial rows last: its files are uploaded by then (C4).
        combine.PartialRows.to_ipc = lambda self: os._exit(17)
    return flights(records)
"""


def test_two_plans_are_staged_exactly_in_one_process_that_loads_no_spark(spark_lake: Any) -> None:
    spark_lake.change_transform(SHOWS_ITS_PROCESS)
    plans = [spark_lake.plan(0), spark_lake.plan(1)]
    ended = spark_lake.submit(plans, without_spark=True)
    for day, plan in enumerate(plans):
        report = spark_lake.report(ended, day)
        assert ended.result[day]["plan"] == report.plan == plan.key
        check_report(spark_lake.lake, plan, report)
        assert_arrow_exact(spark_lake, report, day)
        uploaded = spark_lake.uploaded(plan, "flights")
        assert {f.key for f in report.files if f.table == "flights"} == uploaded
    lines = ended.output.splitlines()
    (driver,) = {line.split()[1] for line in lines if line.startswith("driver ")}
    tasks = {line for line in lines if line.startswith("task ")}
    assert tasks == {f"task {driver} []"}
    assert ended.argv[0] == sys.executable
    # Several input splits per plan: a record is in one of them.
    assert "without Spark: 4 input split(s)" in ended.output


def test_files_of_a_process_that_died_after_its_upload_are_in_no_report(spark_lake: Any) -> None:
    spark_lake.change_transform(DIES_ONCE)
    plan = spark_lake.plan(0)
    marker = str(spark_lake.folder / "died")
    died = spark_lake.submit([plan], without_spark=True, DIED_ONCE=marker)
    assert (died.code, died.result) == (17, None)
    orphans = spark_lake.uploaded(plan, "flights")
    assert orphans, "the process uploaded nothing: it died too early"

    report = spark_lake.report(spark_lake.submit([plan], without_spark=True, DIED_ONCE=marker))
    check_report(spark_lake.lake, plan, report)
    assert_arrow_exact(spark_lake, report, 0)
    assert not orphans & {f.key for f in report.files}


def test_an_error_of_the_transform_reaches_the_operator_unchanged(spark_lake: Any) -> None:
    failing = '    raise KeyError("field")\n    """Return one row'
    source = spark_lake.job.read_text()
    spark_lake.job.write_text(source.replace('    """Return one row', failing))
    ended = spark_lake.submit([spark_lake.plan(0)], without_spark=True)
    assert ended.code == 77, ended.output
    assert ended.result["error"]["kind"] == "invalid_pipeline"
    assert "the transform raised KeyError: 'field'" in ended.result["error"]["message"]


def test_an_unreachable_broker_is_a_retryable_error_that_names_the_endpoint(
    spark_lake: Any,
) -> None:
    settings = json.dumps({"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 1000})
    ended = spark_lake.submit(
        [spark_lake.plan(0)], without_spark=True, TALLYSTICK_KAFKA_DEFAULT=settings
    )
    assert ended.code == 75, ended.output
    assert ended.result["error"]["kind"] == "kafka_unavailable"
    assert "127.0.0.1:1" in ended.result["error"]["message"]


def test_a_job_of_dataframes_is_refused_and_the_error_names_the_option(frames_lake: Any) -> None:
    plan = frames_lake.plan(0)
    ended = frames_lake.submit([plan], without_spark=True)
    assert ended.code == 77, ended.output
    assert ended.result["error"]["kind"] == "invalid_pipeline"
    assert "without_spark_offsets_max" in ended.result["error"]["hint"]
    assert frames_lake.uploaded(plan, "flights") == set()
