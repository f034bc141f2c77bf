"""Drivers on a standalone cluster: the requests to its master, its states, and its failures."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.spark_master import SimulatedMaster, simulated_master
from tallystick.airflow.clusters.opening import cluster_of
from tallystick.airflow.clusters.port import DriverRequest, DriverState
from tallystick.airflow.clusters.standalone import StandaloneCluster
from tallystick.errors import ClusterUnavailable, SettingsError
from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.servers import free_port

SLEEP = [
    sys.executable,
    "-c",
    "import sys, time; time.sleep(float(sys.argv[1])); sys.exit(int(sys.argv[2]))",
]
STANDBY = json.dumps(
    {
        "action": "CreateSubmissionResponse",
        "success": False,
        "message": "Current state is not alive: STANDBY.",
    }
).encode()


@pytest.fixture
def master() -> Iterator[SimulatedMaster]:
    with simulated_master(SimulatedMaster(command=SLEEP)) as running:
        yield running


def cluster(*urls: str, **options: Any) -> StandaloneCluster:
    return StandaloneCluster(
        urls, master="spark://here:7077", spark_version="4.2.0", timeout_s=5, **options
    )


def request(*arguments: str) -> DriverRequest:
    return DriverRequest(
        name="tallystick-flights-1",
        job="/jobs/flights.py",
        arguments=arguments,
        conf={"spark.cores.max": "2", "spark.driver.memory": "2g"},
    )


def state(of: StandaloneCluster, driver: str) -> DriverState:
    return asyncio.run(of.state(driver))


def ended(of: StandaloneCluster, driver: str) -> str:
    wait_until(lambda: state(of, driver).ended, deadline_s=60, what="the end of the driver")
    return state(of, driver).state


def test_a_driver_is_spark_submit_in_client_mode_on_a_worker(master: SimulatedMaster) -> None:
    driver = cluster(master.url).submit(request("0", "0"))
    sent = master.drivers[driver].request
    assert sent["mainClass"] == "org.apache.spark.deploy.SparkSubmit"
    assert sent["appResource"] == "/jobs/flights.py"
    assert sent["clientSparkVersion"] == "4.2.0"
    assert sent["appArgs"] == [
        *("--conf", "spark.app.name=tallystick-flights-1"),
        *("--conf", "spark.cores.max=2"),
        *("--conf", "spark.driver.memory=2g"),
        *("--conf", "spark.master=spark://here:7077"),
        *("--conf", "spark.submit.deployMode=client"),
        *("/jobs/flights.py", "0", "0"),
    ]
    assert sent["sparkProperties"] == {
        "spark.app.name": "tallystick-flights-1",
        "spark.driver.memory": "2g",
        "spark.driver.supervise": "false",
        "spark.master": "spark://here:7077",
        "spark.submit.deployMode": "cluster",
    }


@pytest.mark.parametrize(("code", "expected"), [("0", "succeeded"), ("3", "failed")])
def test_a_driver_ends(master: SimulatedMaster, code: str, expected: str) -> None:
    there = cluster(master.url)
    assert ended(there, there.submit(request("0", code))) == expected


def test_a_driver_is_killed_once_and_a_second_kill_changes_nothing(master: SimulatedMaster) -> None:
    there = cluster(master.url)
    driver = there.submit(request("600", "0"))
    wait_until(lambda: state(there, driver).state == "running", deadline_s=60, what="a start")
    process = master.drivers[driver].process
    assert process is not None
    there.kill(driver)
    assert process.wait(60) != 0
    asyncio.run(there.akill(driver))
    assert state(there, driver).state == "killed"


def test_a_driver_waits_for_cores_and_can_be_killed_before_it_starts(
    master: SimulatedMaster,
) -> None:
    there = cluster(master.url)
    running = [there.submit(request("600", "0")) for _ in range(master.cores)]
    waiting = there.submit(request("0", "0"))
    assert state(there, waiting).state == "waiting"
    there.kill(waiting)
    for driver in running:
        there.kill(driver)
    assert ended(there, waiting) == "killed"
    assert master.drivers[waiting].process is None


def test_a_driver_that_the_master_does_not_have_is_unknown(master: SimulatedMaster) -> None:
    found = state(cluster(master.url), "driver-1")
    assert (found.state, found.ended) == ("unknown", False)


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (200, b"not JSON"),
        (502, b"<html>"),
        (200, b"[]"),
        (200, STANDBY),
    ],
    ids=["closed", "not JSON", "a gateway", "a list", "standby"],
)
def test_a_master_that_does_not_answer_is_unavailable_and_another_one_is_asked(
    master: SimulatedMaster, fault: tuple[int, bytes] | None
) -> None:
    master.faults.append(fault)
    with pytest.raises(ClusterUnavailable, match="REST API of the Spark master"):
        cluster(master.url).submit(request("0", "0"))
    assert master.drivers == {}
    master.faults.append(fault)
    both = cluster(master.url, f"{master.url}/")
    driver = both.submit(request("0", "0"))
    assert list(master.drivers) == [driver]
    master.faults.append(fault)
    with pytest.raises(ClusterUnavailable):
        state(cluster(master.url), driver)


def test_an_address_without_a_server_is_unavailable(master: SimulatedMaster) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ClusterUnavailable, match="did not answer: ConnectError"):
        cluster(nowhere).submit(request("0", "0"))
    assert cluster(nowhere, master.url).submit(request("0", "0")) in master.drivers


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_login_is_a_setting_and_the_token_is_not_shown(
    master: SimulatedMaster, code: int
) -> None:
    there = cluster(master.url, token="canary-token")
    master.faults.append((code, b""))
    with pytest.raises(SettingsError, match="refused the login") as caught:
        there.submit(request("0", "0"))
    assert "canary" not in str(caught.value)
    there.submit(request("0", "0"))
    assert master.headers == ["Bearer canary-token"] * 2


def test_a_refused_driver_is_a_setting(master: SimulatedMaster) -> None:
    answer = {"action": "CreateSubmissionResponse", "success": False, "message": "Invalid driver."}
    master.faults.append((200, json.dumps(answer).encode()))
    with pytest.raises(SettingsError, match=r"refused a driver: Invalid driver\."):
        cluster(master.url).submit(request("0", "0"))


# ---------------------------------------------------------------- connections


def define(patch: pytest.MonkeyPatch, **fields: Any) -> None:
    patch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "spark", **fields}))


@pytest.mark.parametrize(
    ("fields", "master", "urls"),
    [
        (
            {"host": "spark://one", "port": 7077},
            "spark://one:7077",
            ["http://one:6066"],
        ),
        (
            {"host": "spark://one:7077,two:7077"},
            "spark://one:7077,two:7077",
            ["http://one:6066", "http://two:6066"],
        ),
        (
            {"host": "spark://one:7077", "extra": {"rest_url": "https://one:1, http://two:2"}},
            "spark://one:7077",
            ["https://one:1", "http://two:2"],
        ),
    ],
)
def test_the_address_is_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], master: str, urls: list[str]
) -> None:
    define(monkeypatch, **fields)
    found, found_master = cluster_of("there")
    assert isinstance(found, StandaloneCluster)
    assert (found_master, list(found._api.urls)) == (
        master,
        urls,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "local[2]"}, "expected a cluster"),
        ({"host": "mesos://one:5050"}, "expected a cluster"),
        ({"host": "spark://one:7077", "extra": {"rest_url": "one:6066"}}, "expected rest_url"),
        ({"host": "spark://one:7077", "extra": {"rest_url": " "}}, "expected rest_url"),
    ],
)
def test_another_master_or_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    define(monkeypatch, **fields)
    with pytest.raises(SettingsError, match=message):
        cluster_of("there")


def test_a_connection_that_is_not_defined_is_refused() -> None:
    with pytest.raises(SettingsError, match="'missing' is not defined"):
        cluster_of("missing")
