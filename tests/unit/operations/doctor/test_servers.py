"""Registries and databases: an answer is ok, and each kind of refusal is an error with what to do."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest

from tallystick.connections.postgres import PostgresSettings
from tallystick.connections.registry import RegistrySettings
from tallystick.errors import RegistryRefused
from tallystick.operations.doctor.check import State
from tallystick.operations.doctor.servers import ANSWER_S, postgres_checks, registry_checks

PASSWORD = "not-to-be-seen"


class Registry(BaseHTTPRequestHandler):
    """A registry that lists two subjects for one password."""

    def do_GET(self) -> None:
        allowed = (self.headers["Authorization"] or "").startswith("Bearer right")
        body = b'["a-value", "b-value"]' if allowed else b"{}"
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def registry(url: str, token: str) -> Any:
    return lambda *_: RegistrySettings(urls=(url,), bearer_token=token)


def test_a_registry_that_lists_its_subjects_is_ok(url: str) -> None:
    (check,) = registry_checks("default", registry(url, "right"))
    assert (check.area, check.name, check.state) == ("registry", "default", "ok")
    assert check.found == f"{url} has 2 subjects"


def test_a_registry_that_refuses_or_is_silent_is_an_error(url: str, closed_port: int) -> None:
    with pytest.raises(RegistryRefused, match="answered 401"):
        list(registry_checks("default", registry(url, PASSWORD)))
    silent = f"http://127.0.0.1:{closed_port}"
    (check,) = registry_checks("default", registry(silent, PASSWORD))
    assert (check.state, check.fix[:27]) == ("error", "check that the server runs,")


# ---------------------------------------------------------------- PostgreSQL


def database(**how: Any) -> Any:
    words = {"host": "127.0.0.1", "dbname": "bills", "user": "me", "password": PASSWORD, **how}
    return lambda *_: PostgresSettings(**words)


class FakeSession:
    """A session whose login ends in `error`, if one is given."""

    error: Exception | None = None
    settings: list[PostgresSettings]
    closed = 0

    def __init__(self, settings: PostgresSettings, **_: object) -> None:
        type(self).settings.append(settings)
        if self.error is not None:
            raise self.error

    def one(self, *_: object) -> tuple[int]:
        return (1,)

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[FakeSession]:
    made = type("Made", (FakeSession,), {"settings": []})
    monkeypatch.setattr("tallystick.outputs.postgres.session.Session", made)
    return made


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (None, "ok", "bills on 127.0.0.1:5432 accepts user me"),
        (
            psycopg.OperationalError(f'password authentication failed for user "me" {PASSWORD}'),
            "error",
            "password authentication failed",
        ),
        (psycopg.OperationalError("timeout expired"), "error", "timeout expired"),
        (psycopg.errors.AdminShutdown("the server stops"), "error", "the server stops"),
        (ValueError("of a library"), "error", "ValueError"),
    ],
)
def test_a_database_that_accepts_the_login_is_ok(
    error: Exception | None, state: State, text: str, session: type[FakeSession]
) -> None:
    session.error = error
    (check,) = postgres_checks("main", database())
    assert (check.area, check.name, check.state) == ("outputs", "postgres main", state)
    assert text in check.found
    assert PASSWORD not in check.found + check.fix
    assert "next try" not in check.fix
    (settings,) = session.settings
    assert settings.connect_timeout_s == settings.statement_timeout_s == ANSWER_S
    assert session.closed == (error is None)


def test_a_server_that_is_not_there_is_an_error(closed_port: int) -> None:
    (check,) = postgres_checks("main", database(port=closed_port))
    assert check.state == "error"
    assert check.fix.startswith("check that the server runs")


def test_without_the_client_library_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    (check,) = postgres_checks("main", database())
    assert check.state == "error"
    assert "tallystick[postgres]" in check.fix
