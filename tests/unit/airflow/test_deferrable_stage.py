"""A deferrable stage task: what it submits, what its trigger reports, and how it continues."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from support.fakes import stage
from support.small_lake import day, days
from support.spark_master import SimulatedMaster, simulated_master
from tallystick.airflow import trigger as triggering
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.trigger import DriverTrigger
from tallystick.errors import JobChanged
from tallystick.format import keys
from tallystick.spark.arguments import parse_arguments
from tallystick.spark.outcome import LakeOutcome, StagedPlan
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.servers import free_port
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
WAITS = [sys.executable, "-c", "import time; time.sleep(600)"]
ENDS = [sys.executable, "-c", ""]
FAILS = [sys.executable, "-c", "import sys; sys.exit(3)"]
JOB_CHANGED = JobChanged("the job changed.", hint="clear plan.")


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedMaster]:
    with simulated_master(SimulatedMaster(command=WAITS)) as running:
        connect(monkeypatch, running.url)
        yield running


def connect(patch: pytest.MonkeyPatch, url: str) -> None:
    """Define the Spark connection of the tests."""
    connection = {"conn_type": "spark", "host": "spark://here:7077", "extra": {"rest_url": url}}
    patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def deferrable(bench: Bench, **options: Any) -> DAG:
    return replay_dag(
        bench.pipeline,
        schedule="@daily",
        start_date=day(1),
        job_root=bench.folder,
        deferrable=True,
        spark_conf={"spark.cores.max": "1"},
        **options,
    )


def planned(bench: Bench) -> FakeRun:
    run = FakeRun(interval=days(1, 2), run_after=day(2))
    run.execute(bench.task("plan"))
    return run


def deferred(bench: Bench, run: FakeRun, **options: Any) -> TaskDeferred:
    """Execute the stage task, which must defer."""
    with pytest.raises(TaskDeferred) as caught:
        run.execute(deferrable(bench, **options).task_dict["stage"])
    return caught.value


def resume(bench: Bench, run: FakeRun, by: TaskDeferred, event: dict[str, str]) -> Any:
    """Continue the task as a worker does after the event, with arguments that went through the database."""
    task = deferrable(bench).task_dict["stage"]
    arguments = json.loads(json.dumps(by.kwargs))
    return getattr(task, by.method_name)(run.context("stage"), event, **arguments)


def write_outcome(bench: Bench, by: TaskDeferred, *, error: Exception | None = None) -> list[Any]:
    """Stage the plans as the driver does, write its outcome, and return the keys."""
    assert by.kwargs is not None
    plans, attempt = by.kwargs["plans"], by.kwargs["attempt"]
    writer = LakeOutcome(bench.lake, plans[0], attempt)
    if error is not None:
        writer.write_error(error)
        return []
    staged = [
        StagedPlan(plan=k, report=stage(bench.lake, bench.log, k, attempt=attempt)) for k in plans
    ]
    writer.write_results(staged)
    return [{"plan": one.plan, "report": one.report} for one in staged]


def event_of(trigger: DriverTrigger) -> dict[str, str]:
    """Return the first event of the trigger."""

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    found = asyncio.run(asyncio.wait_for(first(), 60))
    assert isinstance(found, dict)
    return found


def quick(driver: str, **options: Any) -> DriverTrigger:
    return DriverTrigger(conn_id="spark_default", driver=driver, poll_s=0.02, **options)


# ---------------------------------------------------------------- submission


def test_the_task_submits_one_driver_for_its_plans_and_waits_without_a_slot(
    bench: Bench, master: SimulatedMaster
) -> None:
    run = planned(bench)
    found = deferred(bench, run)
    ((name, driver),) = master.drivers.items()
    arguments = parse_arguments(driver.arguments)
    assert arguments.to_lake
    assert [ref.key for ref in arguments.plans] == [
        p["plan"] for p in run.returned["plan"]["plans"]
    ]
    assert (arguments.attempt, arguments.others_max) == (run.attempt.hex, 0)
    assert driver.request["environmentVariables"] == {}
    options = driver.request["appArgs"]
    assert "spark.ui.enabled=false" in options
    assert "spark.cores.max=1" in options
    assert isinstance(found.trigger, DriverTrigger)
    assert (found.trigger.driver, found.trigger.until) == (name, None)
    assert found.kwargs is not None
    assert found.kwargs["plans"] == [ref.key for ref in arguments.plans]


def test_a_run_without_anything_to_stage_submits_nothing(
    bench: Bench, master: SimulatedMaster
) -> None:
    run = FakeRun(interval=days(1, 2), run_after=day(2))
    bench.run_all(run)
    again = FakeRun(interval=days(1, 2), run_after=day(2), run_id="again")
    again.execute(bench.task("plan"))
    assert again.execute(deferrable(bench).task_dict["stage"]) == []
    assert master.drivers == {}


def test_a_master_that_does_not_answer_is_retried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, f"http://127.0.0.1:{free_port()}")
    run = planned(bench)
    with pytest.raises(AirflowException, match="REST API of the Spark master") as caught:
        run.execute(deferrable(bench).task_dict["stage"])
    assert not isinstance(caught.value, AirflowFailException)


def test_a_driver_is_killed_if_the_task_is_killed_before_it_waits(
    bench: Bench, master: SimulatedMaster
) -> None:
    task = deferrable(bench).task_dict["stage"]
    with pytest.raises(TaskDeferred):
        planned(bench).execute(task)
    task.on_kill()
    assert master.states() == {"KILLED": 1}
    master.faults.append(None)
    task.on_kill()


def test_each_try_is_an_attempt_of_its_own_and_both_drivers_may_stage(
    bench: Bench, master: SimulatedMaster
) -> None:
    run = planned(bench)
    first = deferred(bench, run)
    again = FakeRun(interval=days(1, 2), run_after=day(2), returned=run.returned)
    second = deferred(bench, again)
    write_outcome(bench, first)
    staged = write_outcome(bench, second)
    again.returned["stage"] = resume(bench, again, second, {"state": "succeeded", "message": ""})
    assert again.returned["stage"] == staged
    assert again.execute(bench.task("commit"))["covered"] == [days(1, 2).to_json()]
    assert len(master.drivers) == 2


# ---------------------------------------------------------------- continuing


@pytest.mark.parametrize("state", ["succeeded", "failed", "killed", "unknown", "unavailable"])
def test_the_outcome_in_the_lake_decides_and_not_the_last_state(
    bench: Bench, master: SimulatedMaster, state: str
) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    staged = write_outcome(bench, by)
    assert resume(bench, run, by, {"state": state, "message": ""}) == staged
    # The triggerer may fire twice, and the task may be tried again: the answer is the same.
    assert resume(bench, run, by, {"state": state, "message": ""}) == staged


@pytest.mark.parametrize("state", ["failed", "killed", "unknown", "unavailable", "timed_out"])
def test_a_driver_without_an_outcome_is_retried(
    bench: Bench, master: SimulatedMaster, state: str
) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    with pytest.raises(AirflowException, match=f"state '{state}'.*: a reason. Next") as caught:
        resume(bench, run, by, {"state": state, "message": "a reason"})
    assert not isinstance(caught.value, AirflowFailException)


def test_a_job_that_succeeds_without_an_outcome_is_not_retried(
    bench: Bench, master: SimulatedMaster
) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    with pytest.raises(AirflowFailException, match="succeeded and staged nothing"):
        resume(bench, run, by, {"state": "succeeded", "message": ""})


@pytest.mark.parametrize(
    ("error", "fails", "text"),
    [
        (JOB_CHANGED, True, "the job changed"),
        (ValueError("no such column"), False, "ValueError: no such column"),
    ],
)
def test_the_error_of_the_driver_is_the_error_of_the_task(
    bench: Bench, master: SimulatedMaster, error: Exception, fails: bool, text: str
) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    write_outcome(bench, by, error=error)
    with pytest.raises(AirflowException, match=text) as caught:
        resume(bench, run, by, {"state": "failed", "message": ""})
    assert isinstance(caught.value, AirflowFailException) is fails


def test_the_first_outcome_of_an_attempt_stays(bench: Bench, master: SimulatedMaster) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    staged = write_outcome(bench, by)
    write_outcome(bench, by)
    write_outcome(bench, by, error=JOB_CHANGED)
    assert resume(bench, run, by, {"state": "failed", "message": ""}) == staged


def test_an_outcome_of_other_plans_is_refused(bench: Bench, master: SimulatedMaster) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    assert by.kwargs is not None
    other = keys.plan(day(5), day(6), "0" * 32)
    outcome = LakeOutcome(bench.lake, by.kwargs["plans"][0], by.kwargs["attempt"])
    outcome.write_results([StagedPlan(plan=other, report=None)])
    with pytest.raises(AirflowFailException, match="expected 1 plans of this run, found others"):
        resume(bench, run, by, {"state": "succeeded", "message": ""})


def test_an_outcome_of_an_unknown_version_is_refused(bench: Bench, master: SimulatedMaster) -> None:
    run = planned(bench)
    by = deferred(bench, run)
    assert by.kwargs is not None
    key = keys.outcome(by.kwargs["plans"][0], by.kwargs["attempt"])
    bench.lake.store.create(key, b'{"format":"tallystick.outcome/2"}')
    with pytest.raises(AirflowFailException, match="written by another version"):
        resume(bench, run, by, {"state": "succeeded", "message": ""})


# ---------------------------------------------------------------- trigger


@pytest.mark.parametrize(("command", "state"), [(ENDS, "succeeded"), (FAILS, "failed")])
def test_the_trigger_reports_the_end_of_the_driver(
    bench: Bench, master: SimulatedMaster, command: list[str], state: str
) -> None:
    master.command = command
    by = deferred(bench, planned(bench))
    assert isinstance(by.trigger, DriverTrigger)
    path, arguments = by.trigger.serialize()
    assert path == "tallystick.airflow.trigger.DriverTrigger"
    again = DriverTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    again.poll_s = 0.02
    assert event_of(again)["state"] == state
    assert event_of(again)["state"] == state


def test_a_master_that_fails_for_a_while_is_asked_again(
    bench: Bench, master: SimulatedMaster
) -> None:
    master.command = ENDS
    deferred(bench, planned(bench))
    (driver,) = master.drivers
    master.faults += [None, (502, b""), (200, b"no JSON"), None]
    assert event_of(quick(driver))["state"] == "succeeded"
    assert master.faults == []


def test_the_trigger_gives_up_if_the_master_does_not_answer_for_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, f"http://127.0.0.1:{free_port()}")
    event = event_of(quick("driver-1", patience_s=0.2))
    assert event["state"] == "unavailable"
    assert "is not available" in event["message"]


def test_the_trigger_ends_if_its_connection_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    event = event_of(DriverTrigger(conn_id="missing", driver="driver-1"))
    assert event["state"] == "unavailable"
    assert "'missing' is not defined" in event["message"]


def test_a_driver_that_the_master_has_forgotten_is_unknown_after_a_while(
    bench: Bench, master: SimulatedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred(bench, planned(bench))
    (driver,) = master.drivers
    known = dict(master.drivers)
    master.forget()
    monkeypatch.setattr(triggering, "_UNKNOWN_S", 0.2)
    assert event_of(quick(driver))["state"] == "unknown"
    # A master that has the driver again in time (it was just started) changes nothing.
    master.drivers = known
    known[driver].state = "FINISHED"
    assert event_of(quick(driver))["state"] == "succeeded"


def test_a_killed_task_ends_its_driver(bench: Bench, master: SimulatedMaster) -> None:
    by = deferred(bench, planned(bench))
    assert by.trigger is not None
    ((_, driver),) = master.drivers.items()
    wait_until(lambda: driver.process is not None, deadline_s=60, what="the driver's start")
    asyncio.run(by.trigger.on_kill())
    assert driver.process is not None
    assert driver.process.wait(60) != 0
    assert master.states() == {"KILLED": 1}
    asyncio.run(by.trigger.on_kill())
    assert master.states() == {"KILLED": 1}


def test_a_kill_that_is_lost_is_repeated(
    bench: Bench, master: SimulatedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggering, "_KILL_PAUSE_S", 0.01)
    by = deferred(bench, planned(bench))
    assert by.trigger is not None
    master.faults += [None, (502, b"")]
    asyncio.run(by.trigger.on_kill())
    assert master.states() == {"KILLED": 1}


def test_a_kill_that_never_arrives_ends_after_some_tries(
    bench: Bench, master: SimulatedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggering, "_KILL_PAUSE_S", 0.01)
    by = deferred(bench, planned(bench))
    assert by.trigger is not None
    master.faults += [None] * triggering.KILL_TRIES
    asyncio.run(by.trigger.on_kill())
    assert master.faults == []
    assert "KILLED" not in master.states()


def test_a_trigger_that_is_cancelled_leaves_the_driver_alone(
    bench: Bench, master: SimulatedMaster
) -> None:
    """A triggerer that is stopped or killed cancels its triggers; another one takes them over."""
    deferred(bench, planned(bench))
    ((name, driver),) = master.drivers.items()

    async def cancelled() -> None:
        task = asyncio.ensure_future(anext(quick(name).run().__aiter__()))
        polls = len(master.requests)
        while len(master.requests) < polls + 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert driver.state == "RUNNING"


def test_the_execution_timeout_ends_the_driver(bench: Bench, master: SimulatedMaster) -> None:
    by = deferred(bench, planned(bench), default_args={"execution_timeout": timedelta(seconds=100)})
    assert isinstance(by.trigger, DriverTrigger)
    assert by.trigger.until == pytest.approx(time.time() + 100, abs=60)
    assert by.timeout is None
    (driver,) = master.drivers
    assert event_of(quick(driver, until=time.time()))["state"] == "timed_out"
    assert master.states() == {"KILLED": 1}
