"""An HTTP proxy in front of a real S3 server that injects the faults of networks and gateways.

A fault has two independent parts: how often and when the request reaches the server, and what the client gets.

    HttpFault(forward="once", answer="close")     the request landed, and the response is lost
    HttpFault(forward="once", answer=500)         the request landed, and a gateway responds 500
    HttpFault(forward="never", answer="close")    the request never arrived
    HttpFault(forward="later", answer="hang")     it arrives when the test releases it; the client gets no response
    HttpFault(forward="twice")                    a gateway sent it again: the client gets the second response
    HttpFault(answer="cut")                       the response breaks off in the middle of its body
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

_UPSTREAM_TIMEOUT_S = 30.0
# Hop-by-hop headers, and headers that the proxy sets itself. BaseHTTPRequestHandler handles `Expect` (100 Continue).
_NOT_FORWARDED = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFault:
    """The fault of one request. If `answer` is a number, it is an HTTP status, with `code` as S3's error code."""

    forward: Literal["never", "once", "twice", "later"] = "once"
    answer: Literal["upstream", "cut", "close", "reset", "hang"] | int = "upstream"
    code: str = ""


NO_FAULT = HttpFault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One received request, and the statuses of the server's responses to it so far."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    upstream_statuses: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response of the server."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """A proxy on a free port of 127.0.0.1, as a context manager.

    The faults apply, in order, to the first requests of `method` (None means any method). Later requests have no fault.
    If `faults` is endless, every request has one. `seen` has every request, unless `remember` is False: a proxy that runs
    for hours would keep every written body. A subclass can override `choose`, which chooses the fault of a request, and
    `forward`, which sends a request to the server.
    """

    def __init__(
        self,
        upstream_url: str,
        faults: Iterable[HttpFault] = (),
        *,
        method: str | None = "PUT",
        remember: bool = True,
    ) -> None:
        parts = urlsplit(upstream_url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{upstream_url!r} names no host and port")
        self._upstream = (parts.hostname, parts.port)
        self._faults = iter(faults)
        self._method = method
        self._remember = remember
        self._lock = threading.Lock()
        self._seen: list[Seen] = []
        self._later: deque[Seen] = deque()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The endpoint URL for a client."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def seen(self) -> Sequence[Seen]:
        """All requests so far, in order of arrival."""
        with self._lock:
            return tuple(self._seen)

    def release(self) -> int:
        """Forward the oldest delayed request now; return the server's status. Raises IndexError if there is none."""
        return self.forward(self._later.popleft()).status

    def choose(self, seen: Seen) -> HttpFault:
        """Return the fault of a request: the next one of the script. Called under the proxy's lock, once per request."""
        return next(self._faults, NO_FAULT) if self._method in {None, seen.method} else NO_FAULT

    def handle(self, seen: Seen, reply: Handler) -> None:
        """Handle one request with its fault."""
        with self._lock:
            if self._remember:
                self._seen.append(seen)
            fault = self.choose(seen)
            if fault.forward == "later":
                self._later.append(seen)
        answered: Reply | None = None
        for _ in range({"once": 1, "twice": 2}.get(fault.forward, 0)):
            answered = self.forward(seen)
        match fault.answer:
            case "hang":
                # The client stops at its own timeout. The handler must end with the proxy.
                self._closing.wait()
                reply.drop(reset=False)
            case "close" | "reset":
                reply.drop(reset=fault.answer == "reset")
            case "upstream" | "cut":
                if answered is None:
                    raise ValueError(f"{fault} has no answer of the server to pass on")
                reply.pass_on(answered, cut=fault.answer == "cut")
            case int(status):
                reply.pass_on(_error_reply(status, fault.code))

    def forward(self, seen: Seen) -> Reply:
        """Send one request to the server and return the response. The client does not have it yet."""
        upstream = http.client.HTTPConnection(*self._upstream, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            headers = {
                name: value
                for name, value in seen.headers.items()
                if name.lower() not in _NOT_FORWARDED
            }
            headers["Content-Length"] = str(len(seen.body))
            upstream.request(seen.method, seen.path, seen.body, headers)
            answer = upstream.getresponse()
            body = answer.read()
            seen.upstream_statuses.append(answer.status)
            return Reply(status=answer.status, headers=answer.getheaders(), body=body)
        finally:
            upstream.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of the connection: tests close connections on purpose."""


class Handler(BaseHTTPRequestHandler):
    """The handler of one client's connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        seen = Seen(
            method=self.command,
            path=self.path,
            headers=dict(self.headers.items()),
            body=body,
            upstream_statuses=[],
        )
        self.server.proxy.handle(seen, self)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: tests read `seen`."""

    def pass_on(self, reply: Reply, *, cut: bool = False) -> None:
        """Send a response to the client; with `cut`, only the first half of its body."""
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in _NOT_FORWARDED:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: len(reply.body) // 2] if cut else reply.body)
        if cut:
            self.close_connection = True

    def drop(self, *, reset: bool) -> None:
        """Close the connection without a response: with a FIN, or with a RST as a crashed peer does."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _error_reply(status: int, code: str) -> Reply:
    xml = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected by a test</Message></Error>'
    body = xml.encode() if code else b""
    return Reply(status=status, headers=[("Content-Type", "application/xml")], body=body)
