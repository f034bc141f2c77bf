"""Drivers on a standalone cluster, by the REST API of its master (spark.master.rest.enabled, port 6066).

spark-submit refuses Python files in cluster mode on such a cluster. The API starts any main class on a worker, and
SparkSubmit itself is one: it runs the job in client mode there. (Spark 4.2: deploy/rest/StandaloneRestServer.scala.)
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx

from tallystick.airflow.clusters.port import DriverRequest, DriverState, State
from tallystick.errors import ClusterUnavailable, SettingsError

PORT = 6066
TIMEOUT_S = 20.0
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
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._master = master
        self._spark_version = spark_version
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s

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
        answer = self._send("POST", "create", body)
        if answer.get("success") is not True or not answer.get("submissionId"):
            raise SettingsError(
                f"the Spark master at {self._master} refused a driver: {_message(answer)}.",
                hint="read the master's log; check that its workers have the memory and cores of the driver.",
            )
        return str(answer["submissionId"])

    async def state(self, driver: str) -> DriverState:
        """Return the state of a driver. A master that was started again without recovery has none: `unknown`."""
        answer = await self._asend("GET", f"status/{driver}")
        state = _STATES.get(str(answer.get("driverState")), "unknown")
        return DriverState(state=state, message=_message(answer, ""))

    def kill(self, driver: str) -> None:
        """End a driver. Safe to repeat: the master ignores one that has ended."""
        self._send("POST", f"kill/{driver}")

    async def akill(self, driver: str) -> None:
        """End a driver. Safe to repeat: see `kill`."""
        await self._asend("POST", f"kill/{driver}")

    def _send(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send a request to the active master and return its answer."""
        failed = "it has no address"
        with httpx.Client(**self._options()) as client:
            for url in self._urls:
                try:
                    answer = client.request(method, f"{url}/v1/submissions/{path}", json=body)
                except httpx.HTTPError as error:
                    failed = _unreachable(url, error)
                    continue
                found, failed = _read(url, answer)
                if found is not None:
                    return found
        raise self._unavailable(failed)

    async def _asend(self, method: str, path: str) -> dict[str, Any]:
        failed = "it has no address"
        async with httpx.AsyncClient(**self._options()) as client:
            for url in self._urls:
                try:
                    answer = await client.request(method, f"{url}/v1/submissions/{path}")
                except httpx.HTTPError as error:
                    failed = _unreachable(url, error)
                    continue
                found, failed = _read(url, answer)
                if found is not None:
                    return found
        raise self._unavailable(failed)

    def _options(self) -> dict[str, Any]:
        # The master is inside of the network, not behind a proxy.
        options = {"headers": self._headers, "timeout": self._timeout_s, "trust_env": False}
        return {**options, "verify": _tls()}

    def _unavailable(self, why: str) -> ClusterUnavailable:
        return ClusterUnavailable(
            f"the REST API of the Spark master {self._master} is not available: {why}.",
            hint="check that the master runs with spark.master.rest.enabled=true, and the connection's rest_url.",
        )


@cache
def _tls() -> ssl.SSLContext:
    """Return one context for all requests: reading the authorities takes longer than a request."""
    return ssl.create_default_context()


_OF_THE_DRIVER = ("spark.driver.memory", "spark.driver.cores")


def _unreachable(url: str, error: httpx.HTTPError) -> str:
    return f"{url} did not answer: {type(error).__name__}: {error}"


def _read(url: str, answer: httpx.Response) -> tuple[dict[str, Any] | None, str]:
    """Return the answer of an active master, or None and the reason. Raises SettingsError if it refuses the login."""
    if answer.status_code in (401, 403):
        raise SettingsError(
            f"the Spark master at {url} refused the login (HTTP {answer.status_code}).",
            hint="set the token as the password of the Spark connection.",
        )
    try:
        found = answer.json()
    except ValueError:
        return None, f"{url} answered {answer.status_code} without JSON"
    if isinstance(found, dict) and _is_of_active_master(found):
        return found, ""
    return None, f"{url} answered {answer.status_code}: {_message(found)}"


def _is_of_active_master(answer: dict[str, Any]) -> bool:
    # A standby master answers with success=false and this message to every request.
    return "Current state is not alive" not in str(answer.get("message"))


def _message(answer: Any, otherwise: str = "it gave no reason") -> str:
    text = answer.get("message") if isinstance(answer, dict) else None
    return " ".join(str(text or otherwise).split())[:500].rstrip(".")
