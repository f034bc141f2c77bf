"""Drivers on Kubernetes: what spark-submit gets, requests to an API server, the states of a pod, and failures."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kubernetes_api import SimulatedKubernetes
from support.rest_server import SimulatedSubmit, serving, simulated_submit
from tallystick.airflow.clusters import opening, rest
from tallystick.airflow.clusters.kubernetes import KubernetesCluster
from tallystick.airflow.clusters.opening import cluster_of
from tallystick.airflow.clusters.port import DriverRequest, DriverState
from tallystick.errors import ClusterUnavailable, SettingsError

ATTEMPT = "0123456789abcdef0123456789abcdef"
NOT_THERE = "replay/tallystick-0/uid-0"
HTML = b"<html>a gateway</html>"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedKubernetes]:
    monkeypatch.setattr(rest, "PAUSE_S", 0.01)
    simulated = SimulatedKubernetes()
    with serving(simulated.server):
        yield simulated


@pytest.fixture
def program(api: SimulatedKubernetes, tmp_path: Path) -> SimulatedSubmit:
    return simulated_submit(tmp_path, api.server)


def cluster(api: SimulatedKubernetes, binary: Any = "missing", **options: Any) -> KubernetesCluster:
    return KubernetesCluster(
        api.server.url,
        master=f"k8s://{api.server.url}",
        binary=str(binary),
        namespace="replay",
        timeout_s=5,
        **options,
    )


def request(**conf: str) -> DriverRequest:
    return DriverRequest(
        name=f"tallystick-flights-{ATTEMPT}",
        job="/jobs/flights.py",
        arguments=("--plan", "p", "--attempt", ATTEMPT, "--outcome-to-lake"),
        conf={"spark.executor.memory": "1g", **conf},
    )


def state(of: KubernetesCluster, driver: str) -> DriverState:
    return asyncio.run(of.state(driver))


# ---------------------------------------------------------------- submission


def test_a_driver_is_a_pod_that_is_named_and_labelled_by_its_attempt(
    api: SimulatedKubernetes, program: SimulatedSubmit
) -> None:
    files = {"token_file": "/run/token", "ca_file": None}
    token = program.program.with_name("token")
    token.write_text("canary-token\n")
    files["token_file"] = str(token)
    conf = {
        "spark.executorEnv.AWS_REGION": "eu",
        "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID": "s3:id",
        # In client mode, the pod of the task.
        "spark.kubernetes.driver.pod.name": "${env:SPARK_DRIVER_POD_NAME}",
    }
    driver = cluster(api, program.program, **files).submit(request(**conf))
    assert driver == f"replay/tallystick-{ATTEMPT}/uid-1"
    call = program.call()
    assert call["words"][:4] == ["--master", f"k8s://{api.server.url}", "--deploy-mode", "cluster"]
    assert call["words"][-6:] == ["local:///jobs/flights.py", *request().arguments]
    assert call["conf"] == {
        "spark.executor.memory": "1g",
        "spark.executorEnv.AWS_REGION": "eu",
        "spark.kubernetes.authenticate.submission.oauthTokenFile": str(token),
        "spark.kubernetes.driver.label.tallystick-attempt": ATTEMPT,
        "spark.kubernetes.driver.pod.name": f"tallystick-{ATTEMPT}",
        "spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID": "s3:id",
        "spark.kubernetes.driverEnv.AWS_REGION": "eu",
        "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID": "s3:id",
        "spark.kubernetes.namespace": "replay",
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    assert api.server.headers[-1] == "Bearer canary-token"
    assert "canary" not in json.dumps(call)


def test_spark_submit_gets_places_and_no_secrets(
    api: SimulatedKubernetes, program: SimulatedSubmit
) -> None:
    worker = {"AWS_SECRET_ACCESS_KEY": "canary", "TALLYSTICK_KAFKA_DEFAULT": "canary"}
    places = {"PATH": os.environ["PATH"], "KUBECONFIG": "/etc/kube"}
    there = cluster(api, program.program, token="canary", worker={**worker, **places})
    there.submit(request())
    assert places.items() <= program.call()["environment"].items()
    assert "canary" not in json.dumps(program.call())


def test_the_namespace_of_the_dag_is_that_of_the_driver(
    api: SimulatedKubernetes, program: SimulatedSubmit
) -> None:
    driver = cluster(api, program.program).submit(
        request(**{"spark.kubernetes.namespace": "other"})
    )
    assert driver.startswith("other/")
    assert state(cluster(api), driver).state == "waiting"


def test_a_lookup_that_fails_is_repeated(
    api: SimulatedKubernetes, program: SimulatedSubmit
) -> None:
    api.server.faults += [None, (503, HTML)]
    driver = cluster(api, program.program).submit(request())
    assert state(cluster(api), driver).state == "waiting"


def test_a_pod_whose_submission_failed_is_deleted_and_the_task_is_retried(
    api: SimulatedKubernetes, tmp_path: Path
) -> None:
    """spark-submit creates the pod before its config map: without that the pod never starts."""
    why = "KubernetesClientException: cannot create configmaps"
    program = simulated_submit(tmp_path, api.server, code=1, prints=why)
    with pytest.raises(ClusterUnavailable, match=r"no driver was found: .*configmaps"):
        cluster(api, program.program).submit(request())
    assert api.pods == {}


def test_a_submission_without_a_pod_is_retried(api: SimulatedKubernetes, tmp_path: Path) -> None:
    program = simulated_submit(tmp_path, api.server, submits=False)
    with pytest.raises(ClusterUnavailable, match="exit code 0 and no driver was found"):
        cluster(api, program.program).submit(request())


# ---------------------------------------------------------------- states


def submitted(api: SimulatedKubernetes) -> str:
    """Create the pod of a driver and return the driver's id."""
    pod = api.create("replay", {"metadata": {"name": f"tallystick-{ATTEMPT}"}})[1]
    return f"replay/{pod['metadata']['name']}/{pod['metadata']['uid']}"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("Pending", "waiting"),
        ("Running", "running"),
        ("Succeeded", "succeeded"),
        ("Failed", "failed"),
        ("Unknown", "unknown"),
    ],
)
def test_the_phase_of_the_pod_is_the_state_of_its_driver(
    api: SimulatedKubernetes, phase: str, expected: str
) -> None:
    driver = submitted(api)
    api.set(phase)
    assert state(cluster(api), driver).state == expected


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            {"reason": "Evicted", "message": "The node was low on memory."},
            "Evicted: The node was low on memory",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                ]
            },
            "OOMKilled: exit code 137",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "ImagePullBackOff",
        ),
        ({"containerStatuses": [{"state": {"running": {}}}]}, ""),
        ({}, ""),
    ],
    ids=["evicted", "out of memory", "no image", "runs", "nothing"],
)
def test_the_message_is_the_reason_of_the_pod_or_of_its_container(
    api: SimulatedKubernetes, status: dict[str, Any], message: str
) -> None:
    driver = submitted(api)
    api.set("Failed", **status)
    assert state(cluster(api), driver) == DriverState(state="failed", message=message)


