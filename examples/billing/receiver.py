"""The receiver of an example's HTTP calls: a ledger that is written once per idempotency key, whatever is called twice.

It runs in the runner's process, on a free port of the loopback interface, as long as the runner does. What it promises is
what draft-ietf-httpapi-idempotency-key-header asks for: a key that it knows is answered as before and acts no more; one
that comes with another body is refused (422).
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.billing.check import Posting

_HEADERS = "Tallystick-"
_SILENT_S = 120.0


class Receiver:
    """A ledger behind POST; `postings` are what it acted on, `calls` counts what came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {}
        self._postings: list[Posting] = []
        self._calls = 0
        self._server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"owner": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def postings(self) -> tuple[Posting, ...]:
        """What it acted on, in that order."""
        with self._lock:
            return tuple(self._postings)

    @property
    def calls(self) -> int:
        """How many calls came, those that it knew already too."""
        with self._lock:
            return self._calls

    def take(self, key: str, body: bytes, posting: Posting) -> int:
        """Act once per key; the status to answer."""
        with self._lock:
            self._calls += 1
            if key in self._known:
                return 200 if self._known[key] == body else 422
            self._known[key] = body
            self._postings.append(posting)
            return 201


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _SILENT_S
    owner: Receiver

    def do_POST(self) -> None:
        """Take one row."""
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
        self.send_response(self.owner.take(key, body, posting))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """The example tells its own story."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A publisher that is killed goes without a word: no news here."""
