"""Drivers on YARN: what spark-submit gets, requests to a ResourceManager, its states, and its failures."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.resource_manager import STANDBY, SimulatedResourceManager
from support.rest_server import SimulatedSubmit, serving, simulated_submit
from tallystick.airflow.clusters import rest
from tallystick.airflow.clusters.opening import cluster_of
from tallystick.airflow.clusters.port import DriverRequest, DriverState
from tallystick.airflow.clusters.submission import spark_submit
from tallystick.airflow.clusters.yarn import YarnCluster
from tallystick.errors import ClusterUnavailable, SettingsError
from tallystick_devstack.process import started_at, wait_until
from tallystick_devstack.testing.servers import free_port

ATTEMPT = "0123456789abcdef0123456789abcdef"
NOT_THERE = "application_1_0001"
HTML = b"<html>a gateway</html>"


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedResourceManager]:
    monkeypatch.setattr(rest, "PAUSE_S", 0.01)
    simulated = SimulatedResourceManager()
    with serving(simulated.server):
        yield simulated


@pytest.fixture
def program(manager: SimulatedResourceManager, tmp_path: Path) -> SimulatedSubmit:
    return simulated_submit(tmp_path, manager.server)


def cluster(
    manager: SimulatedResourceManager, binary: Any = "missing", **options: Any
) -> YarnCluster:
    urls = options.pop("urls", [manager.server.url])
    return YarnCluster(urls, binary=str(binary), timeout_s=5, **options)


def request(**conf: str) -> DriverRequest:
    return DriverRequest(
        name=f"tallystick-flights-{ATTEMPT}",
        job="/jobs/flights.py",
        arguments=("--plan", "p", "--attempt", ATTEMPT, "--outcome-to-lake"),
        conf={"spark.executor.memory": "1g", **conf},
    )


def state(of: YarnCluster, driver: str) -> DriverState:
    return asyncio.run(of.state(driver))


# ---------------------------------------------------------------- submission


def test_a_driver_is_submitted_in_cluster_mode_with_its_attempt_as_a_tag(
    manager: SimulatedResourceManager, program: SimulatedSubmit
) -> None:
    there = cluster(manager, program.program, queue="replay")
    conf = {
        "spark.yarn.tags": "mine",
        "spark.executorEnv.AWS_REGION": "eu",
        "spark.yarn.maxAppAttempts": "3",
    }
    driver = there.submit(request(**conf))
    assert list(manager.apps) == [driver]
    assert manager.apps[driver]["applicationTags"] == f"mine,{ATTEMPT}"
    call = program.call()
    assert call["words"][:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert call["words"][-6:] == ["/jobs/flights.py", *request().arguments]
    assert call["conf"] == {
        "spark.executor.memory": "1g",
        "spark.executorEnv.AWS_REGION": "eu",
        "spark.yarn.appMasterEnv.AWS_REGION": "eu",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.queue": "replay",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.tags": f"mine,{ATTEMPT}",
    }


def test_spark_submit_gets_places_and_no_secrets(
    manager: SimulatedResourceManager, program: SimulatedSubmit
) -> None:
    secret = {
        "AWS_SECRET_ACCESS_KEY": "canary",
        "TALLYSTICK_KAFKA_DEFAULT": "canary",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "canary",
        "SPARK_CONN": "canary",
    }
    places = {
        "PATH": os.environ["PATH"],
        "HADOOP_CONF_DIR": "/etc/hadoop",
        "SPARK_CONF_DIR": "/etc/spark",
    }
    cluster(manager, program.program, token="canary", worker={**secret, **places}).submit(request())
    call = program.call()
    assert places.items() <= call["environment"].items()
    assert "canary" not in json.dumps(call)


@pytest.mark.parametrize("code", [0, 1])
def test_an_application_whose_submission_lost_its_reply_is_found_by_its_tag(
    manager: SimulatedResourceManager, tmp_path: Path, code: int
) -> None:
    """spark-submit fails although the ResourceManager has accepted the application."""
    program = simulated_submit(
        tmp_path, manager.server, code=code, prints="java.io.IOException: reset"
    )
    manager.server.faults += [None, (503, HTML)]
    driver = cluster(manager, program.program).submit(request())
    assert list(manager.apps) == [driver]


def test_a_submission_that_started_nothing_is_retried_with_its_reason(
    manager: SimulatedResourceManager, tmp_path: Path
) -> None:
    why = "Exception in thread main java.net.ConnectException: refused"
    program = simulated_submit(tmp_path, manager.server, code=1, submits=False, prints=why)
    with pytest.raises(ClusterUnavailable, match=r"exit code 1 and no driver was found: .*refused"):
        cluster(manager, program.program).submit(request())
    assert manager.apps == {}


def test_the_id_in_the_output_is_used_if_the_tag_cannot_be_looked_up(
    manager: SimulatedResourceManager, program: SimulatedSubmit
) -> None:
    manager.server.faults += [None] * rest.TRIES_MAX
    driver = cluster(manager, program.program).submit(request())
    assert list(manager.apps) == [driver]


def test_a_failed_submission_without_a_lookup_is_not_taken_for_a_driver(
    manager: SimulatedResourceManager, tmp_path: Path
) -> None:
    program = simulated_submit(tmp_path, manager.server, code=1)
    manager.server.faults += [None] * rest.TRIES_MAX
    with pytest.raises(ClusterUnavailable, match="ResourceManager is not available"):
        cluster(manager, program.program).submit(request())


def test_a_program_that_is_not_there_is_a_setting(manager: SimulatedResourceManager) -> None:
    with pytest.raises(SettingsError, match="cannot be started"):
        cluster(manager, "/nowhere/spark-submit").submit(request())


def test_a_spark_submit_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    program = tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\necho hangs\nwait\n")
    program.chmod(0o700)
    ended = spark_submit(
        str(program), request(), master="yarn", job="j", conf={}, worker=os.environ, timeout_s=1
    )
    # The output ends only when each process that could write to it has ended.
    assert (ended.code, ended.output) == (None, "hangs\n")
    assert "did not end in time" in str(ended.failed("YARN"))
    wait_until(
        lambda: started_at(int((tmp_path / "pid").read_text())) is None,
        deadline_s=60,
        what="the end of the child",
    )


# ---------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("name", "final", "expected"),
    [
        ("NEW", "UNDEFINED", "waiting"),
        ("SUBMITTED", "UNDEFINED", "waiting"),
        ("ACCEPTED", "UNDEFINED", "waiting"),
        ("RUNNING", "UNDEFINED", "running"),
        ("KILLING", "UNDEFINED", "running"),
        ("FINISHED", "SUCCEEDED", "succeeded"),
        ("FINISHED", "FAILED", "failed"),
        ("FINISHED", "KILLED", "killed"),
        ("FINISHED", "UNDEFINED", "failed"),
        ("FAILED", "FAILED", "failed"),
        ("KILLED", "KILLED", "killed"),
        ("ANOTHER", "UNDEFINED", "unknown"),
    ],
)
def test_the_state_of_an_application_is_the_state_of_its_driver(
    manager: SimulatedResourceManager, name: str, final: str, expected: str
) -> None:
    driver = manager.accept(ATTEMPT)
    manager.end(driver, name, final)
    assert state(cluster(manager), driver).state == expected


def test_the_message_is_the_first_line_of_the_diagnostics_and_where_the_log_is(
    manager: SimulatedResourceManager,
) -> None:
    driver = manager.accept(ATTEMPT)
    manager.end(driver, "FAILED", "FAILED", "AM exited with exitCode: 13\nlines of its log\n" * 99)
    manager.apps[driver]["amContainerLogs"] = "http://node/logs"
    assert (
        state(cluster(manager), driver).message
        == "AM exited with exitCode: 13 Log: http://node/logs"
    )


def test_a_driver_that_a_restarted_manager_does_not_have_is_unknown(
    manager: SimulatedResourceManager,
) -> None:
    driver = manager.accept(ATTEMPT)
    manager.apps.clear()
    assert state(cluster(manager), driver).state == "unknown"
    cluster(manager).kill(driver)


def test_a_driver_is_killed_once_and_a_second_kill_changes_nothing(
    manager: SimulatedResourceManager,
) -> None:
    driver = manager.accept(ATTEMPT)
    cluster(manager).kill(driver)
    assert state(cluster(manager), driver).state == "killed"
    manager.end(driver, "FINISHED", "SUCCEEDED")
    asyncio.run(cluster(manager).akill(driver))
    assert state(cluster(manager), driver).state == "succeeded"


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (307, STANDBY),
        (302, HTML),
        (502, HTML),
        (404, HTML),
        (200, HTML),
        (200, b"[]"),
        (500, b'{"RemoteException": {"exception": "X", "message": "broken"}}'),
        (
            404,
            b'{"RemoteException": {"exception": "NotFoundException", "message": "no such page"}}',
        ),
    ],
    ids=["closed", "standby", "login", "gateway", "404 page", "page", "list", "500", "404"],
)
def test_a_manager_that_does_not_answer_is_unavailable_and_another_one_is_asked(
    manager: SimulatedResourceManager, fault: tuple[int, bytes] | None
) -> None:
    driver = manager.accept(ATTEMPT)
    both = cluster(manager, urls=[manager.server.url, f"{manager.server.url}/"])
    for ask in (lambda of: state(of, driver), lambda of: of.kill(driver)):
        manager.server.faults.append(fault)
        with pytest.raises(ClusterUnavailable, match="ResourceManager is not available"):
            ask(cluster(manager))
        manager.server.faults.append(fault)
        ask(both)
    assert manager.apps[driver]["state"] == "KILLED"


def test_a_kill_whose_reply_is_lost_was_carried_out_and_can_be_repeated(
    manager: SimulatedResourceManager,
) -> None:
    driver = manager.accept(ATTEMPT)
    manager.server.faults.append(None)
    manager.server.late = True
    with pytest.raises(ClusterUnavailable):
        cluster(manager).kill(driver)
    cluster(manager).kill(driver)
    assert state(cluster(manager), driver).state == "killed"


def test_an_address_without_a_server_is_unavailable(manager: SimulatedResourceManager) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ClusterUnavailable, match="did not answer: ConnectError"):
        state(cluster(manager, urls=[nowhere]), NOT_THERE)
    assert state(cluster(manager, urls=[nowhere, manager.server.url]), NOT_THERE).state == "unknown"


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_request_is_a_setting_and_the_token_is_not_shown(
    manager: SimulatedResourceManager, code: int
) -> None:
    there = cluster(manager, token="canary-token", user="airflow")
    body = b'{"RemoteException": {"message": "User airflow may not kill"}}'
    manager.server.faults.append((code, body if code == 403 else HTML))
    with pytest.raises(SettingsError, match=f"refused the request .HTTP {code}") as caught:
        there.kill(NOT_THERE)
    assert "canary" not in str(caught.value)
    assert ("may not kill" in str(caught.value)) is (code == 403)
    assert manager.server.headers == ["Bearer canary-token"]
    assert manager.server.requests[0].endswith("/state?user.name=airflow")


# ---------------------------------------------------------------- connections


def define(patch: pytest.MonkeyPatch, **fields: Any) -> None:
    patch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "spark", **fields}))


def test_the_connection_names_every_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    define(
        monkeypatch,
        host="yarn",
        extra={"rest_url": "http://one:8088, https://two:8090", "queue": "q"},
    )
    found, master = cluster_of("there")
    assert isinstance(found, YarnCluster)
    assert master == "yarn"
    assert found._api.urls == ("http://one:8088", "https://two:8090")
    assert found._conf(request())["spark.yarn.queue"] == "q"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({}, "needs the address of the ResourceManager"),
        ({"rest_url": "one:8088"}, "expected rest_url as http"),
        ({"rest_url": "http://one:8088", "spark-binary": "sh"}, "expected spark-binary"),
        ("[]", "is not a JSON object"),
    ],
)
def test_a_connection_without_what_it_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch, extra: Any, message: str
) -> None:
    define(monkeypatch, host="yarn", extra=extra)
    with pytest.raises(SettingsError, match=message) as caught:
        cluster_of("there")
    assert caught.value.hint
