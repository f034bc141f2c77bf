"""The three tasks, executed on a lake and a log in memory; spark-submit is a script that records its calls."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
)

from support.fakes import stage
from support.small_lake import day, days
from tallystick.airflow.assets import asset_of
from tallystick.airflow.operators.plan import PlanOperator, next_try_at
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.lake import Lake
from tallystick.operations.plan import PlanRequest, PlanResult
from tallystick.operations.run_request import RunDates
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def run_of(interval: Interval | None = None, **options: Any) -> FakeRun:
    interval = interval or days(1, 2)
    return FakeRun(interval=interval, run_after=interval.end, **options)


def test_run_commits_and_returns_what_is_covered(bench: Bench) -> None:
    run = run_of()
    event = bench.run_all(run)
    assert event["covered"] == [days(1, 2).to_json()]
    assert event["version"] == bench.lake.load_existing().root.version
    assert keys.record_version(event["record"]) == event["version"]
    assert run.events[asset_of(bench.pipeline).name].extra == event
    assert len(bench.calls) == 1


def test_xcom_holds_keys_and_digests_only(bench: Bench) -> None:
    run = run_of()
    planned = run.execute(bench.task("plan"))
    (granted,) = planned["plans"]
    frozen = bench.lake.plan(granted["plan"])
    assert frozen is not None
    assert granted == {"plan": frozen.key, "sha256": frozen.sha256, "committed": False}
    assert planned["interval"] == days(1, 2).to_json()
    (staged,) = bench.stage(run)
    assert staged["plan"] == frozen.key
    assert keys.check_report(staged["report"])
    assert json.loads(json.dumps(run.returned)) == run.returned


def test_argv_is_plans_with_digests_and_the_attempt(bench: Bench) -> None:
    run = run_of()
    bench.run_all(run)
    (argv,) = bench.calls
    (granted,) = run.returned["plan"]["plans"]
    address = f"{bench.pipeline.warehouse}/{granted['plan']}@{granted['sha256']}"
    assert argv[-7:] == [
        str(bench.folder / bench.pipeline.job),
        "--plan",
        address,
        "--attempt",
        run.attempt.hex,
        "--others-max",
        "11",
    ]


@pytest.mark.parametrize("task", ["plan", "stage", "commit"])
def test_clear_after_the_commit_starts_no_spark_and_changes_nothing(
    bench: Bench, task: str
) -> None:
    run = run_of()
    bench.run_all(run)
    before = bench.lake.load_existing().root
    run.clear_number = 1
    names = ["plan", "stage", "commit"]
    for name in names[names.index(task) :]:
        run.execute(bench.task(name))
    assert len(bench.calls) == 1
    assert bench.lake.load_existing().root == before
    assert run.events[asset_of(bench.pipeline).name].extra["covered"] == [days(1, 2).to_json()]


@pytest.mark.parametrize("task", ["plan", "stage", "commit"])
def test_clear_of_one_task_alone_changes_nothing(bench: Bench, task: str) -> None:
    run = run_of()
    bench.run_all(run)
    before = bench.lake.load_existing().root
    run.clear_number = 1
    run.execute(bench.task(task))
    assert len(bench.calls) == 1
    assert bench.lake.load_existing().root == before


def test_clear_after_a_change_replaces(bench: Bench) -> None:
    run = run_of()
    first = bench.run_all(run)
    bench.deploy("version 2")
    run.clear_number = 1
    second = bench.run_all(run)
    assert second["version"] > first["version"]
    (entry,) = bench.lake.load_existing().whole_ledger().entries
    assert entry.committed is not None
    assert entry.committed.generation == 2
    assert len(bench.calls) == 2


def test_clear_of_stage_after_a_change_logs_what_to_clear(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_of()
    bench.run_all(run)
    bench.deploy("version 2")
    capfd.readouterr()
    assert run.execute(bench.task("stage")) == []
    assert len(bench.calls) == 1
    assert "clear this run's plan task" in capfd.readouterr().out


def test_change_between_plan_and_stage_is_not_retried(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.deploy("version 2")
    with pytest.raises(AirflowFailException, match="clear this run's plan task"):
        run.execute(bench.task("stage"))
    assert not bench.calls


def test_retry_of_a_task_gets_the_same_plan(bench: Bench) -> None:
    run = run_of()
    first = run.execute(bench.task("plan"))
    assert run.execute(bench.task("plan")) == first


def test_second_run_over_the_same_days_succeeds_and_names_the_first(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    run_of().execute(bench.task("plan"))
    other = run_of(run_id="backfill__1")
    event = bench.run_all(other)
    assert event["covered"] == []
    assert event["held"] == [days(1, 2).to_json()]
    assert "held by small / scheduled__" in capfd.readouterr().out
    assert not bench.calls


def test_take_over_supersedes_the_first_run_without_a_retry(bench: Bench) -> None:
    first, second = run_of(), run_of(run_id="backfill__1", params={"take_over": True})
    first.execute(bench.task("plan"))
    bench.run_all(second)
    with pytest.raises(AirflowFailException, match="no longer granted"):
        first.execute(bench.task("stage"))
    assert len(bench.calls) == 1


def test_interval_without_records_is_committed_by_its_plan(bench: Bench) -> None:
    run = run_of(days(5, 6))
    event = bench.run_all(run)
    assert event["covered"] == [days(5, 6).to_json()]
    assert not bench.calls


def test_trigger_without_dates_takes_what_is_new(bench: Bench) -> None:
    bench.run_all(run_of(days(1, 3)))
    run = FakeRun(interval=None, run_after=day(7), run_id="manual__1")
    event = bench.run_all(run)
    assert event["interval"] == days(3, 7).to_json()
    again = FakeRun(interval=None, run_after=day(7), run_id="manual__2")
    assert bench.run_all(again)["interval"] is None
    assert len(bench.calls) == 2


def test_replace_by_form(bench: Bench) -> None:
    bench.run_all(run_of(days(1, 2)))
    bench.run_all(run_of(days(2, 3), run_id="scheduled__2"))
    form = {"mode": "replace", "from": "2013-01-01T00:00:00+00:00", "to": "2013-01-03T00:00:00Z"}
    event = bench.run_all(FakeRun(interval=None, run_after=day(7), run_id="manual__1", params=form))
    assert event["covered"] == [days(1, 2).to_json(), days(2, 3).to_json()]
    assert [e.generation for e in bench.lake.load_existing().whole_ledger().entries] == [2, 2]
    assert [argv.count("--plan") for argv in bench.calls] == [1, 1, 2]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"form": "2013-01-01"}, "parameter 'form' is not allowed"),
        ({"mode": "erase"}, "mode='erase'"),
        ({"from": "yesterday", "to": "2013-01-02"}, "from='yesterday' is not a date"),
        ({"from": "2013-01-03", "to": "2013-01-02"}, "is not before"),
        ({"to": "2013-01-02"}, "'to' is set without 'from'"),
        ({"force": "yes"}, "force='yes'"),
        ({"from": "2013-01-01", "to": "2999-01-01"}, "is later than"),
    ],
)
def test_invalid_params_fail_at_once_and_name_what_is_allowed(
    bench: Bench, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(AirflowFailException, match=text):
        run_of(params=params).execute(bench.task("plan"))
    assert bench.lake.load() is None


def test_cut_through_an_interval_names_both_boundaries(bench: Bench) -> None:
    bench.run_all(run_of(days(1, 3)))
    form = {"mode": "replace", "from": "2013-01-02", "to": "2013-01-03"}
    with pytest.raises(AirflowFailException, match=r"2013-01-01T.*2013-01-03T"):
        run_of(run_id="manual__1", params=form).execute(bench.task("plan"))


def test_plan_waits_for_an_open_transaction_without_a_retry(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.log.hold("events", 0, stable=1)
    before = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as caught:
        run_of().execute(bench.task("plan"))
    assert caught.value.reschedule_date > before
    assert "last stable offset" in capfd.readouterr().out
    bench.log.hold("events", 0, stable=None)
    assert bench.run_all(run_of())["covered"] == [days(1, 2).to_json()]


def test_lateness_is_waited_for_to_its_end(tmp_path: Path) -> None:
    late = Bench(tmp_path, lateness=timedelta(hours=2)).pipeline
    dates = RunDates(data_interval=days(1, 2), run_after=day(2))
    assert next_try_at(late, dates, day(2)) == day(2) + timedelta(hours=2)
    assert next_try_at(late, dates, day(3)) > day(3)
    assert next_try_at(late, RunDates(data_interval=None, run_after=day(2)), day(2)) > day(2)


def test_missing_job_fails_the_plan(bench: Bench) -> None:
    (bench.folder / bench.pipeline.job).unlink()
    with pytest.raises(AirflowFailException, match="is not a file"):
        run_of().execute(bench.task("plan"))


@pytest.mark.parametrize(
    ("kind", "final"),
    [
        ("report_rejected", True),
        ("superseded", True),
        ("kafka_unavailable", False),
        ("error", False),
    ],
)
def test_error_of_the_job_reaches_the_task_with_its_text(
    bench: Bench, kind: str, final: bool
) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.write_program(
        {"error": {"kind": kind, "message": "seen 3, wanted 4.", "hint": "look."}}, code=1
    )
    with pytest.raises(AirflowException, match=r"seen 3, wanted 4\. .*Next: look\.") as caught:
        run.execute(bench.task("stage"))
    assert isinstance(caught.value, AirflowFailException) is final


def test_job_that_died_is_retried_with_its_last_lines(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.write_program(None, code=137)
    with pytest.raises(AirflowException, match="the job talks") as caught:
        run.execute(bench.task("stage"))
    assert not isinstance(caught.value, AirflowFailException)


def test_a_job_that_is_no_python_is_refused_before_anything_is_granted(bench: Bench) -> None:
    job = bench.folder / bench.pipeline.job
    job.write_text("def transform(records)\n    return records\n")
    with pytest.raises(AirflowFailException) as refused:
        run_of().execute(bench.task("plan"))
    assert f"the job {job}, line 1, is not valid Python: expected ':'" in str(refused.value)
    assert "`def transform(records)`" in str(refused.value)
    assert "Next: correct the job, deploy it and clear `plan`." in str(refused.value)
    assert not list(bench.lake.store.list(""))


def test_a_job_that_is_no_python_any_more_starts_no_spark(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    (bench.folder / bench.pipeline.job).write_bytes(b"x = 'a\x00'")
    with pytest.raises(AirflowFailException, match=r"is not valid Python: .*Next: correct the job"):
        run.execute(bench.task("stage"))
    assert bench.calls == []


@pytest.mark.parametrize(
    ("prints", "final"),
    [
        (
            '  File "job.py", line 1\n    def f(\n         ^\nSyntaxError: never closed\nlog line',
            "SyntaxError: never closed",
        ),
        (
            'Traceback (most recent call last):\n  File "job.py", line 2, in <module>\n    import pandsa\n'
            "ModuleNotFoundError: No module named 'pandsa'",
            "ModuleNotFoundError: No module named 'pandsa'",
        ),
        ("Traceback (most recent call last):\nConnectionError: the store is away", ""),
        ("a line\nNameError: only talk, no trace\nthe end", ""),
        ("", ""),
    ],
)
def test_a_job_that_dies_ends_in_one_line_and_is_tried_again_only_if_that_can_help(
    bench: Bench, prints: str, final: str
) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.write_program(None, code=1, prints=prints)
    with pytest.raises(AirflowException) as caught:
        run.execute(bench.task("stage"))
    text = str(caught.value)
    assert isinstance(caught.value, AirflowFailException) is bool(final)
    assert "spark-submit ended with exit code 1 before the job wrote a result" in text
    assert "Cannot execute" not in text
    assert len(text) < 900
    if final:
        assert final in text
        assert "Next: correct the job, deploy it and clear `plan`." in text
    else:
        assert "Next: read its output above in this log; the task retries by itself." in text


@pytest.mark.parametrize("other", ["PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"])
def test_a_job_for_another_python_is_left_to_its_driver(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    (bench.folder / bench.pipeline.job).write_text("of a later Python")
    monkeypatch.setenv(other, "/opt/python/bin/python")
    assert run_of().execute(bench.task("plan"))["plans"]


def test_job_that_runs_no_transform_is_refused(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    bench.write_program(None)
    with pytest.raises(AirflowFailException, match=r"run\(transform\)"):
        run.execute(bench.task("stage"))


def test_commit_takes_only_what_this_runs_stage_named(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    (granted,) = run.returned["plan"]["plans"]
    stage(
        bench.lake, bench.log, granted["plan"], attempt="another"
    )  # a complete report that no task named
    run.returned["stage"] = []
    with pytest.raises(AirflowFailException, match="returned no report"):
        run.execute(bench.task("commit"))


def test_plan_that_was_replaced_on_the_store_is_not_staged(bench: Bench) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    run.returned["plan"]["plans"][0]["sha256"] = "0" * 64
    with pytest.raises(AirflowFailException, match="digest"):
        run.execute(bench.task("stage"))
    assert not bench.calls


def test_one_lost_gap_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.run_all(run_of(days(2, 3), run_id="scheduled__2"))
    wide = run_of(days(1, 4), run_id="manual__wide")
    wide.execute(bench.task("plan"))
    bench.stage(wide)
    taker = run_of(days(1, 2), run_id="manual__taker", params={"take_over": True})
    taker.execute(bench.task("plan"))
    with pytest.raises(AirflowFailException, match="held by small / manual__taker"):
        wide.execute(bench.task("commit"))
    committed = [
        e.interval for e in bench.lake.load_existing().whole_ledger().entries if e.committed
    ]
    assert committed == [days(2, 3), days(3, 4)]


def test_task_without_the_xcom_of_its_upstream_names_the_task_to_clear(bench: Bench) -> None:
    with pytest.raises(AirflowFailException, match="clear the plan task"):
        run_of().execute(bench.task("stage"))


def test_log_of_a_run_is_short_and_has_the_counts(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.run_all(run_of())
    lines = [line for line in capfd.readouterr().out.splitlines() if "[info " in line]
    assert any("topic events: 7 offsets in 2 partitions" in line for line in lines)
    assert any("5 records, 2 dead letters" in line for line in lines)
    assert len(lines) < 20


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return Airflow's log lines so far, with their level in brackets, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


def test_a_run_whose_records_are_all_dead_letters_warns(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    for partition in bench.log.topics["events"].partitions:
        for offset, record in enumerate(partition.records):
            if record.kind == "data":
                partition.records[offset] = replace(record, kind="dead")
    bench.run_all(run_of())
    parts = (re.search(r"\[warning  \] +(.*) \[", line) for line in logged(capsys))
    warned = " ".join(part[1] for part in parts if part)
    assert warned.count("7 of 7 records of [2013-01-01T00:00:00.000Z, ") == 1
    assert "The log of `stage` has the most frequent reasons" in warned
    assert "`tally dead-letters` has all of them" in warned


def test_a_warning_of_the_driver_is_a_warning_of_the_task(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of()
    run.execute(bench.task("plan"))
    lines = (
        "2026-01-02 03:04:05,678 WARNING tallystick.engine.attempt 7 of 7 are dead",
        "2026-01-02 03:04:05,678 INFO tallystick.spark interval",
        "26/01/02 03:04:05 WARN Utils: Spark's own",
    )
    bench.write_program(None, code=1, prints="\n".join(lines))
    with pytest.raises(AirflowException):
        run.execute(bench.task("stage"))
    shown = [line for line in logged(capsys) if any(f"] {text}" in line for text in lines)]
    assert [line.split("[")[1].split("]")[0].strip() for line in shown] == [
        "warning",
        "info",
        "info",
    ]


def test_links_open_what_was_written(bench: Bench) -> None:
    run = run_of()
    for name, prefix in (("plan", "plans/"), ("stage", "attempts/"), ("commit", "commits/")):
        task = bench.task(name)
        if name == "stage":
            (granted,) = run.returned["plan"]["plans"]
            report = stage(bench.lake, bench.log, granted["plan"], attempt=run.attempt.hex)
            bench.write_program([{"plan": granted["plan"], "report": report}])
        run.execute(task)
        assert task.linked.startswith(f"{bench.pipeline.warehouse}/{prefix}")


def test_a_plan_that_is_gone_before_its_task_ends_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lifecycle rule or a person may delete the plan between the grant and the read of the granted plan."""
    planned = PlanOperator.plan_run

    def delete_plans(task: PlanOperator, lake: Lake, request: PlanRequest) -> PlanResult:
        found = planned(task, lake, request)
        lake.store.delete([granted.plan for granted in found.intervals])
        return found

    monkeypatch.setattr(PlanOperator, "plan_run", delete_plans)
    run = run_of()
    with pytest.raises(
        AirflowFailException, match=r"/plans/.* was granted at version 2 and is gone"
    ):
        run.execute(bench.task("plan"))
    monkeypatch.undo()
