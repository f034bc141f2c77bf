"""Drivers by the REST API of a real standalone master, and its answers compared with those of the simulated one."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from support.spark_master import SimulatedMaster, simulated_master
from tallystick.airflow.clusters.port import DriverRequest
from tallystick.airflow.clusters.standalone import StandaloneCluster
from tallystick_devstack.process import free_port, wait_until
from tallystick_devstack.spark import SparkCluster

# The first argument: seconds to sleep; the second one: the exit code. It is started as every job, but stages nothing: a
# session would cost half a minute.
JOB = """\
import os, sys, time
from pathlib import Path

from tallystick.spark import entry, run


def sleep(*_, **__):
    here = Path(__file__).parent
    (here / "pid.part").write_text(str(os.getpid()))
    (here / "pid.part").rename(here / "pid")
    time.sleep(float(sys.argv[1]))
    return int(sys.argv[2])


entry.run_job = sleep
run(lambda records: records)
"""
MISSING = "driver-20000101000000-9999"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Run a master with its REST API, and one worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick_devstack.spark.WORKERS", 1)
        started = SparkCluster(tmp_path_factory.mktemp("spark"), rest_port=free_port())
        try:
            started.start()
            yield started
        finally:
            started.stop()


def api_of(spark: SparkCluster) -> StandaloneCluster:
    return StandaloneCluster([spark.rest_url], master=spark.url, spark_version=pyspark.__version__)


def request(job: Path, *arguments: str) -> DriverRequest:
    job.write_text(JOB)
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return DriverRequest(
        name="plain", job=str(job), arguments=arguments, conf={}, environment=python
    )


def wait_for_state(api: StandaloneCluster, driver: str, *states: str) -> str:
    def reached() -> bool:
        return asyncio.run(api.state(driver)).state in states

    wait_until(reached, deadline_s=600, what=f"{driver} in {states}", poll_s=0.5)
    return asyncio.run(api.state(driver)).state


@pytest.mark.parametrize(("code", "expected"), [("0", "succeeded"), ("3", "failed")])
def test_a_python_driver_runs_on_a_worker_to_its_end(
    spark: SparkCluster, tmp_path: Path, code: str, expected: str
) -> None:
    api = api_of(spark)
    driver = api.submit(request(tmp_path / "job.py", "0", code))
    assert wait_for_state(api, driver, "succeeded", "failed", "killed") == expected


def test_a_killed_driver_leaves_no_process(spark: SparkCluster, tmp_path: Path) -> None:
    api = api_of(spark)
    driver = api.submit(request(tmp_path / "job.py", "900", "0"))
    found = tmp_path / "pid"
    wait_until(found.exists, deadline_s=600, what="the job's start")
    process = psutil.Process(int(found.read_text()))
    api.kill(driver)
    wait_until(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        deadline_s=120,
        what="the end of the job's Python",
    )
    assert wait_for_state(api, driver, "killed") == "killed"
    asyncio.run(api.akill(driver))
    assert asyncio.run(api.state(MISSING)).state == "unknown"


def send(url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    sent = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        f"{url}/v1/submissions/{path}",
        data=sent,
        method=method,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        asked, timeout=60
    ) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def shape(form: dict[str, Any], driver: str) -> dict[str, Any]:
    """Return an answer without what differs from cluster to cluster: the driver's id, and where it runs."""
    kept = {k: v for k, v in form.items() if k not in ("workerHostPort", "workerId")}
    return {k: v.replace(driver, "DRIVER") if isinstance(v, str) else v for k, v in kept.items()}


def test_the_simulated_master_answers_as_the_real_one(spark: SparkCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(900)"]
    with simulated_master(SimulatedMaster(command=command, cores=1)) as simulated:
        answers = []
        for api, url in (
            (api_of(spark), spark.rest_url),
            (
                StandaloneCluster([simulated.url], master="spark://a:1", spark_version="4.2.0"),
                simulated.url,
            ),
        ):
            driver = api.submit(request(tmp_path / "job.py", "900", "0"))
            wait_for_state(api, driver, "running")
            found = [
                send(url, "GET", f"status/{driver}"),
                send(url, "POST", f"kill/{driver}"),
            ]
            wait_for_state(api, driver, "killed")
            found += [
                send(url, "GET", f"status/{driver}"),
                send(url, "POST", f"kill/{driver}"),
                send(url, "GET", f"status/{MISSING}"),
                send(url, "POST", f"kill/{MISSING}"),
            ]
            answers.append([shape(one, driver) for one in found])
    for real, made in zip(*answers, strict=True):
        assert real == made
