"""A gate in front of the S3 server at which the demo kills a client: right before a write lands, or right after.

An HTTP proxy of this process. The victim is whoever holds the other end of the connection, found by its port, so what
dies is the very process that was writing, at the very moment that hurts most, and by a signal that nobody can catch.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import psutil

_UPSTREAM_TIMEOUT_S = 60.0
_DEATH_S = 10.0
# Hop-by-hop, or said anew by us.
_NOT_FORWARDED = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Kill the process that sends a PUT whose path fits `path`: `before` it reaches the server, or `after` it landed."""

    path: re.Pattern[str]
    when: Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What was killed, over which object."""

    pid: int
    command: str
    path: str


class Gate:
    """The proxy on a free port of 127.0.0.1, from `with` to its end. It passes everything but what a trap is set for."""

    def __init__(self, upstream_url: str) -> None:
        parts = urlsplit(upstream_url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{upstream_url!r} names no host and port")
        self._upstream = (parts.hostname, parts.port)
        self._lock = threading.Lock()
        self._trap: Trap | None = None
        self._kills: list[Kill] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """What to give a client as its endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def kills(self) -> tuple[Kill, ...]:
        """Every kill so far."""
        with self._lock:
            return tuple(self._kills)

    def set(self, trap: Trap) -> None:
        """Set a trap for one kill; it replaces one that is still set."""
        with self._lock:
            self._trap = trap

    def handle(self, handler: Handler, method: str, path: str, body: bytes) -> None:
        """Pass one request on, unless it walks into the trap: then its sender dies and gets no answer."""
        trap = self._take(method, path)
        if trap is not None and trap.when == "before":
            self._kill(handler.client_address, path)
            handler.close_connection = True
            return
        status, headers, answer = self.forward(method, path, body, dict(handler.headers.items()))
        if trap is not None:
            if status == 200:
                self._kill(handler.client_address, path)
                handler.close_connection = True
                return
            self.set(trap)  # this one did not land: wait for one that does
        handler.answer(status, headers, answer)

    def _take(self, method: str, path: str) -> Trap | None:
        with self._lock:
            trap = self._trap
            if trap is None or method != "PUT" or not trap.path.search(path):
                return None
            self._trap = None
            return trap

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send one request to the server; returns its status, headers and body."""
        upstream = http.client.HTTPConnection(*self._upstream, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            kept = {n: v for n, v in headers.items() if n.lower() not in _NOT_FORWARDED}
            kept["Content-Length"] = str(len(body))
            upstream.request(method, path, body, kept)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _kill(self, client: tuple[str, int], path: str) -> None:
        victim = holder_of(client)
        kill = Kill(pid=victim.pid, command=" ".join(victim.cmdline()), path=path)
        # Noted first: whoever sees the victim dead finds it among the kills.
        with self._lock:
            self._kills.append(kill)
        victim.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + _DEATH_S
        while _lives(victim) and time.monotonic() < deadline:
            time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def holder_of(client: tuple[str, int]) -> psutil.Process:
    """The process at the other end of a loopback connection; never this one."""
    for connection in psutil.net_connections(kind="tcp4"):
        if (
            connection.laddr
            and tuple(connection.laddr) == client
            and connection.pid not in (None, os.getpid())
        ):
            return psutil.Process(connection.pid)
    raise RuntimeError(f"nobody holds the connection from {client}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone in the middle is what this gate is for, and no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client, as the gate has it."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.gate.handle(self, self.command, self.path, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: object) -> None:
        """The demo tells its own story."""

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send the server's answer to the client."""
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _NOT_FORWARDED:
                self.send_header(name, value)
        # The length of an object stands in the answer to HEAD, which has no body.
        length = dict((n.lower(), v) for n, v in headers).get("content-length", str(len(body)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
