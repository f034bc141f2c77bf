"""Drivers on a standalone cluster, by the REST API of its master (spark.master.rest.enabled, port 6066).

spark-submit refuses Python files in cluster mode on such a cluster. The API starts any main class on a worker, and
SparkSubmit itself is one: it runs the job in client mode there. (Spark 4.2: deploy/rest/StandaloneRestServer.scala.)
"""

from __future__ import annotations

from collections.abc import Sequence
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
from tallystick.errors import SettingsError

PORT = 6066
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# DriverState of Spark's master. RELAUNCHING does not occur, because no driver is supervised.
_STATES: dict[str, State] = {
    "SUBMITTED": "waiting",
    "RUNNING": "running",
    "RELAUNCHING": "running",
    "FINISHED": "succeeded",
    "FAILED": "failed",
    "ERROR": "failed",
    "KILLED": "killed",
    "UNKNOWN": "unknown",
    "NOT_FOUND": "unknown",
}


class StandaloneCluster:
    """The master's REST API at one of `urls`; if there are several masters, the active one answers.

    `token`: sent as a bearer token, for a master with an authentication filter (spark.master.rest.filters).
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        master: str,
        spark_version: str,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._master = master
        self._spark_version = spark_version
        self._api = RestApi(
            urls,
            base="/v1/submissions",
            read=_read,
            what=f"the REST API of the Spark master {master}",
            hint="check that the master runs with spark.master.rest.enabled=true, and the connection's rest_url.",
            headers=lambda: bearer(token),
            timeout_s=timeout_s,
        )

    def submit(self, request: DriverRequest) -> str:
        """Start a driver on a worker and return its id. Safe to repeat: see `Cluster.submit`."""
        options = {
            "spark.app.name": request.name,
            "spark.master": self._master,
            "spark.submit.deployMode": "client",
            **request.conf,
        }
        words = [word for name in sorted(options) for word in ("--conf", f"{name}={options[name]}")]
        body = {
            "action": "CreateSubmissionRequest",
            "appResource": request.job,
            "mainClass": _SUBMIT,
            "appArgs": [*words, request.job, *request.arguments],
            "clientSparkVersion": self._spark_version,
            "environmentVariables": dict(request.environment),
            "sparkProperties": {
                "spark.app.name": request.name,
                "spark.master": self._master,
                "spark.submit.deployMode": "cluster",
                "spark.driver.supervise": "false",
                **{k: v for k, v in options.items() if k in _OF_THE_DRIVER},
            },
        }
        answer = self._api.send("POST", "/create", json=body)
        if answer.get("success") is not True or not answer.get("submissionId"):
            raise SettingsError(
                f"the Spark master at {self._master} refused a driver: {_message(answer)}.",
                hint="read the master's log; check that its workers have the memory and cores of the driver.",
            )
        return str(answer["submissionId"])

    async def state(self, driver: str) -> DriverState:
        """Return the state of a driver. A master that was started again without recovery has none: `unknown`."""
        answer = await self._api.asend("GET", f"/status/{driver}")
        state = _STATES.get(str(answer.get("driverState")), "unknown")
        return DriverState(state=state, message=_message(answer, ""))

    def kill(self, driver: str) -> None:
        """End a driver. Safe to repeat: the master ignores one that has ended."""
        self._api.send("POST", f"/kill/{driver}")

    async def akill(self, driver: str) -> None:
        """End a driver. Safe to repeat: see `kill`."""
        await self._api.asend("POST", f"/kill/{driver}")


_OF_THE_DRIVER = ("spark.driver.memory", "spark.driver.cores")


def _read(url: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the answer of an active master. Raises SettingsError if it refuses the login."""
    if answer.status_code in (401, 403):
        raise SettingsError(
            f"the Spark master at {url} refused the login (HTTP {answer.status_code}).",
            hint="set the token as the password of the Spark connection.",
        )
    found = json_object(answer)
    # A standby master answers with success=false and this message to every request.
    if "Current state is not alive" in str(found.get("message")):
        raise NotAnsweredError(_message(found))
    return found


def _message(answer: dict[str, Any], otherwise: str = "it gave no reason") -> str:
    return one_line(answer.get("message") or otherwise)
