"""A database of the embedded PostgreSQL for each test, and outputs into its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tallystick.connections.postgres import PostgresSettings
from tallystick.outputs.port import Publication, Scope
from tallystick.outputs.postgres import PostgresOutput
from tallystick.outputs.postgres.session import Session
from tallystick.outputs.postgres.table import PostgresTable
from tallystick_devstack.postgres import Postgres
from unit.outputs.publications import SCOPE

_numbers = count(1)
EVENTS = "CREATE TABLE public.events (k text PRIMARY KEY, n bigint)"


class Database:
    """A new database; `run` executes statements in it as another client."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute and commit one statement, and return its rows."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = psycopg.connect(
                host=str(self.server.socket_dir),
                dbname=self.name,
                user="postgres",
                autocommit=True,
                connect_timeout=10,
            )
        cursor = self._connection.execute(sql.SQL(statement), values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def settings(self, **how: Any) -> PostgresSettings:
        """Return the settings with which an output connects."""
        words = {"host": str(self.server.socket_dir), "dbname": self.name, "user": "postgres"}
        return PostgresSettings(**{**words, "lock_timeout_s": 20, **how})

    def output(
        self,
        *,
        into: str = "public.events",
        key: tuple[str, ...] = ("k",),
        name: str = "feed",
        **how: Any,
    ) -> PostgresTable:
        """Return an output that has not begun."""
        declared = PostgresOutput(name=name, table="events", into=into, key=key)
        return PostgresTable(declared, lambda: self.settings(**how))

    def begun(self, scope: Scope = SCOPE, **how: Any) -> PostgresTable:
        """Return an output that has begun."""
        output = self.output(**how)
        try:
            output.begin(scope)
        except BaseException:
            output.close()
            raise
        return output

    def publish(self, *publications: Publication, **how: Any) -> None:
        """Publish these, one after the other, as the use case does."""
        output = self.begun(**how)
        for publication in publications:
            output.prepare(publication)
            output.publish(publication, resumed=False)
        output.close()

    def rows(self, table: str = "public.events") -> list[dict[str, Any]]:
        """Return the rows of a table, ordered by their first column."""
        names = self.run(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            table,
        )
        columns = [name for (name,) in names]
        return [
            dict(zip(columns, row, strict=True))
            for row in self.run(f"SELECT * FROM {table} ORDER BY 1, 2")
        ]


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Run one server for the tests that do not kill it."""
    running = Postgres(tmp_path_factory.mktemp("postgres"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """Create an empty database with the table `events`."""
    created = fresh(server)
    yield created
    created.close()


def fresh(server: Postgres) -> Database:
    """Create an empty database with the table `events`."""
    name = f"test_{next(_numbers)}"
    server.create_database(name)
    created = Database(server, name)
    created.run(EVENTS)
    return created


def at_step(
    output: PostgresTable, step: str, then: Callable[[], None], *, nth: int = 1, after: bool = False
) -> list[str]:
    """Call `then` right before (or after) the nth statement of a name. Return the list of all executed statements."""
    session = output._connected()
    ran: list[str] = []
    left = nth

    def run(name: str, *of: Any) -> Any:
        nonlocal left
        ran.append(name)
        left -= name == step
        due = name == step and left == 0
        if due and not after:
            then()
        result = Session.run(session, name, *of)
        if due and after:
            then()
        return result

    session.run = run  # type: ignore[method-assign]
    return ran
