"""Drivers on Kubernetes: spark-submit in cluster mode creates a driver's pod, and the API server reads and deletes it.

With `spark.kubernetes.submission.waitAppCompletion=false`, spark-submit ends when it has created the pod and the config
map that the pod mounts (Spark 4.2: `org.apache.spark.deploy.k8s.submit.Client.run`, `KubernetesClientApplication`). It
creates the pod first, so a pod whose submission failed may never start: it is deleted.

A driver's id is namespace/name/uid. The pod's name and a label contain the attempt. A pod of another uid is another pod.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tallystick.airflow.clusters.port import DriverRequest, DriverState, State
from tallystick.airflow.clusters.rest import (
    TIMEOUT_S,
    NotAnsweredError,
    RestApi,
    bearer,
    json_object,
    one_line,
)
from tallystick.airflow.clusters.submission import driver_variables, spark_submit
from tallystick.errors import SettingsError, TallystickError

LABEL = "tallystick-attempt"
GRACE_S = 2
"""How long a killed driver may take to end. It has nothing to save: only its outcome counts."""
_NAMESPACE = "spark.kubernetes.namespace"
_SECRET_REFERENCE = "spark.kubernetes.{}.secretKeyRef."
_AUTHENTICATE = "spark.kubernetes.authenticate.submission."
_PHASES: dict[str, State] = {
    "Pending": "waiting",
    "Running": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
}


class KubernetesCluster:
    """The API server at `url`, and spark-submit to `master`.

    `token_file` and `ca_file` are paths, such as a pod finds in /var/run/secrets. The token is read for each request,
    because Kubernetes replaces it. `token`: used if there is no file; spark-submit does not get it.
    """

    def __init__(
        self,
        url: str,
        *,
        master: str,
        binary: str,
        namespace: str = "default",
        token_file: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
        worker: Mapping[str, str] = os.environ,
    ) -> None:
        self._master = master
        self._binary = binary
        self._namespace = namespace
        self._files = {"oauthTokenFile": token_file, "caCertFile": ca_file}
        self._worker = worker
        self._api = RestApi(
            [url],
            read=_read,
            what=f"the API server of Kubernetes at {url}",
            hint="check the master of the Spark connection, or set rest_url in its extra.",
            headers=lambda: bearer(_token(token_file) if token_file else token),
            ca_file=ca_file,
            timeout_s=timeout_s,
        )

    def submit(self, request: DriverRequest) -> str:
        """Start a driver in a pod and return its id. Safe to repeat: see `Cluster.submit`."""
        namespace = request.conf.get(_NAMESPACE, self._namespace)
        ended = spark_submit(
            self._binary,
            request,
            master=self._master,
            # The file is in the image. Without the scheme, spark-submit would upload the one of this machine.
            job=f"local://{request.job}",
            conf=self._conf(request, namespace),
            worker=self._worker,
        )
        found = self._lookup(namespace, request.attempt)
        if found is None or ended.code != 0:
            if found is not None:
                self._drop(found)
            raise ended.failed(self._master)
        return found

    async def state(self, driver: str) -> DriverState:
        """Return the state of a driver. `unknown`: its pod was deleted, or replaced by another one of its name."""
        return _state(await self._api.asend("GET", _path(driver)), _uid(driver))

    def kill(self, driver: str) -> None:
        """Delete a driver's pod. Safe to repeat: the uid is a precondition, so another pod is never deleted."""
        self._api.send("DELETE", _path(driver), json=_options(driver))

    async def akill(self, driver: str) -> None:
        """Delete a driver's pod. Safe to repeat: see `kill`."""
        await self._api.asend("DELETE", _path(driver), json=_options(driver))

    def _conf(self, request: DriverRequest, namespace: str) -> dict[str, str]:
        executor, driver = (_SECRET_REFERENCE.format(role) for role in ("executor", "driver"))
        references = {
            driver + key.removeprefix(executor): value
            for key, value in request.conf.items()
            if key.startswith(executor)
        }
        return {
            **references,
            **driver_variables(request, "spark.kubernetes.driverEnv."),
            **{_AUTHENTICATE + key: path for key, path in self._files.items() if path},
            _NAMESPACE: namespace,
            f"spark.kubernetes.driver.label.{LABEL}": request.attempt,
            # In client mode this option names the pod of the task.
            "spark.kubernetes.driver.pod.name": f"tallystick-{request.attempt}",
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }

    def _lookup(self, namespace: str, attempt: str) -> str | None:
        """Return the id of the pod with this label, or None if there is none."""
        found = self._api.send_repeatedly(
            "GET",
            f"/api/v1/namespaces/{namespace}/pods",
            params={"labelSelector": f"{LABEL}={attempt},spark-role=driver"},
        )
        pods = [pod["metadata"] for pod in (found or {}).get("items") or []]
        return f"{namespace}/{pods[0]['name']}/{pods[0]['uid']}" if pods else None

    def _drop(self, driver: str) -> None:
        """Delete the pod of a failed submission. Safe to repeat: see `kill`."""
        try:
            self.kill(driver)
        except TallystickError:  # without its config map the pod never starts the driver
            return


