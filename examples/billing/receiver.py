"""The receiver of an example's HTTP calls: a ledger with one line per idempotency key, also if a call is repeated.

It runs in the runner's process, on a free port of the loopback interface, as long as the runner does. It behaves as
draft-ietf-httpapi-idempotency-key-header requires: a known key gets a success and has no further effect; a known key with
another body is refused (422).
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.billing.check import Posting

_HEADERS = "Tallystick-"
_IDLE_S = 120.0


class Receiver:
    """A ledger behind POST; `postings` are its lines, `calls` counts all calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {}
        self._postings: list[Posting] = []
        self._calls = 0
        self._server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"owner": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def postings(self) -> tuple[Posting, ...]:
        """The lines of the ledger, in order."""
        with self._lock:
            return tuple(self._postings)

    @property
    def calls(self) -> int:
        """The number of calls, including repeated calls."""
        with self._lock:
            return self._calls

    def accept(self, key: str, body: bytes, posting: Posting) -> int:
        """Write one line per key; return the status of the answer."""
        with self._lock:
            self._calls += 1
            if key in self._known:
                return 200 if self._known[key] == body else 422
            self._known[key] = body
            self._postings.append(posting)
            return 201


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    owner: Receiver

    def do_POST(self) -> None:
        """Accept one row."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = json.loads(self.headers["Idempotency-Key"])  # a text in quotes
        corrects = self.headers.get(f"{_HEADERS}Corrects")
        posting = Posting(
            account=self.path.strip("/"),
            key=key,
            row=json.loads(body),
            row_key=self.headers[f"{_HEADERS}Row-Key"],
            operation=self.headers[f"{_HEADERS}Operation"],
            interval=self.headers[f"{_HEADERS}Interval"],
            generation=int(self.headers[f"{_HEADERS}Generation"]),
            corrects=None if corrects is None else int(corrects),
        )
        self.send_response(self.owner.accept(key, body, posting))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the example has its own output."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a publisher that is killed does not close its connection."""