def test_a_deleted_pod_is_unknown(api: SimulatedKubernetes) -> None:
    driver = submitted(api)
    api.pods.clear()
    found = state(cluster(api), driver)
    assert (found.state, found.message) == ("unknown", "the driver's pod was deleted")


def test_a_pod_of_another_uid_is_another_driver_and_is_not_deleted(
    api: SimulatedKubernetes,
) -> None:
    driver = submitted(api)
    api.replace()
    found = state(cluster(api), driver)
    assert (found.state, found.message) == (
        "unknown",
        "the driver's pod was replaced by another one",
    )
    cluster(api).kill(driver)
    asyncio.run(cluster(api).akill(driver))
    assert len(api.pods) == 1


def test_a_killed_driver_has_no_pod_and_a_second_kill_changes_nothing(
    api: SimulatedKubernetes,
) -> None:
    driver = submitted(api)
    cluster(api).kill(driver)
    assert api.pods == {}
    asyncio.run(cluster(api).akill(driver))
    assert state(cluster(api), driver).state == "unknown"


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (302, HTML),
        (502, HTML),
        (403, HTML),
        (404, HTML),
        (200, HTML),
        (200, b"[]"),
        (404, b'{"kind": "Status", "code": 404, "message": "404 page not found"}'),
        (429, b'{"kind": "Status", "code": 429, "reason": "TooManyRequests"}'),
        (500, b'{"kind": "Status", "code": 500, "message": "etcdserver: request timed out"}'),
    ],
    ids=["closed", "login", "gateway", "403 page", "404 page", "page", "list", "404", "429", "500"],
)
def test_a_server_that_does_not_answer_is_unavailable(
    api: SimulatedKubernetes, fault: tuple[int, bytes] | None
) -> None:
    driver = submitted(api)
    for ask in (lambda: state(cluster(api), driver), lambda: cluster(api).kill(driver)):
        api.server.faults.append(fault)
        with pytest.raises(
            ClusterUnavailable, match=r"API server of Kubernetes at .* not available"
        ):
            ask()
    assert state(cluster(api), driver).state == "waiting"


