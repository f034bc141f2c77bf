"""An HTTP proxy in front of a real S3 server that does to requests what networks and gateways do.

A fault says two things apart: how often, and when, the request reaches the server, and what the client is told.

    HttpFault(forward="once", answer="close")     it landed, and the reply is lost
    HttpFault(forward="once", answer=500)         it landed, and a gateway says 500
    HttpFault(forward="never", answer="close")    it never arrived
    HttpFault(forward="later", answer="hang")     it arrives when the test says so; the client waits in vain
    HttpFault(forward="twice")                    a gateway tried again: the client gets the second answer
    HttpFault(answer="cut")                       the answer breaks off in the middle of its body
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
# Hop-by-hop, or ours to say anew. `Expect` is answered here (BaseHTTPRequestHandler sends 100 Continue).
_NOT_FORWARDED = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFault:
    """What happens to one request; an `answer` that is a number is an HTTP status with `code` as S3's error code."""

    forward: Literal["never", "once", "twice", "later"] = "once"
    answer: Literal["upstream", "cut", "close", "reset", "hang"] | int = "upstream"
    code: str = ""


NO_FAULT = HttpFault()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as it came in, and the status of each answer that the server gave to it so far."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    upstream_statuses: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the server."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """A proxy on a free port of 127.0.0.1, from `with` to its end. Requests beyond the scripted ones pass unharmed.

    The first requests of `method` (None: of any) meet the faults in order; an endless iterable spares none. `seen`
    holds every request, unless `remember` is False: a proxy of many hours would hold all that was ever written.
    A subclass may choose each fault by its request (`choose`), and be there when a request is sent on (`forward`).
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
        """What to give a client as its endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def seen(self) -> Sequence[Seen]:
        """Every request so far, in order of arrival."""
        with self._lock:
            return tuple(self._seen)

    def release(self) -> int:
        """Forward the oldest delayed request now; return the server's status. IndexError when there is none."""
        return self.forward(self._later.popleft()).status

    def choose(self, seen: Seen) -> HttpFault:
        """What this request meets: the next fault of the script. Called under the proxy's lock, once per request."""
        return next(self._faults, NO_FAULT) if self._method in {None, seen.method} else NO_FAULT

    def handle(self, seen: Seen, reply: Handler) -> None:
        """Meet one request with its fault."""
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
                # The client gives up by its own timeout; the handler must not outlive the proxy.
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
        """Send one request to the server, and return its answer, which the client does not have yet."""
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
        """A client that goes away in the middle is what these tests are about, and no news."""


class Handler(BaseHTTPRequestHandler):
    """One client's connection."""

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
        """Tests read `seen`, not a log."""

    def pass_on(self, reply: Reply, *, cut: bool = False) -> None:
        """Send an answer to the client, or the first half of its body."""
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
        """End the connection without a word: in order (FIN), or as a crashed peer does it (RST)."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _error_reply(status: int, code: str) -> Reply:
    xml = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>a test wanted it</Message></Error>'
    body = xml.encode() if code else b""
    return Reply(status=status, headers=[("Content-Type", "application/xml")], body=body)
