"""Chooses the cluster of a Spark connection by its master, for drivers that run on it without a task."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from tallystick.airflow.clusters.kubernetes import KubernetesCluster
from tallystick.airflow.clusters.port import Cluster
from tallystick.airflow.clusters.standalone import PORT, StandaloneCluster
from tallystick.airflow.clusters.yarn import YarnCluster
from tallystick.airflow.environment import own_spark_submit
from tallystick.errors import SettingsError

REST_URL = "rest_url"
TOKEN_FILE, CA_FILE = "token_file", "ca_file"
_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")
# What a pod finds there is its own service account.
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KUBERNETES = "k8s://"


def cluster_of(conn_id: str) -> tuple[Cluster, str]:
    """Return the cluster of the Spark connection and its master, in a task.

    Raises SettingsError if the connection is not defined, or if its master is none to which drivers can be submitted.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise _not_defined(conn_id) from None
    return _cluster(conn_id, connection)


async def cluster_of_trigger(conn_id: str) -> Cluster:
    """Return the cluster of the Spark connection, in the triggerer; raises SettingsError as `cluster_of`."""
    try:
        connection = await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException:
        raise _not_defined(conn_id) from None
    return _cluster(conn_id, connection)[0]


def _not_defined(conn_id: str) -> SettingsError:
    return SettingsError(
        f"Spark connection {conn_id!r} is not defined.",
        hint=f"define it, e.g. AIRFLOW_CONN_{conn_id.upper()}="
        '\'{"conn_type": "spark", "host": "spark://master", "port": 7077}\'.',
    )


def _cluster(conn_id: str, connection: Any) -> tuple[Cluster, str]:
    host = connection.host or ""
    master = f"{host}:{connection.port}" if connection.port else host
    extra = _extra(conn_id, connection)
    if master.startswith("spark://"):
        return _standalone(conn_id, connection, master, extra), master
    if host == "yarn":
        return _yarn(conn_id, connection, extra), host
    if master.startswith(_KUBERNETES):
        return _kubernetes(conn_id, connection, master, extra), master
    raise SettingsError(
        f"Spark connection {conn_id!r}: expected a cluster (spark://host:port, yarn or k8s://https://host:port) for "
        f"deferrable=True, found {master!r}.",
        hint="name a connection to a cluster, or use deferrable=False.",
    )


def _standalone(
    conn_id: str, connection: Any, master: str, extra: Mapping[str, Any]
) -> StandaloneCluster:
    hosts = master.removeprefix("spark://").split(",")
    return StandaloneCluster(
        _rest_urls(conn_id, extra, "http://master:6066")
        or [f"http://{host.rpartition(':')[0] or host}:{PORT}" for host in hosts],
        master=master,
        spark_version=importlib.metadata.version("pyspark"),
        token=connection.password,
    )


def _yarn(conn_id: str, connection: Any, extra: Mapping[str, Any]) -> YarnCluster:
    urls = _rest_urls(conn_id, extra, "http://manager:8088")
    if not urls:
        raise SettingsError(
            f"Spark connection {conn_id!r}: deferrable=True on YARN needs the address of the ResourceManager.",
            hint=f'set it in the extra, e.g. {{"{REST_URL}": "http://manager1:8088,http://manager2:8088"}}.',
        )
    return YarnCluster(
        urls,
        binary=_binary(conn_id, extra),
        token=connection.password,
        user=connection.login,
        queue=extra.get("queue"),
        ca_file=extra.get(CA_FILE),
    )


def _kubernetes(
    conn_id: str, connection: Any, master: str, extra: Mapping[str, Any]
) -> KubernetesCluster:
    address = master.removeprefix(_KUBERNETES)
    # Spark adds https:// to an address without a scheme, too.
    default = address if "://" in address else f"https://{address}"
    urls = _rest_urls(conn_id, extra, "https://server:6443") or [default]
    if len(urls) != 1 or not urls[0].startswith(("http://", "https://")):
        raise SettingsError(
            f"Spark connection {conn_id!r}: expected one address of an API server, found {', '.join(urls)!r}.",
            hint=f"write the master as {_KUBERNETES}https://host:port.",
        )
    token_file, ca_file = extra.get(TOKEN_FILE), extra.get(CA_FILE)
    if not token_file and not connection.password:
        token_file = _existing(_SERVICE_ACCOUNT / "token")
        ca_file = ca_file or _existing(_SERVICE_ACCOUNT / "ca.crt")
    return KubernetesCluster(
        urls[0],
        master=master,
        binary=_binary(conn_id, extra),
        namespace=extra.get("namespace") or "default",
        token_file=token_file,
        token=connection.password,
        ca_file=ca_file,
    )


def _existing(path: Path) -> str | None:
    return str(path) if path.is_file() else None


def _extra(conn_id: str, connection: Any) -> dict[str, Any]:
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise SettingsError(
            f"Spark connection {conn_id!r}: its extra is not a JSON object.",
            hint="correct its extra.",
        )
    return extra


def _binary(conn_id: str, extra: Mapping[str, Any]) -> str:
    """Return the spark-submit of the extra, of this Python, or of the PATH. Airflow's hook allows the same names."""
    named = extra.get("spark-binary")
    if named is not None and named not in _BINARIES:
        raise SettingsError(
            f"Spark connection {conn_id!r}: expected spark-binary as one of {', '.join(_BINARIES)}, found {named!r}.",
            hint="correct its extra.",
        )
    return named or own_spark_submit() or _BINARIES[0]


def _rest_urls(conn_id: str, extra: Mapping[str, Any], example: str) -> list[str]:
    """Return the addresses of the REST API that the extra names; none if it names none."""
    given = extra.get(REST_URL)
    if given is None:
        return []
    urls = [url.strip() for url in str(given).split(",") if url.strip()]
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        raise SettingsError(
            f"Spark connection {conn_id!r}: expected {REST_URL} as http://host:port, found {given!r}.",
            hint=f'set it in the extra, e.g. {{"{REST_URL}": "{example}"}}.',
        )
    return urls
