"""A receiver of HTTP calls on a real socket, with idempotency keys and faults.

It acts once per key and body, repeats its answer for a repeated key, and answers 422 to a key with another body (the
IETF's draft). `faults` maps the number of a call to its fault:

    500, 429, ...    answer that and do not act
    act then N       act, and answer N
    act then drop    act, and close the connection without an answer
    drop             close the connection without having acted
    twice            act, and answer twice on the same connection
    garbage          act, and answer with text that is not HTTP
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Step = Callable[[str, str], None]


@dataclass(frozen=True)
class Call:
    """One request: its key, its row, and all headers by their lower-case names."""

    key: str
    row: dict[str, Any]
    headers: dict[str, str]
    path: str
    method: str


@dataclass
class Endpoint:
    """The state of a receiver: its faults, every call, and the keys and bodies on which it acted, in order."""

    faults: dict[int, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"ok":true}'
    honours: bool = True
    step: Step = lambda what, key: None
    calls: list[Call] = field(default_factory=list)
    acted: list[tuple[str, bytes]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, key: str, body: bytes) -> int:
        """Act once per key, and return the status of the answer."""
        with self.lock:
            known = dict(self.acted)
            if self.honours and key in known:
                return 200 if known[key] == body else 422
            self.acted.append((key, body))
            return 200

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows on which it acted."""
        return [json.loads(body) for _, body in self.acted]

    @property
    def keys(self) -> list[str]:
        """The keys of all calls, in their order."""
        return [call.key for call in self.calls]


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def do_POST(self) -> None:
        """Act and answer, or do what the fault of this call requires."""
        endpoint = self.endpoint
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = json.loads(headers["idempotency-key"])  # a quoted string
        with endpoint.lock:
            fault = endpoint.faults.get(len(endpoint.calls), "")
            endpoint.calls.append(
                Call(
                    key=key,
                    row=json.loads(body),
                    headers=headers,
                    path=self.path,
                    method=self.command,
                )
            )
            endpoint.at_once += 1
            endpoint.most_at_once = max(endpoint.most_at_once, endpoint.at_once)
        endpoint.step("call", key)
        status = int(fault) if fault.isdigit() else 200
        if not fault.isdigit() and fault != "drop":
            status = endpoint.act(key, body)
        endpoint.step("acted", key)
        with endpoint.lock:
            endpoint.at_once -= 1
        self._answer(fault, status)

    do_PUT = do_PATCH = do_POST

    def _answer(self, fault: str, status: int) -> None:
        if fault in ("drop", "act then drop"):
            self.close_connection = True
            return
        if fault == "garbage":
            self.wfile.write(b"what?\r\n\r\n")
            self.close_connection = True
            return
        if fault.startswith("act then "):
            status = int(fault.rpartition(" ")[2])
        for _ in range(2 if fault == "twice" else 1):
            self.send_response(status)
            for name, value in {
                **self.endpoint.extra,
                "Content-Length": str(len(self.endpoint.body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(self.endpoint.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """A server that logs no error of a client that has disconnected."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the broken pipe of a publisher that was killed."""


@contextmanager
def receiver(
    endpoint: Endpoint, *, port: int = 0, certificate: Path | None = None
) -> Iterator[str]:
    """Serve on the loopback interface; yields the url."""
    server = Server(("127.0.0.1", port), type("Bound", (Handler,), {"endpoint": endpoint}))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
