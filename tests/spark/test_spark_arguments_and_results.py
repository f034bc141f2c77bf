"""The arguments, exit codes and result file of a job, without a JVM."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from support.small_lake import SmallLake, days
from tallystick.engine import combine
from tallystick.errors import (
    InvalidPipeline,
    InvalidRequest,
    JobChanged,
    KafkaUnavailable,
    LogDamaged,
    OutcomeUnknown,
    RetryLater,
    ScratchFull,
    StoreUnavailable,
    Superseded,
    TallystickError,
)
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.spark.arguments import parse_arguments
from tallystick.spark.entry import run_job, stage_arrow
from tallystick.spark.outcome import (
    FileOutcome,
    StagedPlan,
    error_from,
    error_json,
    error_line,
    exit_code,
    most_decisive,
    scratch_full,
)
from tallystick.spark.stage import known_error, results_of, run_or_error
from tallystick.spark.transformed import transformed
from tallystick.store.memory import MemoryStore
from tallystick.store.open import open_store

KEY = f"plans/20130101T000000000Z-20130102T000000000Z/{'a' * 32}.json"
PLAN = f"s3://lake/flights/{KEY}@{'0' * 64}"


def test_arguments_name_plans_and_an_attempt() -> None:
    other = PLAN.replace("a" * 32, "b" * 32)
    found = parse_arguments(["--plan", PLAN, "--plan", other, "--attempt", "try-1"])
    assert [str(p) for p in found.plans] == [PLAN, other]
    assert (found.plans[0].lake_uri, found.plans[0].key) == ("s3://lake/flights", KEY)
    assert found.attempt == "try-1"
    assert (found.others, found.others_max) == ((), 0)


def test_arguments_name_the_plans_of_other_runs_apart() -> None:
    other = PLAN.replace("a" * 32, "b" * 32)
    argv = ["--plan", PLAN, "--attempt", "try-1", "--other", other, "--others-max", "3"]
    found = parse_arguments(argv)
    assert [str(p) for p in found.plans] == [PLAN]
    assert [str(p) for p in found.others] == [other]
    assert found.others_max == 3


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--plan", PLAN],
        ["--attempt", "1"],
        ["--plan", PLAN.replace("@", "#"), "--attempt", "1"],
        ["--plan", PLAN[:-1], "--attempt", "1"],
        ["--plan", PLAN.replace("aaa.json", "../x.json"), "--attempt", "1"],
        ["--plan", PLAN, "--attempt", "../1"],
        ["--plan", PLAN, "--plan", PLAN, "--attempt", "1"],
        [
            "--plan",
            PLAN,
            "--plan",
            PLAN.replace("lake", "sea").replace("aaa", "bbb"),
            "--attempt",
            "1",
        ],
        ["--plan", PLAN, "--attempt", "1", "--conf", "x"],
        ["--plan", PLAN, "--att", "1"],
        ["--plan", PLAN, "--attempt", "1", "--other", PLAN],
        ["--plan", PLAN, "--attempt", "1", "--other", PLAN.replace("lake", "sea")],
        ["--plan", PLAN, "--attempt", "1", "--others-max", "many"],
    ],
)
def test_other_arguments_are_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="arguments of the job"):
        parse_arguments(argv)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaUnavailable("a", hint="b"), 75),
        (OutcomeUnknown("a", hint="b"), 75),
        (Superseded("a", hint="b"), 76),
        (JobChanged("a", hint="b"), 77),
        (InvalidPipeline("a", hint="b"), 77),
        (ValueError("a"), 1),
    ],
)
def test_the_exit_code_selects_the_next_action(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def task_row(split: int, error: TallystickError | None = None, *partials: bytes) -> dict[str, Any]:
    """Return the row of a task, with the columns that are read before any result."""
    text = None if error is None else json.dumps(error_json(error))
    return {"split": split, "error": text, "partials": list(partials)}


def test_the_most_decisive_error_is_raised() -> None:
    later, stop, action, foreign = (
        KafkaUnavailable("away.", hint="retry."),
        Superseded("other.", hint="nothing."),
        LogDamaged("broken.", hint="check."),
        TallystickError("odd.", hint="read."),
    )
    assert most_decisive([later, foreign, stop, action]) is action
    assert most_decisive([later, foreign, stop]) is stop
    assert most_decisive([later, foreign]) is foreign
    first, second = (JobChanged(n, hint="") for n in ("first", "second"))
    assert most_decisive([later, first, second]) is first
    with pytest.raises(LogDamaged, match=r"broken\. Next: check\."):
        results_of([task_row(0, later), task_row(1), task_row(2, action), task_row(3, later)])


def test_too_many_partial_rows_are_an_invalid_pipeline_also_when_spark_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(combine, "PARTIALS_BYTES_MAX", 10)
    rows = [task_row(0, None, b"12345", b"6"), task_row(1, None, b"78901")]
    with pytest.raises(
        InvalidPipeline, match="of 2 input splits have 11 bytes, but the driver accepts at most 10"
    ):
        results_of(rows)
    spark: Any = None
    text = "Total size of serialized results of 9 tasks is bigger than spark.driver.maxResultSize"
    found = known_error(spark, RuntimeError(text))
    assert isinstance(found, InvalidPipeline)
    assert "records_per_task" in found.hint


def test_a_tallystick_error_is_found_in_an_error_of_spark() -> None:
    spark: Any = None
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "source.py", line 1, in read\n'
        "tallystick.errors.StoreUnavailable: S3 at h:1 did not answer.\nTried twice. Next: retry.\n"
        "\n\tat org.apache.spark.Task.run(Task.scala)\n"
    )
    found = known_error(spark, RuntimeError(text))
    assert type(found) is StoreUnavailable
    assert found.message == "S3 at h:1 did not answer.\nTried twice."
    assert found.hint == "retry."
    other = RuntimeError("tallystick.errors without a class")
    assert known_error(spark, other) is other


def test_an_error_keeps_its_class_through_json() -> None:
    error = KafkaUnavailable("no broker at h:1.", hint="retry.")
    found = error_from(json.loads(json.dumps(error_json(error))))
    assert type(found) is KafkaUnavailable
    assert str(found) == str(error)
    assert type(error_from({"kind": "newer", "message": "a", "hint": "b"})) is TallystickError


def test_the_error_line_is_found_in_long_stack_traces() -> None:
    text = (
        "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nValueError: no field\n\n\tat org.apache.spark.Task.run(Task.scala)\n'
    )
    assert error_line(text) == "ValueError: no field"
    assert error_line("only this\nand that") == "only this"
    assert error_line("") == ""


def test_the_result_file_is_complete_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    FileOutcome(str(path)).write_results(
        [StagedPlan(plan="p", report="r"), StagedPlan(plan="q", report=None)]
    )
    assert json.loads(path.read_text()) == [
        {"plan": "p", "report": "r"},
        {"plan": "q", "report": None},
    ]
    FileOutcome(str(path)).write_error(JobChanged("a", hint="b"))
    assert json.loads(path.read_text()) == {
        "error": {"kind": "job_changed", "message": "a", "hint": "b"}
    }
    assert list(tmp_path.iterdir()) == [path]
    FileOutcome(None).write_results([])


def test_a_job_with_bad_arguments_writes_the_error_to_its_result_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    environ = {"TALLYSTICK_RESULT_FILE": str(path)}
    code = run_job(lambda r: r, ["--plan"], environ=environ, job=path, staging=stage_arrow)
    assert code == 77
    assert json.loads(path.read_text())["error"]["kind"] == "invalid_request"


def test_a_transform_gets_the_frames_and_the_context_if_it_has_a_parameter_for_it() -> None:
    spark: Any = None
    one, two, context = cast("Any", "one"), cast("Any", "two"), cast("Any", "context")
    pipeline = Pipeline(
        name="p",
        topics=["a"],
        warehouse="memory://p",
        job="job.py",
        tables=[Table("t", columns=[Column("n", "int")])],
    )
    arguments: list[Any] = []

    def with_context(records: Any, context: Any) -> int:
        arguments.extend([records, context])
        return 5

    for transform in (arguments.append, with_context):
        for frames in ({"a": one}, {"a": one, "b": two}):
            with pytest.raises(
                InvalidPipeline, match=r"job job\.py: expected .* from the transform, found"
            ):
                transformed(spark, transform, frames, context, pipeline)
    both = {"a": one, "b": two}
    assert arguments == ["one", both, "one", "context", both, "context"]


def test_a_job_file_can_be_imported_without_spark() -> None:
    code = "import sys, tallystick.spark; assert not {'pyspark', 'pyarrow', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("edit", "kind", "message", "hint"),
    [
        ("digest", "corrupt", "expected digest 000000", "clear the plan task"),
        (
            "job",
            "job_changed",
            "the job of [2013-01-02",
            "clear the plan",
        ),
        ("plan", "superseded", None, None),
    ],
)
def test_a_job_that_was_started_for_another_plan_stages_nothing(
    tmp_path: Path, edit: str, kind: str, message: str | None, hint: str | None
) -> None:
    store = open_store("memory://arguments")
    assert isinstance(store, MemoryStore)
    store.delete([listed.key for listed in store.list("")])
    small = SmallLake(store=store)
    (split,) = small.plan(days(2, 3)).intervals
    plan = small.lake.plan(split.plan)
    assert plan is not None
    job, result = tmp_path / "job.py", tmp_path / "result.json"
    job.write_bytes(b"another" if edit == "job" else small.job)
    if edit == "plan":
        small.plan(days(2, 3), run="other", take_over=True)
    digest = "0" * 64 if edit == "digest" else plan.sha256
    argv = ["--plan", f"memory://arguments/{plan.key}@{digest}", "--attempt", "try-1"]
    before = small.keys("")
    environ = {"TALLYSTICK_RESULT_FILE": str(result)}
    code = run_job(lambda r: r, argv, environ=environ, job=job, staging=stage_arrow)
    outcome = json.loads(result.read_text())
    assert small.keys("") == before
    if message is None:  # the run's commit raises the error; here there is nothing to do
        assert (code, outcome) == (0, [{"plan": plan.key, "report": None}])
        return
    assert (code, outcome["error"]["kind"]) == (77, kind)
    assert message in outcome["error"]["message"]
    assert hint in outcome["error"]["hint"]


def full_disk() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")


def test_a_full_disk_is_retried_and_reported_by_the_last_try() -> None:
    """Linux's /dev/full fails like a full disk. Outside a task there is one try."""
    result, text = run_or_error(full_disk, 1)
    assert result is None
    error = json.loads(text or "")
    assert error["kind"] == "scratch_full"
    assert f"on {socket.gethostname()}: No space left on device" in error["message"]
    assert isinstance(error_from(error), RetryLater)


def test_a_full_disk_is_reported_if_python_finds_no_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def probes() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", probes)
    monkeypatch.setenv("TMPDIR", "/full")
    found = scratch_full(OSError(28, "No space left on device"))
    assert found is not None
    assert found.message.startswith("/full on ")


def test_another_os_error_is_not_changed() -> None:
    with pytest.raises(FileNotFoundError):
        run_or_error(lambda: Path("/no/such/file").read_text(), 1)
    assert scratch_full(FileNotFoundError(2, "no such file")) is None


def test_a_full_disk_in_spark_is_recognised_by_its_text() -> None:
    text = (
        "An error occurred while calling o7.collect.\n: org.apache.spark.SparkException: Job aborted: Task 3 in stage 1 "
        "failed 4 times, most recent failure: java.io.IOException: No space left on device\n\tat java.base"
    )
    error = known_error(cast("Any", None), RuntimeError(text))
    assert isinstance(error, ScratchFull)
    assert "Nothing was committed" in error.message
    assert exit_code(error) == 75
