"""A deferrable stage task on YARN and on Kubernetes: it submits, its trigger waits, a cleared task ends its driver."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from support.kubernetes_api import SimulatedKubernetes
from support.resource_manager import SimulatedResourceManager
from support.rest_server import RestServer, serving, simulated_submit
from support.small_lake import day, days
from tallystick.airflow import trigger as triggering
from tallystick.airflow.clusters import rest
from tallystick.airflow.dag import replay_dag
from tallystick.airflow.trigger import DriverTrigger
from unit.airflow.bench import Bench, bench
from unit.airflow.runs import FakeRun

__all__ = ["bench"]

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThereCluster:
    """A simulated cluster with at most one driver. `end` ends it, `drivers`: how many it has that may run."""

    server: RestServer
    end: Callable[[], None]
    drivers: Callable[[], int]


def simulated_yarn() -> tuple[ThereCluster, dict[str, Any]]:
    manager = SimulatedResourceManager()

    def end() -> None:
        [driver] = manager.apps
        manager.end(driver, "FINISHED", "SUCCEEDED")

    def drivers() -> int:
        return sum(app["state"] == "ACCEPTED" for app in manager.apps.values())

    there = ThereCluster(server=manager.server, end=end, drivers=drivers)
    return there, {"host": "yarn", "extra": {"rest_url": manager.server.url}}


def simulated_kubernetes() -> tuple[ThereCluster, dict[str, Any]]:
    api = SimulatedKubernetes()
    there = ThereCluster(
        server=api.server, end=lambda: api.set("Succeeded"), drivers=lambda: len(api.pods)
    )
    return there, {"host": f"k8s://{api.server.url}", "extra": {}}


@pytest.fixture(params=[simulated_yarn, simulated_kubernetes], ids=["yarn", "kubernetes"])
def there(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ThereCluster]:
    cluster, connection = request.param()
    connection["extra"]["spark-binary"] = "spark-submit"
    connection["conn_type"] = "spark"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    simulated_submit(tmp_path, cluster.server)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(rest, "PAUSE_S", 0.01)
    monkeypatch.setattr(triggering, "_KILL_PAUSE_S", 0.01)
    with serving(cluster.server):
        yield cluster


def deferred(bench: Bench) -> TaskDeferred:
    """Plan a run and execute its stage task, which must defer."""
    run = FakeRun(interval=days(1, 2), run_after=day(2))
    run.execute(bench.task("plan"))
    dag = replay_dag(
        bench.pipeline,
        schedule="@daily",
        start_date=day(1),
        job_root=bench.folder,
        deferrable=True,
    )
    with pytest.raises(TaskDeferred) as caught:
        run.execute(dag.task_dict["stage"])
    return caught.value


def trigger_of(by: TaskDeferred) -> DriverTrigger:
    """Return the trigger as the triggerer makes it, from the database."""
    assert isinstance(by.trigger, DriverTrigger)
    again = DriverTrigger(**json.loads(json.dumps(by.trigger.serialize()[1])))
    again.poll_s = 0.02
    return again


def event_of(trigger: DriverTrigger) -> dict[str, str]:
    async def first() -> Any:
        return (await anext(trigger.run().__aiter__())).payload

    found: dict[str, str] = asyncio.run(asyncio.wait_for(first(), 60))
    return found


def test_the_trigger_reports_the_end_of_the_driver_twice_as_well_as_once(
    bench: Bench, there: ThereCluster
) -> None:
    by = deferred(bench)
    assert there.drivers() == 1
    there.end()
    there.server.faults += [None, (502, b"<html>")]
    assert event_of(trigger_of(by))["state"] == "succeeded"
    assert event_of(trigger_of(by))["state"] == "succeeded"


def test_a_cleared_task_ends_its_driver_also_if_a_request_is_lost(
    bench: Bench, there: ThereCluster
) -> None:
    by = deferred(bench)
    there.server.faults += [None, (502, b"<html>")]
    asyncio.run(trigger_of(by).on_kill())
    assert there.drivers() == 0
    asyncio.run(trigger_of(by).on_kill())


def test_a_refused_request_ends_the_wait_with_its_reason(bench: Bench, there: ThereCluster) -> None:
    by = deferred(bench)
    there.server.faults.append((401, b"<html>"))
    event = event_of(trigger_of(by))
    assert event["state"] == "unavailable"
    assert "refused the request (HTTP 401)" in event["message"]


def test_a_cluster_that_does_not_answer_is_retried(bench: Bench, there: ThereCluster) -> None:
    there.server.faults += [(502, b"<html>")] * 3
    # YARN's client has printed no id here, so that no driver is known.
    Path(os.environ["PATH"].partition(os.pathsep)[0], "spark-submit").write_text(
        "#!/bin/sh\nexit 0\n"
    )
    with pytest.raises(AirflowException, match="is not available") as caught:
        deferred(bench)
    assert not isinstance(caught.value, AirflowFailException)
