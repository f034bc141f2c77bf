"""Serves a simulated REST API on the loopback interface, with faults, and replaces spark-submit by a script."""

from __future__ import annotations

import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tallystick_devstack.testing.servers import free_port

Reply = tuple[int, dict[str, Any]]


@dataclass
class RestServer:
    """An API: `answer` gets the method, the path, the query and the JSON body.

    `faults`: what the next requests get, as (status, body); None closes the connection without an answer. A fault is
    `late` if the request is carried out before.
    """

    answer: Callable[[str, str, dict[str, str], Any], Reply]
    faults: list[tuple[int, bytes] | None] = field(default_factory=list)
    late: bool = False
    requests: list[str] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def reply(self, method: str, target: str, body: Any) -> tuple[int, bytes] | None:
        """Return the status and the body of the answer to a request, or None for no answer."""
        parts = urlsplit(target)
        # What a script in place of spark-submit does is not a request of the adapter.
        fault = self.faults.pop(0) if self.faults and "/simulated" not in target else "none"
        if fault != "none" and not self.late:
            return fault  # type: ignore[return-value]
        status, found = self.answer(method, parts.path, dict(parse_qsl(parts.query)), body)
        return (status, json.dumps(found).encode()) if fault == "none" else fault  # type: ignore[return-value]


@contextmanager
def serving(server: RestServer) -> Iterator[None]:
    """Serve the API until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.requests.append(f"{self.command} {self.path}")
            server.headers.append(self.headers.get("Authorization"))
            try:
                sent = json.loads(content or b"null")
            except ValueError:  # the client of Spark sends YAML, too
                sent = content.decode()
            reply = server.reply(self.command, self.path, sent)
            if reply is None:
                self.close_connection = True
                return
            status, body = reply
            self.send_response(status)
            kind = "text/html" if body.startswith(b"<") else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 307:
                self.send_header("Location", f"{server.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", server.port), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            running.shutdown()


_PROGRAM = """\
import json, os, sys, urllib.request
from pathlib import Path

words = sys.argv[1:]
conf = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
call = {{"words": words, "conf": conf, "environment": dict(os.environ)}}
Path({calls!r}).write_text(json.dumps(call))
if {submits!r}:
    request = urllib.request.Request({url!r}, json.dumps(call).encode(), method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request) as answer:
        print("INFO Client: Submitted " + json.load(answer)["id"])
print({prints!r})
sys.exit({code!r})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSubmit:
    """A script in place of spark-submit; `calls`: the file with its words, options and environment."""

    program: Path
    calls: Path

    def call(self) -> dict[str, Any]:
        """Return what the script was called with."""
        found: dict[str, Any] = json.loads(self.calls.read_text())
        return found


def simulated_submit(
    folder: Path, server: RestServer, *, code: int = 0, submits: bool = True, prints: str = ""
) -> SimulatedSubmit:
    """Write a script that submits a driver to the simulated server and ends with `code`."""
    made = SimulatedSubmit(program=folder / "spark-submit", calls=folder / "calls.json")
    text = _PROGRAM.format(
        calls=str(made.calls),
        url=f"{server.url}/simulated",
        submits=submits,
        prints=prints,
        code=code,
    )
    made.program.write_text(f"#!{sys.executable}\n{text}")
    made.program.chmod(made.program.stat().st_mode | stat.S_IXUSR)
    return made
