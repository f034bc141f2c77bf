"""A proxy for the S3 server that kills a client directly before its write is applied, or directly after.

The HTTP proxy runs in this process. The victim is the process at the other end of the connection, found by its port. So
exactly the process that was writing dies, at the most critical moment, and by a signal that it cannot catch.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
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
# Hop-by-hop, or set by the proxy itself.
_NOT_FORWARDED = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRule:
    """Kills the sender of a PUT whose path matches `path`: `before` it reaches the server, or `after` it is applied."""

    path: re.Pattern[str]
    when: Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A process that was killed, and the object that it was writing."""

    pid: int
    command: str
    path: str


class KillProxy:
    """The proxy on a free port of 127.0.0.1, as a context manager. It forwards all requests that match no rule."""

    def __init__(self, upstream_url: str) -> None:
        parts = urlsplit(upstream_url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{upstream_url!r} names no host and port")
        self._upstream = (parts.hostname, parts.port)
        self._lock = threading.Lock()
        self._rule: KillRule | None = None
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
        """The endpoint URL for clients."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def kills(self) -> tuple[Kill, ...]:
        """All kills so far."""
        with self._lock:
            return tuple(self._kills)

    def set(self, rule: KillRule) -> None:
        """Set the rule for the next kill; it replaces a rule that is still set."""
        with self._lock:
            self._rule = rule

    def handle(self, handler: Handler, method: str, path: str, body: bytes) -> None:
        """Forward one request, unless it matches the rule: then kill its sender and send no answer."""
        rule = self._take(method, path)
        if rule is not None and rule.when == "before":
            self._kill(handler.connection, path)
            handler.close_connection = True
            return
        status, headers, answer = self.forward(method, path, body, dict(handler.headers.items()))
        if rule is not None:
            if status == 200:
                self._kill(handler.connection, path)
                handler.close_connection = True
                return
            self.set(rule)  # this request was not applied: wait for one that is
        handler.answer(status, headers, answer)

    def _take(self, method: str, path: str) -> KillRule | None:
        with self._lock:
            rule = self._rule
            if rule is None or method != "PUT" or not rule.path.search(path):
                return None
            self._rule = None
            return rule

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send one request to the server, and return its status, headers and body."""
        upstream = http.client.HTTPConnection(*self._upstream, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            forwarded = {n: v for n, v in headers.items() if n.lower() not in _NOT_FORWARDED}
            forwarded["Content-Length"] = str(len(body))
            upstream.request(method, path, body, forwarded)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _kill(self, connection: socket.socket, path: str) -> None:
        victim = peer_process(connection)
        kill = Kill(pid=victim.pid, command=" ".join(victim.cmdline()), path=path)
        # Recorded first: a caller that finds the victim dead also finds it in `kills`.
        with self._lock:
            self._kills.append(kill)
        victim.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + _DEATH_S
        while _is_alive(victim) and time.monotonic() < deadline:
            time.sleep(0.01)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def peer_process(connection: socket.socket) -> psutil.Process:
    """Return the process at the other end of a loopback connection; never this process.

    Both ends are compared: another process can have a connection from the same port to another one.
    """
    own, client = connection.getsockname(), connection.getpeername()
    for one in psutil.net_connections(kind="tcp4"):
        ends = (tuple(one.laddr), tuple(one.raddr))
        if ends == (client, own) and one.pid not in (None, os.getpid()):
            return psutil.Process(one.pid)
    raise RuntimeError(f"no process has the connection from {client} to {own}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: KillProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: this proxy exists to cut off clients."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client to the proxy."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.proxy.handle(self, self.command, self.path, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the demo has its own output."""

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send the server's answer to the client."""
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _NOT_FORWARDED:
                self.send_header(name, value)
        # The answer to HEAD has the length of the object, and no body.
        length = dict((n.lower(), v) for n, v in headers).get("content-length", str(len(body)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
