"""A session with a PostgreSQL server. Every wait is bounded, and every error becomes one that an output can raise.

The server enforces the bounds if it can (lock_timeout, statement_timeout, idle_in_transaction_session_timeout). The
client enforces the others: a server that is frozen does not answer, and TCP alone would wait for it indefinitely.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from tallystick.connections.postgres import PostgresSettings
from tallystick.errors import (
    OutputBusy,
    OutputRefused,
    OutputUnavailable,
    SettingsError,
    TallystickError,
)

# The longest time that a publisher holds its locks if it is frozen between two statements.
IDLE_S = 60
# The time that the server has beyond its own timeout before the client closes the connection.
GRACE_S = 15.0
TEXT_MAX = 500
Query = sql.SQL | sql.Composed
Values = Sequence[Any] | Mapping[str, Any]
# Texts for a wrong user, password or database if libpq gives no SQLSTATE (it gives none while connecting).
_WRONG_SETTINGS = ("authentication failed", "no pg_hba.conf entry", "does not exist", "certificate")


class Session:
    """A connection in autocommit mode, with explicit transactions.

    `where` names the table and the connection in messages.
    """

    def __init__(self, settings: PostgresSettings, *, output: str, where: str) -> None:
        self.settings, self.output, self.where = settings, output, where
        self._connection = psycopg.connect(
            **settings.client_options(),
            connect_timeout=settings.connect_timeout_s,
            target_session_attrs="read-write",
            keepalives=1,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=60_000,
            client_encoding="UTF8",
            autocommit=True,
            prepare_threshold=None,
        )
        for name, value in (
            ("lock_timeout", f"{settings.lock_timeout_s}s"),
            ("statement_timeout", f"{settings.statement_timeout_s}s"),
            ("idle_in_transaction_session_timeout", f"{IDLE_S}s"),
            ("timezone", "UTC"),
        ):
            self.run("settings", sql.SQL("SELECT set_config(%s, %s, false)"), (name, value))

    @property
    def usable(self) -> bool:
        """False if the connection is lost or closed."""
        return not self._connection.closed and not self._connection.broken

    def close(self) -> None:
        """Close the connection. If a transaction is open, the server rolls it back. Safe to repeat."""
        self._connection.close()

    # ------------------------------------------------------------ statements

    def run(self, step: str, query: Query, values: Values | None = None) -> psycopg.Cursor[Any]:
        """Send one statement and wait for its end. `step` names the statement: tests stop a publisher at this name."""
        del step
        with self._bounded():
            return self._connection.execute(query, values)

    def one(self, step: str, query: Query, values: Values | None = None) -> Any:
        """Return the first row of a result; None if it has no rows."""
        return self.run(step, query, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block in one transaction: all of it is committed, or nothing.

        If the commit fails, its outcome is known only if the error came from the server.
        """
        self.run("begin", sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"))
        try:
            # The ledger records this commit afterwards, so it must outlive a crash of the server with any configuration.
            self.run(
                "durable",
                sql.SQL(
                    "SELECT set_config('synchronous_commit', 'on', true)"
                    " WHERE current_setting('synchronous_commit') = 'off'"
                ),
            )
            yield
            ended = self.run("commit", sql.SQL("COMMIT")).statusmessage
            if ended != "COMMIT":
                raise OutputUnavailable(
                    f"output {self.output}: {self.where} answered COMMIT with {ended}.",
                    hint="wait for the next try, which does it again. Nothing was changed.",
                )
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Undo the open transaction. Safe to repeat: without one, or without a connection, nothing happens."""
        if self.usable and self._connection.info.transaction_status:
            with suppress(psycopg.Error):
                self.run("rollback", sql.SQL("ROLLBACK"))

    def copy(self, query: Query, rows: Iterable[Sequence[Any]]) -> None:
        """Copy some rows with one COPY.

        The rows must be in memory already: a slow source would keep the COPY open while it waits.
        """
        with self._bounded(), self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Close the connection if the server does not answer within its own statement timeout plus GRACE_S."""
        try:
            ours = socket.socket(fileno=_duplicate(self._connection))
        except (psycopg.Error, OSError):
            yield  # the connection is gone: the call itself raises the error
            return
        disconnect = threading.Timer(
            self.settings.statement_timeout_s + GRACE_S, _shut_down, args=(ours,)
        )
        disconnect.daemon = True
        disconnect.start()
        try:
            yield
        finally:
            disconnect.cancel()
            ours.close()


# ---------------------------------------------------------------- errors


@contextmanager
def translated(what: str, where: str, secrets: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Turn psycopg's errors into tallystick's, with the output, the interval, the cause and what to do next."""
    try:
        yield
    except psycopg.Error as error:
        failure = error_of(what, where, error, secrets())
    else:
        return
    # Raised outside the handler: if it were raised inside, it would keep psycopg's error as its context.
    raise failure


def error_of(
    what: str, where: str, error: psycopg.Error, secrets: Sequence[str]
) -> TallystickError:
    """Return tallystick's error for an error of psycopg."""
    text, state = _text(error, secrets), error.sqlstate or ""
    message = f"{what}: {where}: {text}."
    if isinstance(error, errors.InsufficientPrivilege):
        return SettingsError(
            message,
            hint="grant the missing right; docs/reference/outputs.md lists the rights that the user needs.",
        )
    if not state and any(one in text for one in _WRONG_SETTINGS):
        return SettingsError(message, hint="correct the connection's settings.")
    # Classes of SQLSTATE: data, integrity, the check of a view, syntax and names, an error that a trigger raises.
    # If the driver itself refuses data (a NUL in a text), there is no SQLSTATE.
    if state[:2] in ("22", "23", "44", "42", "P0") or isinstance(
        error, psycopg.DataError | psycopg.IntegrityError
    ):
        return OutputRefused(
            message,
            hint="correct the table and clear `publish`; or fix the job and clear `plan`. Nothing of it was "
            "written, and the tables are committed.",
        )
    if isinstance(error, errors.LockNotAvailable):
        return OutputUnavailable(
            message,
            hint="wait for the next try, or find out who holds a lock on the table (pg_locks).",
        )
    return OutputUnavailable(
        message,
        hint="wait for the next try, which reads from the database whether it was written; if it persists, check the "
        "server.",
    )


def busy(what: str, why: str) -> OutputBusy:
    """Return OutputBusy: another publisher has the output, or has published a newer generation."""
    return OutputBusy(
        f"{what}: {why}.",
        hint="do nothing: that publisher writes the same rows. Rows that are already written are not written again.",
    )


def _text(error: psycopg.Error, secrets: Sequence[str]) -> str:
    """Return the message of the server or the driver in one line, without secrets."""
    parts = [error.diag.message_primary or str(error) or type(error).__name__]
    if error.diag.message_primary and error.diag.message_detail:
        parts.append(error.diag.message_detail)
    if error.diag.message_primary and error.diag.context:
        parts.append(error.diag.context)
    text = "; ".join(" ".join(part.split()) for part in parts).rstrip(".")
    for secret in secrets:
        text = text.replace(secret, "***")
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " ..."


def _duplicate(connection: psycopg.Connection[Any]) -> int:
    return os.dup(connection.fileno())


def _shut_down(ours: socket.socket) -> None:
    with suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
