"""One session with a PostgreSQL server: every wait is bounded, every error says what it means to an output.

Bounds are the server's where it can keep them (lock_timeout, statement_timeout, idle_in_transaction_session_timeout) and
ours where it cannot: a server that is frozen answers nothing, and TCP alone would wait for it for ever.
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

# A publisher that is frozen between two statements holds its locks for no longer.
IDLE_S = 60
# What the server is given beyond its own bound before we hang up.
GRACE_S = 15.0
TEXT_MAX = 500
Query = sql.SQL | sql.Composed
Values = Sequence[Any] | Mapping[str, Any]
# What names a wrong user, password or database where libpq gives no SQLSTATE (it gives none while connecting).
_WRONG_SETTINGS = ("authentication failed", "no pg_hba.conf entry", "does not exist", "certificate")


class Session:
    """A connection in autocommit, with transactions by name. `where` is how messages call the table and connection."""

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
        """False once the connection is lost or closed."""
        return not self._connection.closed and not self._connection.broken

    def close(self) -> None:
        """Hang up; a transaction that is open is rolled back by the server. Safe to repeat."""
        self._connection.close()

    # ------------------------------------------------------------ statements

    def run(self, step: str, query: Query, values: Values | None = None) -> psycopg.Cursor[Any]:
        """Send one statement and wait for its end. `step` is its name, by which tests stop a publisher there."""
        del step
        with self._bounded():
            return self._connection.execute(query, values)

    def one(self, step: str, query: Query, values: Values | None = None) -> Any:
        """The first row of an answer; None where there is none."""
        return self.run(step, query, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. An error at its end is an answer only where the server gave it; else the outcome is unknown."""
        self.run("begin", sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"))
        try:
            # What the ledger is told of afterwards must outlive a crash of the server, whatever its configuration says.
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
                    hint="nothing: nothing was changed, and the next try does it again.",
                )
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Undo the open transaction. Safe to repeat: where there is none, or no connection, nothing happens."""
        if self.usable and self._connection.info.transaction_status:
            with suppress(psycopg.Error):
                self.run("rollback", sql.SQL("ROLLBACK"))

    def copy(self, query: Query, rows: Iterable[Sequence[Any]]) -> None:
        """One COPY of some rows, which are at hand: what reads them from afar must not stand still inside it."""
        with self._bounded(), self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Hang up on a server that says nothing for longer than it may take by its own settings."""
        try:
            ours = socket.socket(fileno=_duplicate(self._connection))
        except (psycopg.Error, OSError):
            yield  # no connection any more: the call itself says so
            return
        hang_up = threading.Timer(
            self.settings.statement_timeout_s + GRACE_S, _shut_down, args=(ours,)
        )
        hang_up.daemon = True
        hang_up.start()
        try:
            yield
        finally:
            hang_up.cancel()
            ours.close()


# ---------------------------------------------------------------- what errors mean


@contextmanager
def told(what: str, where: str, secrets: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Turn psycopg's errors into ours: what happened to which output and interval, and what to do."""
    try:
        yield
    except psycopg.Error as error:
        found = in_words(what, where, error, secrets())
    else:
        return
    # Outside the handler: an error keeps the one that was handled.
    raise found


def in_words(
    what: str, where: str, error: psycopg.Error, secrets: Sequence[str]
) -> TallystickError:
    """The error of ours that one of psycopg's stands for."""
    text, state = _text(error, secrets), error.sqlstate or ""
    told = f"{what}: {where}: {text}."
    if isinstance(error, errors.InsufficientPrivilege):
        return SettingsError(
            told,
            hint="grant it; docs/reference/outputs.md lists the rights that the user needs.",
        )
    if not state and any(one in text for one in _WRONG_SETTINGS):
        return SettingsError(told, hint="mend the connection's settings.")
    # Classes of SQLSTATE: data, integrity, a view's check, syntax and names, a trigger's own error.
    # The driver refuses some data itself (a NUL in a text), without a state.
    if state[:2] in ("22", "23", "44", "42", "P0") or isinstance(
        error, psycopg.DataError | psycopg.IntegrityError
    ):
        return OutputRefused(
            told,
            hint="nothing of it is there, and the tables are committed. Mend the table and clear `publish`; or mend "
            "the job and clear `plan`.",
        )
    if isinstance(error, errors.LockNotAvailable):
        return OutputUnavailable(
            told, hint="it is tried again; find out who holds a lock on the table (pg_locks)."
        )
    return OutputUnavailable(
        told,
        hint="nothing, if it passes: the database says whether it was written, and the next try asks it. Else check "
        "the server.",
    )


def busy(what: str, why: str) -> OutputBusy:
    """Another publisher is at work, or was."""
    return OutputBusy(
        f"{what}: {why}.",
        hint="nothing: it publishes what this one would have. What is there already is not written again.",
    )


def _text(error: psycopg.Error, secrets: Sequence[str]) -> str:
    """What the server or the driver says, in one line and without secrets."""
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
