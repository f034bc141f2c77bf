"""The gate kills the process that writes, before the write lands or after, and harms nobody else."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from examples.demo.gate import Gate, Trap

WRITER = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1])
for key in sys.argv[2:]:
    connection.request("PUT", "/lake/" + key, b"body of " + key.encode())
    answer = connection.getresponse()
    print(key, answer.status, answer.read().decode(), flush=True)
"""


class Upstream(BaseHTTPRequestHandler):
    """Keeps what is put, and refuses keys that begin with `no`."""

    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.path.startswith("/lake/no")
        if not refused:
            self.kept[self.path] = body
        self._answer(412 if refused else 200, b"stored")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1234")
        self.end_headers()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[ThreadingHTTPServer]:
    Upstream.kept = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def gate(upstream: ThreadingHTTPServer) -> Iterator[Gate]:
    with Gate(f"http://127.0.0.1:{upstream.server_port}") as gate:
        yield gate


def write(gate: Gate, *keys: str) -> subprocess.CompletedProcess[str]:
    address = gate.url.removeprefix("http://")
    return subprocess.run(
        [sys.executable, "-c", WRITER, address, *keys],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_trap_everything_passes(gate: Gate) -> None:
    ended = write(gate, "a", "b")
    assert ended.stdout.splitlines() == ["a 200 stored", "b 200 stored"]
    assert ended.returncode == 0
    assert Upstream.kept == {"/lake/a": b"body of a", "/lake/b": b"body of b"}
    assert gate.kills == ()


@pytest.mark.parametrize(("when", "landed"), [("before", False), ("after", True)])
def test_the_writer_dies_at_the_moment_that_was_asked_for(
    gate: Gate, when: str, landed: bool
) -> None:
    gate.set(Trap(path=re.compile(r"/b$"), when=when))  # type: ignore[arg-type]
    ended = write(gate, "a", "b", "c")
    assert ended.stdout.splitlines() == ["a 200 stored"]
    assert ended.returncode == -signal.SIGKILL
    assert ("/lake/b" in Upstream.kept) is landed
    assert "/lake/c" not in Upstream.kept
    (kill,) = gate.kills
    assert kill.path == "/lake/b"
    assert WRITER.strip().splitlines()[0] in kill.command


def test_a_trap_kills_once_and_the_next_writer_passes(gate: Gate) -> None:
    gate.set(Trap(path=re.compile("/b$"), when="before"))
    assert write(gate, "b").returncode == -signal.SIGKILL
    assert write(gate, "b").stdout == "b 200 stored\n"


def test_a_write_that_does_not_land_does_not_kill_after(gate: Gate) -> None:
    gate.set(Trap(path=re.compile("/no|/yes"), when="after"))
    ended = write(gate, "no", "yes")
    assert ended.stdout == "no 412 stored\n"
    assert [kill.path for kill in gate.kills] == ["/lake/yes"]


def test_the_length_of_an_object_passes_in_the_answer_to_head(gate: Gate) -> None:
    script = (
        "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1]); c.request('HEAD', '/lake/a');"
        "print(c.getresponse().getheader('Content-Length'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, gate.url.removeprefix("http://")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "1234\n"