def _token(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the token of Kubernetes cannot be read from {file}: {type(error).__name__}.",
            hint="name a readable file as token_file in the extra of the Spark connection.",
        ) from None


def _path(driver: str) -> str:
    namespace, name, _ = driver.split("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _uid(driver: str) -> str:
    return driver.rpartition("/")[2]


def _options(driver: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": GRACE_S,
        "preconditions": {"uid": _uid(driver)},
    }


def _read(url: str, answer: httpx.Response) -> dict[str, Any] | None:
    """Return the answer of the API server; None: the pod is gone, or it is another one (a failed precondition)."""
    if answer.status_code == 401:
        raise _refused(url, answer.status_code, "")
    found = json_object(answer)
    if answer.is_success:
        return found
    why = one_line(found.get("message") or "it gave no reason")
    is_status = found.get("kind") == "Status"
    if answer.status_code == 403 and is_status:
        raise _refused(url, answer.status_code, why)
    if answer.status_code in (404, 409) and is_status and _is_of_a_pod(found):
        return None
    raise NotAnsweredError(f"it answered {answer.status_code}: {why}")


def _is_of_a_pod(status: Mapping[str, Any]) -> bool:
    # A wrong address has a Status 404, too, without details of an object.
    return (status.get("details") or {}).get("kind") == "pods"


def _refused(url: str, code: int, why: str) -> SettingsError:
    return SettingsError(
        f"the API server at {url} refused the request (HTTP {code}){f': {why}' if why else ''}.",
        hint="set token_file in the extra of the Spark connection to a service account's token; the account must be "
        "allowed to get, list and delete pods.",
    )


def _state(pod: Mapping[str, Any] | None, uid: str) -> DriverState:
    if pod is None:
        return DriverState(state="unknown", message="the driver's pod was deleted")
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    if metadata.get("uid") != uid:
        return DriverState(state="unknown", message="the driver's pod was replaced by another one")
    return DriverState(
        state=_PHASES.get(str(status.get("phase")), "unknown"), message=_message(status)
    )


def _message(status: Mapping[str, Any]) -> str:
    """Return why the pod is in its state: of the pod (Evicted), or of its container (OOMKilled, ImagePullBackOff)."""
    reasons = [status]
    for container in status.get("containerStatuses") or []:
        reasons += [
            (container.get("state") or {}).get(key) or {} for key in ("waiting", "terminated")
        ]
    named = [
        f"{one.get('reason')}: {one.get('message') or _exit_code(one)}".rstrip(": ")
        for one in reasons
        if one.get("reason")
    ]
    return one_line("; ".join(named))


def _exit_code(terminated: Mapping[str, Any]) -> str:
    code = terminated.get("exitCode")
    return "" if code is None else f"exit code {code}"
