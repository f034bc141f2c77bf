"""The proxy kills the writing process, before its write is applied or after, and no other process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from examples.demo.kill_proxy import KillProxy, KillRule

WRITER = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1])
for key in sys.argv[2:]:
    connection.request("PUT", "/lake/" + key, b"body of " + key.encode())
    answer = connection.getresponse()
    print(key, answer.status, answer.read().decode(), flush=True)
"""


class Upstream(BaseHTTPRequestHandler):
    """Stores what is put, and refuses keys that start with `no`."""

    protocol_version = "HTTP/1.1"
    stored: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.path.startswith("/lake/no")
        if not refused:
            self.stored[self.path] = body
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
    Upstream.stored = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(upstream: ThreadingHTTPServer) -> Iterator[KillProxy]:
    with KillProxy(f"http://127.0.0.1:{upstream.server_port}") as proxy:
        yield proxy


def write(proxy: KillProxy, *keys: str) -> subprocess.CompletedProcess[str]:
    address = proxy.url.removeprefix("http://")
    return subprocess.run(
        [sys.executable, "-c", WRITER, address, *keys],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_rule_every_request_is_forwarded(proxy: KillProxy) -> None:
    ended = write(proxy, "a", "b")
    assert ended.stdout.splitlines() == ["a 200 stored", "b 200 stored"]
    assert ended.returncode == 0
    assert Upstream.stored == {"/lake/a": b"body of a", "/lake/b": b"body of b"}
    assert proxy.kills == ()


@pytest.mark.parametrize(("when", "landed"), [("before", False), ("after", True)])
def test_the_writer_is_killed_at_the_moment_of_the_rule(
    proxy: KillProxy, when: str, landed: bool
) -> None:
    proxy.set(KillRule(path=re.compile(r"/b$"), when=when))  # type: ignore[arg-type]
    ended = write(proxy, "a", "b", "c")
    assert ended.stdout.splitlines() == ["a 200 stored"]
    assert ended.returncode == -signal.SIGKILL
    assert ("/lake/b" in Upstream.stored) is landed
    assert "/lake/c" not in Upstream.stored
    (kill,) = proxy.kills
    assert kill.path == "/lake/b"
    assert WRITER.strip().splitlines()[0] in kill.command


def test_a_rule_kills_once_and_the_next_writer_succeeds(proxy: KillProxy) -> None:
    proxy.set(KillRule(path=re.compile("/b$"), when="before"))
    assert write(proxy, "b").returncode == -signal.SIGKILL
    assert write(proxy, "b").stdout == "b 200 stored\n"


def test_a_refused_write_does_not_trigger_a_kill_after(proxy: KillProxy) -> None:
    proxy.set(KillRule(path=re.compile("/no|/yes"), when="after"))
    ended = write(proxy, "no", "yes")
    assert ended.stdout == "no 412 stored\n"
    assert [kill.path for kill in proxy.kills] == ["/lake/yes"]


def test_the_answer_to_head_has_the_length_of_the_object(proxy: KillProxy) -> None:
    script = (
        "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1]); c.request('HEAD', '/lake/a');"
        "print(c.getresponse().getheader('Content-Length'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, proxy.url.removeprefix("http://")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "1234\n"
