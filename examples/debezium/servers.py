"""The servers of the example `debezium`: a PostgreSQL with logical decoding, and Kafka Connect with Debezium's connector.

Kafka Connect is in the jars of the embedded broker. The Ivy inside pyspark downloads the connector, once per machine.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg2

from tallystick.errors import SettingsError
from tallystick_devstack.ivy import cache_folder, fetch_once, retrieve
from tallystick_devstack.java import COMPILES_LITTLE, find_java
from tallystick_devstack.kafka import default_jar_folder
from tallystick_devstack.postgres import ADMIN, Postgres
from tallystick_devstack.private_file import write_private
from tallystick_devstack.process import ChildProcess, base_environment, free_port, wait_until

DEBEZIUM_VERSION = "3.3.1.Final"
ROLE, DATABASE, CONNECTOR = "debezium", "shop", "shop"
_START_S = 120.0
_HEAP_MB = 256


def fetch_connector(folder: Path) -> Path:
    """Download Debezium's connector for PostgreSQL (7 MB) to `folder` if it does not exist; return it.

    Raises SettingsError if it fails. Safe to repeat: a folder that exists is complete (`ivy.fetch_once`).
    """
    return fetch_once(folder, _retrieve)


def _retrieve(scratch: Path, log_path: Path) -> Path:
    name, what = "debezium-connector-postgres", f"Debezium {DEBEZIUM_VERSION}"
    retrieve(
        f'<dependency org="io.debezium" name="{name}" rev="{DEBEZIUM_VERSION}" conf="*->default"/>',
        scratch / "jars",
        types=("jar", "bundle"),
        what=what,
        log_path=log_path,
    )
    if not list((scratch / "jars").glob(f"{name}-*.jar")):
        raise SettingsError(
            f"the download of {what} ended without its jars.",
            hint="check access to Maven Central.",
        )
    return scratch / "jars"


class SourceDatabase:
    """A PostgreSQL of its own with `wal_level=logical`: on a Unix socket, and for Debezium's role on a loopback port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.password = secrets.token_urlsafe(24)
        self._folder = folder
        self._server: Postgres | None = None

    def start(self, *statements: str) -> None:
        """Create the database, execute SQL statements in it, and start the server with its port."""
        local = Postgres(self._folder)
        local.start()
        try:
            local.create_database(DATABASE)
            self._server = local
            self.execute(f"create role {ROLE} login replication password '{self.password}'")
            for statement in statements:
                self.execute(statement)
        finally:
            local.stop()
        # Only Debezium's role may use the port, and only with its password.
        (self._folder / "cluster" / "pg_hba.conf").write_text(
            f"local all all trust\n"
            f"host {DATABASE} {ROLE} 127.0.0.1/32 scram-sha-256\n"
            f"host replication {ROLE} 127.0.0.1/32 scram-sha-256\n"
        )
        self._server = Postgres(
            self._folder,
            settings={
                "wal_level": "logical",
                "listen_addresses": "127.0.0.1",
                "port": str(self.port),
            },
        )
        self._server.start()

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement in a transaction of its own, as the owner of the database; return its rows."""
        assert self._server is not None
        connection = psycopg2.connect(
            host=str(self._server.socket_dir),
            port=self._server.port,
            user=ADMIN,
            dbname=DATABASE,
        )
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop the server. Safe to repeat."""
        if self._server is not None:
            self._server.stop()


class Connect:
    """Kafka Connect, standalone, with one connector of Debezium, from a database to the stack's Kafka.

    Events are JSON without Kafka Connect's schemas.
    """

    def __init__(
        self, folder: Path, database: SourceDatabase, kafka: Mapping[str, str], *, tables: str
    ) -> None:
        """`kafka`: librdkafka's settings for the broker. `tables`: those to capture, with their schema."""
        self.port = free_port()
        self._folder = folder
        self._database = database
        self._kafka = kafka
        self._tables = tables
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start Kafka Connect, and wait until the connector's task runs. Raises SettingsError if it does not."""
        plugin = fetch_connector(cache_folder() / f"debezium-postgres-{DEBEZIUM_VERSION}")
        plugins = self._folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        (plugins / "debezium").symlink_to(plugin)
        worker, connector = self._folder / "worker.properties", self._folder / "shop.properties"
        # They contain passwords.
        write_private(worker, _properties(self._worker(plugins)))
        write_private(connector, _properties(self._connector()))
        self._process = ChildProcess(
            [
                find_java(),
                f"-Xmx{_HEAP_MB}m",
                *COMPILES_LITTLE.split(),
                "-cp",
                f"{default_jar_folder()}/*",
                "org.apache.kafka.connect.cli.ConnectStandalone",
                worker,
                connector,
            ],
            name="Kafka Connect",
            log_path=self._folder / "connect.log",
            env=base_environment(),
            cwd=self._folder,
        )
        wait_until(
            self._runs, deadline_s=_START_S, what="Debezium's connector", process=self._process
        )

    def stop(self) -> None:
        """Stop Kafka Connect. Safe to repeat."""
        if self._process is not None:
            self._process.stop(grace_s=20.0)
            self._process = None

    def _runs(self) -> bool:
        with suppress(OSError, ValueError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", f"/connectors/{CONNECTOR}/status")
                status = json.loads(connection.getresponse().read())
            finally:
                connection.close()
            return [task["state"] for task in status.get("tasks", ())] == ["RUNNING"]
        return False

    def _worker(self, plugins: Path) -> dict[str, str]:
        login = {
            "security.protocol": self._kafka["security.protocol"],
            "sasl.mechanism": self._kafka["sasl.mechanisms"],
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{self._kafka["sasl.username"]}" password="{self._kafka["sasl.password"]}";'
            ),
        }
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._kafka["bootstrap.servers"],
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.path": str(plugins),
            "plugin.discovery": "service_load",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "key.converter": json_converter,
            "key.converter.schemas.enable": "false",
            "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
            **login,
            **{f"producer.{name}": value for name, value in login.items()},
        }

    def _connector(self) -> dict[str, str]:
        return {
            "name": CONNECTOR,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._database.port),
            "database.user": ROLE,
            "database.password": self._database.password,
            "database.dbname": DATABASE,
            "plugin.name": "pgoutput",
            "publication.name": "shop",
            "publication.autocreate.mode": "disabled",
            "topic.prefix": CONNECTOR,
            "table.include.list": self._tables,
            # By default, Debezium skips TRUNCATE.
            "skipped.operations": "none",
        }


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
