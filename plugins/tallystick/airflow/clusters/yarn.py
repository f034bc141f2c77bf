"""Drivers on YARN: spark-submit in cluster mode starts one, and the ResourceManager's REST API reads and kills it.

With `spark.yarn.submit.waitAppCompletion=false`, spark-submit ends when the ResourceManager has accepted the application
(Spark 4.2: `org.apache.spark.deploy.yarn.Client.run`, `fireAndForget`). It fails then only if the application is FAILED
or KILLED already. It uploads the job file to the application's staging directory, so nodes do not need it.

The application has a tag, the attempt, and is found by it, also if spark-submit lost its output or its connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
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
from tallystick.airflow.clusters.submission import driver_variables, joined, spark_submit
from tallystick.errors import ClusterUnavailable, SettingsError

_TAGS = "spark.yarn.tags"
_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_KILLED = {"state": "KILLED"}
# YarnApplicationState, and KILLING, which is the answer to a kill.
_STATES: dict[str, State] = {
    "NEW": "waiting",
    "NEW_SAVING": "waiting",
    "SUBMITTED": "waiting",
    "ACCEPTED": "waiting",
    "RUNNING": "running",
    "KILLING": "running",
    "FAILED": "failed",
    "KILLED": "killed",
}
# FinalApplicationStatus of an application in state FINISHED.
_FINAL: dict[str, State] = {"SUCCEEDED": "succeeded", "KILLED": "killed"}


class YarnCluster:
    """The ResourceManagers at `urls`, of which the active one answers, and spark-submit with HADOOP_CONF_DIR.

    `token`: sent as a bearer token, for a gateway in front of the API. `user`: sent as `user.name`, for Hadoop's simple
    authentication. `queue`: where applications run.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        binary: str,
        token: str | None = None,
        user: str | None = None,
        queue: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
        worker: Mapping[str, str] = os.environ,
    ) -> None:
        self._binary = binary
        self._queue = queue
        self._worker = worker
        self._user = {"user.name": user} if user else {}
        self._api = RestApi(
            urls,
            base="/ws/v1/cluster",
            read=_read,
            what="the REST API of YARN's ResourceManager",
            hint="check the connection's rest_url: name each ResourceManager; one must be active.",
            headers=lambda: bearer(token),
            ca_file=ca_file,
            timeout_s=timeout_s,
        )

    def submit(self, request: DriverRequest) -> str:
        """Start a driver in its application master and return the application's id.

        Safe to repeat: see `Cluster.submit`. An application whose submission failed after it was accepted is found.
        """
        ended = spark_submit(
            self._binary,
            request,
            master="yarn",
            job=request.job,
            conf=self._conf(request),
            worker=self._worker,
        )
        try:
            found = self._lookup(request.attempt)
        except ClusterUnavailable:
            printed = _APPLICATION.findall(ended.output)
            if ended.code != 0 or not printed:
                raise
            return str(printed[-1])
        if found is None:
            raise ended.failed("YARN")
        return found

    async def state(self, driver: str) -> DriverState:
        """Return the state of a driver. A ResourceManager that was started again without recovery has none: `unknown`."""
        return _state(await self._api.asend("GET", f"/apps/{driver}", params=self._user))

    def kill(self, driver: str) -> None:
        """End a driver. Safe to repeat: the ResourceManager ignores an application that has ended."""
        self._api.send("PUT", f"/apps/{driver}/state", params=self._user, json=_KILLED)

    async def akill(self, driver: str) -> None:
        """End a driver. Safe to repeat: see `kill`."""
        await self._api.asend("PUT", f"/apps/{driver}/state", params=self._user, json=_KILLED)

    def _conf(self, request: DriverRequest) -> dict[str, str]:
        queue = {"spark.yarn.queue": self._queue} if self._queue else {}
        return {
            **(queue if "spark.yarn.queue" not in request.conf else {}),
            **driver_variables(request, "spark.yarn.appMasterEnv."),
            _TAGS: joined([request.conf.get(_TAGS), request.attempt]),
            "spark.yarn.submit.waitAppCompletion": "false",
            # A second application master would be a second driver with the same attempt.
            "spark.yarn.maxAppAttempts": "1",
        }

    def _lookup(self, attempt: str) -> str | None:
        """Return the id of the application with this tag, or None if the ResourceManager has none."""
        asked = {**self._user, "applicationTags": attempt}
        found = self._api.send_repeatedly("GET", "/apps", params=asked)
        apps = ((found or {}).get("apps") or {}).get("app") or []
        return str(apps[0]["id"]) if apps else None


def _read(url: str, answer: httpx.Response) -> dict[str, Any] | None:
    """Return the answer of the active ResourceManager; None: it does not have the application.

    A standby redirects every request, to the active one or to itself.
    """
    if answer.is_redirect or answer.status_code == 307:
        raise NotAnsweredError("it is in standby, or a login page is in front of it")
    if answer.status_code == 401:
        raise _refused(url, answer.status_code, "")
    if answer.status_code == 403:
        raise _refused(url, answer.status_code, _reason(answer))
    found = json_object(answer)
    error = found.get("RemoteException")
    if error is None and answer.is_success:
        return found
    if answer.status_code == 404 and isinstance(error, dict) and _is_not_found(error):
        return None
    raise NotAnsweredError(f"it answered {answer.status_code}: {_reason(answer)}")


def _is_not_found(error: Mapping[str, Any]) -> bool:
    return error.get("exception") == "NotFoundException" and "app with id" in str(error)


def _reason(answer: httpx.Response) -> str:
    try:
        return one_line(answer.json()["RemoteException"]["message"])
    except (ValueError, KeyError, TypeError):
        return "it gave no reason"


def _refused(url: str, code: int, why: str) -> SettingsError:
    return SettingsError(
        f"the ResourceManager at {url} refused the request (HTTP {code}){f': {why}' if why else ''}.",
        hint="set the user as the login of the Spark connection, or a gateway's token as its password; "
        "the user must be allowed to kill applications of the queue.",
    )


def _state(found: Mapping[str, Any] | None) -> DriverState:
    if found is None:
        return DriverState(state="unknown", message="YARN does not have the application")
    app = found.get("app") or {}
    name = str(app.get("state"))
    final = _FINAL.get(str(app.get("finalStatus")), "failed")
    state = final if name == "FINISHED" else _STATES.get(name, "unknown")
    return DriverState(state=state, message=_message(app))


def _message(app: Mapping[str, Any]) -> str:
    """Return the first line of the diagnostics, which go on with the driver's output, and where its log is."""
    first = str(app.get("diagnostics") or "").strip().partition("\n")[0]
    where = app.get("amContainerLogs") or app.get("trackingUrl")
    return one_line(f"{first} Log: {where}" if first and where else first)
