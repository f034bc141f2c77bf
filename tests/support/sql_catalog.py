"""An Iceberg SQL catalog in a database of a test, and a publisher of registrations that kills itself at a step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from support.postgres_tables import Database
from tallystick.connections.postgres import PostgresSettings
from tallystick.outputs.postgres.session import Session
from tallystick.outputs.registrations import SqlRegistration
from tallystick.outputs.registrations.port import Pointer
from tallystick.outputs.registrations.sql import SqlRegistrar

DECLARED = SqlRegistration(name="company", catalog="company", namespace="small")
# The statements of one registration of two tables in order.
CREATING = (
    "find the catalog",
    "begin",
    "durable",
    "wait to create",
    "create tables",
    "create namespaces",
    "commit",
)
READING = ("find the catalog", "find types")
DECIDING = ("begin", "durable", "read pointers", "create the namespace")
FIRST = (*CREATING, "find types", *DECIDING, "create a pointer", "create a pointer", "commit")
NEXT = (*READING, *DECIDING, "advance a pointer", "advance a pointer", "commit")


def pointers(number: int, *, tables: tuple[str, ...] = ("events", "per_kind")) -> list[Pointer]:
    """Return the pointers of the version whose metadata files have this number."""
    return [
        Pointer(
            table=name,
            uri=f"s3://lakes/small/tables/{name}/metadata/{number:05d}-a{number}.metadata.json",
            columns=(),
        )
        for name in tables
    ]


def uris(number: int) -> dict[str, str]:
    """Return the pointers of a version by table."""
    return {one.table: one.uri for one in pointers(number)}


def registrar_of(database: Database, **how: Any) -> SqlRegistrar:
    """Return a registrar that has not connected."""
    return SqlRegistrar(DECLARED, lambda: database.settings(**how))


def stored(database: Database, *, namespace: str = "small") -> dict[str, str]:
    """Return the pointers in the catalog by table; none if there is no catalog."""
    if not database.run("SELECT to_regclass('iceberg_tables') IS NOT NULL")[0][0]:
        return {}
    rows = database.run(
        "SELECT table_name, metadata_location FROM iceberg_tables"
        " WHERE catalog_name = 'company' AND table_namespace = %s",
        namespace,
    )
    return dict(rows)


def at_statement(
    registrar: SqlRegistrar, step: str, then: Callable[[], None], *, nth: int = 1
) -> list[str]:
    """Call `then` right before the nth statement of a name. Return the list of all executed statements."""
    session = registrar._connected()
    ran: list[str] = []
    left = nth

    def run(name: str, *of: Any) -> Any:
        nonlocal left
        ran.append(name)
        left -= name == step
        if name == step and left == 0:
            then()
        return Session.run(session, name, *of)

    session.run = run  # type: ignore[method-assign]
    return ran


def main(host: str, database: str, number: int, after: int) -> None:
    """Register a version, and die after so many statements."""
    registrar = SqlRegistrar(
        DECLARED, lambda: PostgresSettings(host=host, dbname=database, user="postgres")
    )
    registrar._connected()
    real, left = Session.run, after

    def run(session: Session, name: str, *of: Any) -> Any:
        nonlocal left
        result = real(session, name, *of)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Session.run = run  # type: ignore[method-assign]
    registrar.register(pointers(number))
