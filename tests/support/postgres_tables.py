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
from unit.outputs.sendings import SCOPE

_numbers = count(1)
EVENTS = "CREATE TABLE public.events (k text PRIMARY KEY, n bigint)"


class Database:
    """A database of its own; `run` is what anybody else does in it."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement, committed; its rows."""
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
        """Hang up."""
        if self._connection is not None:
            self._connection.close()

    def settings(self, **how: Any) -> PostgresSettings:
        """How an output reaches it."""
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
        """An output that has not begun."""
        declared = PostgresOutput(name=name, table="events", into=into, key=key)
        return PostgresTable(declared, lambda: self.settings(**how))

    def begun(self, scope: Scope = SCOPE, **how: Any) -> PostgresTable:
        """An output that has begun."""
        output = self.output(**how)
        try:
            output.begin(scope)
        except BaseException:
            output.close()
            raise
        return output

    def published(self, *sendings: Publication, **how: Any) -> None:
        """Publish these, one after the other, as the use case does."""
        output = self.begun(**how)
        for one in sendings:
            output.prepare(one)
            output.publish(one, resumed=False)
        output.close()

    def rows(self, table: str = "public.events") -> list[dict[str, Any]]:
        """The rows of a table, by their first column."""
        names = self.run(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            table,
        )
        columns = [one[0] for one in names]
        return [
            dict(zip(columns, row, strict=True))
            for row in self.run(f"SELECT * FROM {table} ORDER BY 1, 2")
        ]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for the tests that do not kill it."""
    running = Postgres(tmp_path_factory.mktemp("postgres"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """An empty database with the table `events`."""
    made = fresh(server)
    yield made
    made.close()


def fresh(server: Postgres) -> Database:
    """An empty database with the table `events`."""
    name = f"test_{next(_numbers)}"
    server.create_database(name)
    made = Database(server, name)
    made.run(EVENTS)
    return made


def at_step(
    output: PostgresTable, step: str, then: Callable[[], None], *, nth: int = 1, after: bool = False
) -> list[str]:
    """Let something happen right before (or after) the nth statement of a name; the names of all that ran."""
    session = output._connected()
    ran: list[str] = []
    left = nth

    def run(name: str, *of: Any) -> Any:
        nonlocal left
        ran.append(name)
        left -= name == step
        now = name == step and left == 0
        if now and not after:
            then()
        done = Session.run(session, name, *of)
        if now and after:
            then()
        return done

    session.run = run  # type: ignore[method-assign]
    return ran
