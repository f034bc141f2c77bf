"""The stage tasks of several runs of one DAG: which of them starts Spark, with which arguments, and what each returns."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.fakes import stage
from support.small_lake import days
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.together import is_first_try, is_running
from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.operations import stage_together
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

# kafka-python reads its schemas in a way that Python 3.11 (not 3.13) calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
SPANS = (days(1, 2), days(2, 3), days(3, 4))


def planned(bench: Bench, interval: Interval) -> FakeRun:
    run = FakeRun(interval=interval, run_after=interval.end, run_id=f"scheduled__{interval.end}")
    run.execute(bench.task("plan"))
    return run


def plan_of(run: FakeRun) -> str:
    (one,) = run.returned["plan"]["plans"]
    return str(one["plan"])


def addresses(argv: list[str], option: str) -> list[str]:
    """Return the keys of the plans that an option names."""
    named = [value for name, value in itertools.pairwise(argv) if name == option]
    return [value.partition("@")[0].partition("operators-")[2].partition("/")[2] for value in named]


def stage_for(bench: Bench, other: FakeRun, attempt: str) -> str:
    """Stage the plan of another run as the driver of an attempt does. Return the key of the report."""
    key = keys.claimed_report(plan_of(other), attempt)
    return stage(bench.lake, bench.log, plan_of(other), attempt=attempt, report_key=key)


def test_the_first_task_claims_the_plans_of_the_other_runs_and_they_start_no_spark(
    bench: Bench,
) -> None:
    first, *others = [planned(bench, span) for span in SPANS]
    assert len(bench.stage(first)) == 1
    (argv,) = bench.calls
    assert addresses(argv, "--plan") == [plan_of(first)]
    assert addresses(argv, "--other") == [plan_of(run) for run in others]
    assert argv[-2:] == ["--others-max", "11"]
    for run in others:
        report = stage_for(bench, run, first.attempt.hex)
        assert run.execute(bench.task("stage")) == [{"plan": plan_of(run), "report": report}]
    assert len(bench.calls) == 1
    for run, span in zip((first, *others), SPANS, strict=True):
        assert run.execute(bench.task("commit"))["covered"] == [span.to_json()]


def test_a_run_whose_plan_was_not_staged_by_the_task_that_claimed_it_starts_spark(
    bench: Bench,
) -> None:
    first, second, _ = (planned(bench, span) for span in SPANS)
    bench.stage(first)
    second.task_states = {first.run_id: {"stage": "success"}}
    (staged,) = bench.stage(second)
    assert second.attempt.hex in staged["report"]
    # Its own plan is all that it stages: the third plan is claimed, too.
    assert addresses(bench.calls[1], "--plan") == [plan_of(second)]
    assert addresses(bench.calls[1], "--other") == []


def test_a_task_waits_while_the_other_task_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = (planned(bench, span) for span in SPANS)
    bench.stage(first)
    second.task_states = {first.run_id: {"stage": "running"}}
    reports: list[str] = []

    def staged_at_last(*_: Any) -> None:
        reports.append(stage_for(bench, second, first.attempt.hex))

    monkeypatch.setattr(stage_together, "POLL_S", 0)
    monkeypatch.setattr("tallystick.runtime.system.time.sleep", staged_at_last)
    (staged,) = second.execute(bench.task("stage"))
    assert [staged["report"]] == reports
    assert len(bench.calls) == 1


@pytest.mark.parametrize("why", ["retry", "clear"])
def test_a_retry_and_a_clear_start_spark_anew(bench: Bench, why: str) -> None:
    first, second, _ = (planned(bench, span) for span in SPANS)
    bench.stage(first)
    stage_for(bench, second, first.attempt.hex)
    if why == "retry":
        second.try_number = 2
    else:
        second.clear_number, second.try_number, second.max_tries = 1, 2, 4
    (staged,) = bench.stage(second)
    assert second.attempt.hex in staged["report"]
    assert len(bench.calls) == 2


@pytest.mark.parametrize(
    ("number", "last", "first"),
    [(1, 3, True), (2, 3, False), (4, 3, False), (2, 4, True), (3, 4, False), (None, 3, False)],
)
def test_the_first_try_after_a_clear_counts_as_a_first_try(
    number: int | None, last: int, first: bool
) -> None:
    """Airflow sets max_tries to the tries so far plus the retries, here 3, when it clears a task."""

    class Tries:
        try_number, max_tries = number, last

    assert is_first_try(Tries(), 3) is first


@pytest.mark.parametrize(
    ("states", "running"),
    [
        ({"r": {"stage": "running"}}, True),
        ({"r": {"stage": "up_for_retry"}}, False),
        ({"r": {"stage": None}}, False),
        ({"r": {}}, False),
        ({}, False),
        (ConnectionError("no answer"), True),
    ],
)
def test_a_task_has_ended_only_if_airflow_reports_so(states: Any, running: bool) -> None:
    class Tasks:
        def get_task_states(self, **asked: Any) -> Any:
            assert asked == {"dag_id": "d", "task_ids": ["stage"], "run_ids": ["r"]}
            if isinstance(states, Exception):
                raise states
            return states

    assert is_running(Tasks(), "stage")(Request(dag="d", run="r", clear=0)) is running


def test_a_driver_that_dies_after_its_own_plans_does_not_fail_the_task(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = (planned(bench, span) for span in SPANS)
    report = stage(bench.lake, bench.log, plan_of(first), attempt=first.attempt.hex)
    bench.write_program([{"plan": plan_of(first), "report": report}], code=137)
    assert first.execute(bench.task("stage")) == [{"plan": plan_of(first), "report": report}]
    assert "this run's plans are staged, but" in capfd.readouterr().out


def test_a_driver_that_dies_before_that_is_retried(bench: Bench) -> None:
    first, _, _ = (planned(bench, span) for span in SPANS)
    bench.write_program(None, code=137)
    with pytest.raises(AirflowException, match="before the job wrote a result"):
        first.execute(bench.task("stage"))


def test_without_it_each_run_starts_spark_and_claims_nothing(bench: Bench) -> None:
    alone = replay_dag(
        bench.pipeline,
        schedule="@daily",
        start_date=days(1, 2).start,
        job_root=bench.folder,
        spark_binary=str(bench.program),
        stage_together=1,
    ).task_dict["stage"]
    first, second, _ = (planned(bench, span) for span in SPANS)
    for run in (first, second):
        report = stage(bench.lake, bench.log, plan_of(run), attempt=run.attempt.hex)
        bench.write_program([{"plan": plan_of(run), "report": report}])
        run.execute(alone)
    assert len(bench.calls) == 2
    assert not any("--other" in word for argv in bench.calls for word in argv)
    assert not list(bench.lake.store.list("claims/"))


def test_a_claim_that_cannot_be_written_does_not_fail_the_task(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = (planned(bench, span) for span in SPANS)
    real = type(bench.lake.store).create

    def refusing(store: Any, key: str, body: Any) -> Any:
        if key.startswith("claims/"):
            raise stage_together.RetryLater("no room.", hint="wait.")
        return real(store, key, body)

    monkeypatch.setattr(type(bench.lake.store), "create", refusing)
    assert len(bench.stage(first)) == 1
    assert addresses(bench.calls[0], "--other") == []
    out = capfd.readouterr().out
    assert "not waiting for another run" in out
    assert "searches no further" in out


def test_a_changed_job_is_refused_before_anything_is_claimed(bench: Bench) -> None:
    first, _, _ = (planned(bench, span) for span in SPANS)
    bench.deploy("version 2")
    with pytest.raises(AirflowFailException, match="the job or the pipeline changed"):
        first.execute(bench.task("stage"))
    assert not list(bench.lake.store.list("claims/"))


@pytest.mark.parametrize("option", ["stage_together", "max_active_stages"])
def test_a_limit_of_less_than_one_is_refused(bench: Bench, option: str) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(InvalidPipeline, match=f"{option}: expected at least 1, found 0"):
        replay_dag(
            bench.pipeline,
            schedule="@daily",
            start_date=days(1, 2).start,
            job_root=Path(),
            **options,
        )
