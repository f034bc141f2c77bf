"""Resolves connections in an Airflow task: environment, secrets folder, then the Airflow connection `<kind>_<name>`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from tallystick.connections.http import HttpSettings
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.connections.resolve import check_connection_name, env_name, resolve
from tallystick.connections.settings import S, Settings
from tallystick.connections.smtp import SmtpSettings
from tallystick.errors import SettingsError
from tallystick.registry.port import SchemaRegistry


def settings_named(kind: type[S], connection: str) -> S:
    """Return the settings of a connection by its name, and mask its secrets in the rest of this task's log.

    Raises SettingsError if the connection is not defined, naming every place that was searched, or if it is invalid.
    """
    name = check_connection_name(connection)
    conn_id = f"{kind.KIND}_{name}"
    fallback = None if os.environ.get(env_name(kind, name)) else _airflow_options(kind, conn_id)
    try:
        settings = resolve(kind, name, environ=os.environ, fallback=fallback)
    except SettingsError as error:
        also = f"Or define the Airflow connection {conn_id}, with {_HINTS[kind.KIND]}."
        raise SettingsError(error.message, hint=f"{error.hint} {also}") from None
    for secret in settings.secrets():
        mask_secret(secret)
    return settings


def registry_named(connection: str) -> SchemaRegistry:
    """Return the client of a schema registry by the name of its connection; raises SettingsError as `settings_named`."""
    # The client is loaded when the task runs, never when the DAG file is parsed.
    from tallystick.registry.client import RegistryClient

    return RegistryClient(settings_named(RegistrySettings, connection))


def _airflow_options(kind: type[Settings], conn_id: str) -> dict[str, Any] | None:
    """Return an Airflow connection as tallystick's options: its extra, and its fields if the extra lacks an option."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    options: dict[str, Any] = {}
    if connection.extra:
        # If the extra is broken, Airflow reads it as empty without an error, e.g. as a connection without TLS.
        source = f"extra of the Airflow connection {conn_id!r}"
        kind.options_of_json(connection.extra, source=source)
        options = dict(connection.extra_dejson)  # also masks its secrets in this task's log
    own = _FIELDS[kind.KIND](connection)
    return {name: value for name, value in own.items() if value} | options


def _kafka_fields(connection: Any) -> dict[str, Any]:
    hosts = (host.strip() for host in (connection.host or "").split(","))
    servers = (
        # A colon inside brackets is part of an IPv6 address; one after them precedes the port.
        host if ":" in host.rpartition("]")[2] else f"{host}:{connection.port or 9092}"
        for host in hosts
        if host
    )
    return {
        "bootstrap_servers": ",".join(servers),
        "sasl_plain_username": connection.login,
        "sasl_plain_password": connection.password,
    }


def _postgres_fields(connection: Any) -> dict[str, Any]:
    return {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        "password": connection.password,
    }


def _http_fields(connection: Any) -> dict[str, Any]:
    base_url = None
    if host := connection.host:
        scheme = "" if "://" in host else f"{connection.schema or 'https'}://"
        base_url = f"{scheme}{host}{f':{connection.port}' if connection.port else ''}"
    return {
        "base_url": base_url,
        "username": connection.login,
        "password": connection.password,
    }


def _registry_fields(connection: Any) -> dict[str, Any]:
    found = _http_fields(connection)
    return {"urls": found.pop("base_url"), **found}


def _smtp_fields(connection: Any) -> dict[str, Any]:
    return {
        "host": connection.host,
        "port": connection.port,
        "username": connection.login,
        "password": connection.password,
    }


_FIELDS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    KafkaSettings.KIND: _kafka_fields,
    PostgresSettings.KIND: _postgres_fields,
    HttpSettings.KIND: _http_fields,
    SmtpSettings.KIND: _smtp_fields,
    RegistrySettings.KIND: _registry_fields,
}
_HINTS: Mapping[str, str] = {
    KafkaSettings.KIND: "kafka-python's options as its extra (Airflow ignores an extra that it cannot parse)",
    PostgresSettings.KIND: "host, port, schema (the database), login and password, and other options of libpq in its "
    "extra",
    HttpSettings.KIND: "host, port, login and password, and other options in its extra",
    SmtpSettings.KIND: "host, port, login and password, and other options in its extra",
    RegistrySettings.KIND: "host (or the whole url), port, login and password, and other options in its extra",
}
