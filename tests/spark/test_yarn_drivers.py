"""Drivers on a real YARN, by Spark's own spark-submit, and answers compared with those of the simulated manager."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from support.resource_manager import SimulatedResourceManager
from support.rest_server import serving
from support.yarn_cluster import YarnServers, yarn_cluster
from tallystick.airflow.clusters.port import DriverRequest
from tallystick.airflow.clusters.yarn import YarnCluster
from tallystick.airflow.environment import own_spark_submit
from tallystick.errors import ClusterUnavailable
from tallystick_devstack.process import wait_until

# The arguments: a file for the process id, the exit code, --attempt and the attempt. A code of -1: it waits to be killed.
JOB = """\
import os, sys, time
from pathlib import Path

if sys.argv[2] == "-1":
    part = Path(sys.argv[1] + ".part")
    part.write_text(str(os.getpid()))
    part.rename(sys.argv[1])
    time.sleep(900)
if sys.argv[2] != "0":
    sys.exit(int(sys.argv[2]))
from pyspark.sql import SparkSession

# An application that ends well without a Spark context has failed, for YARN.
SparkSession.builder.getOrCreate().stop()
"""
MISSING = "application_1_0001"

# Costs a minute of CPU: three servers, a driver and its executor start. test_yarn_cluster covers the same rules.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnServers]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as servers:
        yield servers


def cluster(yarn: YarnServers) -> YarnCluster:
    binary = own_spark_submit()
    assert binary is not None
    worker = {
        "PATH": os.environ["PATH"],
        "HOME": str(yarn.conf.parent),
        "HADOOP_CONF_DIR": str(yarn.conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    # The standby is asked first.
    return YarnCluster([yarn.standby_url, yarn.url], binary=binary, worker=worker)


def request(yarn: YarnServers, folder: Path, code: int, attempt: str) -> DriverRequest:
    (folder / "job.py").write_text(JOB)
    return DriverRequest(
        name=f"plain-{attempt}",
        job=str(folder / "job.py"),
        arguments=(str(folder / "pid"), str(code), "--attempt", attempt),
        conf={**yarn.submission(folder), "spark.executor.instances": "1"},
    )


def wait_for_end(there: YarnCluster, driver: str) -> str:
    def ended() -> bool:
        return asyncio.run(there.state(driver)).ended

    wait_until(ended, deadline_s=300, what=f"the end of {driver}", poll_s=0.5)
    return asyncio.run(there.state(driver)).state


@pytest.mark.parametrize(("code", "expected"), [(0, "succeeded"), (3, "failed")])
def test_a_python_driver_runs_on_a_node_to_its_end(
    yarn: YarnServers, tmp_path: Path, code: int, expected: str
) -> None:
    there = cluster(yarn)
    driver = there.submit(request(yarn, tmp_path, code, f"{code:032x}"))
    assert wait_for_end(there, driver) == expected
    assert there._lookup(f"{code:032x}") == driver
    assert there._lookup("f" * 32) is None


def test_a_killed_driver_leaves_no_process(yarn: YarnServers, tmp_path: Path) -> None:
    there = cluster(yarn)
    driver = there.submit(request(yarn, tmp_path, -1, "a" * 32))
    found = tmp_path / "pid"
    wait_until(found.exists, deadline_s=300, what="the job's start")
    process = psutil.Process(int(found.read_text()))
    there.kill(driver)
    assert wait_for_end(there, driver) == "killed"
    wait_until(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        deadline_s=120,
        what="the end of the job's Python",
    )
    asyncio.run(there.akill(driver))
    assert asyncio.run(there.state(MISSING)).state == "unknown"


def test_a_pair_without_an_active_manager_is_unavailable(yarn: YarnServers) -> None:
    alone = YarnCluster([yarn.standby_url], binary="unused")
    with pytest.raises(ClusterUnavailable, match="standby"):
        alone.kill(MISSING)


def shape(answer: httpx.Response, driver: str) -> Any:
    """Return the status and what is read of the body, without what differs from cluster to cluster."""
    found = answer.json()
    if isinstance(found.get("apps"), dict):
        found["apps"] = {"app": [_read_of(app) for app in found["apps"].get("app", [])]}
    if "app" in found:
        found["app"] = _read_of(found["app"])
    return answer.status_code, str(found).replace(driver, "DRIVER")


def _read_of(app: dict[str, Any]) -> dict[str, Any]:
    return {name: app[name] for name in ("id", "state", "finalStatus", "applicationTags")}


def test_the_simulated_manager_answers_as_the_real_one(yarn: YarnServers, tmp_path: Path) -> None:
    attempt = "b" * 32
    there = cluster(yarn)
    simulated = SimulatedResourceManager()
    answers = []
    with serving(simulated.server), httpx.Client(timeout=60, trust_env=False) as client:
        for url, driver in (
            (yarn.url, there.submit(request(yarn, tmp_path, -1, attempt))),
            (simulated.server.url, simulated.accept(attempt)),
        ):
            api = f"{url}/ws/v1/cluster/apps"
            kill = {"method": "PUT", "json": {"state": "KILLED"}}
            found = [client.request(url=f"{api}/{driver}/state", **kill)]
            wait_until(
                lambda api=api, driver=driver: (  # type: ignore[misc]
                    client.get(f"{api}/{driver}").json()["app"]["state"] == "KILLED"
                ),
                deadline_s=120,
                what="the end of the application",
                poll_s=0.2,
            )
            found += [
                client.request(url=f"{api}/{driver}/state", **kill),
                client.get(f"{api}/{driver}"),
                client.get(api, params={"applicationTags": attempt.upper()}),
                client.get(api, params={"applicationTags": "c" * 32}),
                client.get(f"{api}/{MISSING}"),
                client.request(url=f"{api}/{MISSING}/state", **kill),
            ]
            # The body of the first kill has the state of that moment: ACCEPTED, KILLING or KILLED.
            shapes = [shape(one, driver) for one in found[1:]]
            answers.append([found[0].status_code, *shapes])
    for real, made in zip(*answers, strict=True):
        assert real == made
