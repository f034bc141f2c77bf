"""Chooses the cluster of a Spark connection, for drivers that run on it without a task."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from tallystick.airflow.clusters.port import Cluster
from tallystick.airflow.clusters.standalone import PORT, StandaloneCluster
from tallystick.errors import SettingsError

REST_URL = "rest_url"


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
    if not master.startswith("spark://"):
        raise SettingsError(
            f"Spark connection {conn_id!r}: expected a standalone master (spark://host:port) for deferrable=True, "
            f"found {master!r}.",
            hint="name a connection to a standalone cluster, or use deferrable=False.",
        )
    cluster = StandaloneCluster(
        _rest_urls(conn_id, connection, master),
        master=master,
        spark_version=importlib.metadata.version("pyspark"),
        token=connection.password,
    )
    return cluster, master


def _rest_urls(conn_id: str, connection: Any, master: str) -> list[str]:
    """Return the addresses of the masters' REST APIs: of the connection's extra, or port 6066 of each master."""
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError as error:
        raise SettingsError(
            f"Spark connection {conn_id!r}: its extra is not JSON.", hint="correct its extra."
        ) from error
    given = extra.get(REST_URL)
    if given is not None:
        urls = [url.strip() for url in str(given).split(",") if url.strip()]
        if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
            raise SettingsError(
                f"Spark connection {conn_id!r}: expected {REST_URL} as http://host:port, found {given!r}.",
                hint=f'set it in the extra, e.g. {{"{REST_URL}": "http://master:6066"}}.',
            )
        return urls
    hosts = master.removeprefix("spark://").split(",")
    return [f"http://{host.rpartition(':')[0] or host}:{PORT}" for host in hosts]