def test_a_kill_whose_reply_is_lost_was_carried_out_and_can_be_repeated(
    api: SimulatedKubernetes,
) -> None:
    driver = submitted(api)
    api.server.faults.append(None)
    api.server.late = True
    with pytest.raises(ClusterUnavailable):
        cluster(api).kill(driver)
    cluster(api).kill(driver)
    assert api.pods == {}


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_request_is_a_setting_and_the_token_is_not_shown(
    api: SimulatedKubernetes, code: int
) -> None:
    status = {"kind": "Status", "code": code, "message": "pods is forbidden: airflow cannot delete"}
    api.server.faults.append((code, json.dumps(status).encode()))
    with pytest.raises(SettingsError, match=f"refused the request .HTTP {code}") as caught:
        cluster(api, token="canary-token").kill(NOT_THERE)
    assert api.server.headers == ["Bearer canary-token"]
    assert "canary" not in str(caught.value)
    assert ("is forbidden" in str(caught.value)) is (code == 403)


def test_a_token_that_was_replaced_is_read_again(api: SimulatedKubernetes, tmp_path: Path) -> None:
    token = tmp_path / "token"
    there = cluster(api, token_file=str(token))
    for text in ("one", "two"):
        token.write_text(text)
        state(there, NOT_THERE)
    assert api.server.headers == ["Bearer one", "Bearer two"]
    token.unlink()
    with pytest.raises(SettingsError, match="the token of Kubernetes cannot be read"):
        state(there, NOT_THERE)


def test_certificates_that_cannot_be_read_are_a_setting(
    api: SimulatedKubernetes, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    for name in ("missing", "ca.crt"):
        with pytest.raises(SettingsError, match="cannot be read"):
            state(cluster(api, ca_file=str(tmp_path / name)), NOT_THERE)


# ---------------------------------------------------------------- connections


def define(patch: pytest.MonkeyPatch, **fields: Any) -> None:
    patch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "spark", **fields}))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "k8s://https://kubernetes.default.svc"}, "https://kubernetes.default.svc"),
        ({"host": "k8s://https://one", "port": 6443}, "https://one:6443"),
        ({"host": "k8s://one:6443"}, "https://one:6443"),
        ({"host": "k8s://https://one:6443", "extra": {"rest_url": "https://two"}}, "https://two"),
    ],
)
def test_the_address_is_the_master(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], url: str
) -> None:
    define(monkeypatch, **fields)
    found, master = cluster_of("there")
    assert isinstance(found, KubernetesCluster)
    assert found._api.urls == (url,)
    assert master.startswith("k8s://")


def test_a_pod_uses_its_own_service_account_unless_the_connection_has_a_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(opening, "_SERVICE_ACCOUNT", tmp_path)
    define(monkeypatch, host="k8s://https://one")
    found, _ = cluster_of("there")
    assert isinstance(found, KubernetesCluster)
    assert found._files == {
        "oauthTokenFile": str(tmp_path / "token"),
        "caCertFile": str(tmp_path / "ca.crt"),
    }
    define(monkeypatch, host="k8s://https://one", password="canary")
    found, _ = cluster_of("there")
    assert isinstance(found, KubernetesCluster)
    assert found._files == {"oauthTokenFile": None, "caCertFile": None}
    define(monkeypatch, host="k8s://https://one", extra={"token_file": "/t", "ca_file": "/c"})
    found, _ = cluster_of("there")
    assert isinstance(found, KubernetesCluster)
    assert found._files == {"oauthTokenFile": "/t", "caCertFile": "/c"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "k8s://ftp://one"}, "expected one address of an API server"),
        (
            {"host": "k8s://https://one", "extra": {"rest_url": "https://a,https://b"}},
            "expected one",
        ),
        ({"host": "k8s://https://one", "extra": {"rest_url": "a:1"}}, "expected rest_url as http"),
    ],
)
def test_an_address_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    define(monkeypatch, **fields)
    with pytest.raises(SettingsError, match=message):
        cluster_of("there")
