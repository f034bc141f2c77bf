"""The counting proxy forwards every byte, and counts requests by verb and kind, however the bytes arrive."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from bench.whole_job.counting_proxy import RequestCounter, S3Counts, kind_of, take_counts
from tallystick_devstack.process import (
    ChildProcess,
    base_environment,
    free_port,
    port_accepts,
    wait_until,
)

REPO = Path(__file__).parents[3]
STREAM = (
    b"PUT /b/a HTTP/1.1\r\nHost: s3\r\nContent-Length: 10\r\nIf-None-Match: *\r\n\r\n0123456789"
    b"GET /b?list-type=2&prefix=a%2Fb HTTP/1.1\r\nHost: s3\r\n\r\n"
    b"PUT /b/a?partNumber=1&uploadId=x HTTP/1.1\r\ncontent-length: 40\r\n"
    b"X-Amz-Decoded-Content-Length: 4\r\n\r\n"
    + b"d"
    * 40
    + b"PUT /b/c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;ext=1\r\nabcd\r\n10\r\n0123456789abcdef\r\n0\r\nx-trailer: y\r\n\r\n"
    b"HEAD /b/a HTTP/1.1\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_the_counts_do_not_depend_on_how_the_bytes_arrive(size: int) -> None:
    counts = S3Counts()
    counter = RequestCounter(counts)
    for at in range(0, len(STREAM), size):
        counter.feed(STREAM[at : at + size])
    assert counts.to_json() == {
        "requests": {"GET": 1, "HEAD": 1, "PUT": 3},
        "kinds": {"head": 1, "list": 1, "part": 1, "put": 1, "put if": 1},
        "received": 10 + 4 + 20,
        "sent": 0,
    }


@pytest.mark.parametrize(
    ("verb", "target", "head", "kind"),
    [
        (b"PUT", b"/b/k", b"\r\nx-amz-copy-source: /b/o\r\n", "copy"),
        (b"PUT", b"/b/k?partNumber=2&uploadId=u", b"\r\nx-amz-copy-source: /b/o\r\n", "part copy"),
        (b"PUT", b"/b/k", b'\r\nIf-Match: "e"\r\n', "put if"),
        (b"POST", b"/b/k?uploads", b"", "multipart start"),
        (b"POST", b"/b/k?uploadId=u", b"", "multipart end"),
        (b"POST", b"/b?delete", b"", "delete many"),
        (b"DELETE", b"/b/k", b"", "delete"),
        (b"DELETE", b"/b/k?uploadId=u", b"", "multipart abort"),
        (b"GET", b"/b/k/l", b"", "get"),
        (b"GET", b"/b/?prefix=x", b"", "list"),
    ],
)
def test_a_request_has_the_kind_of_its_operation(
    verb: bytes, target: bytes, head: bytes, kind: str
) -> None:
    assert kind_of(verb, target, head) == kind


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hosts: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hosts.append(self.headers["Host"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def _proxied(log: Path) -> Iterator[tuple[int, int]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, control = free_port(), free_port()
    words = [sys.executable, "-m", "bench.whole_job.counting_proxy", "--port", str(port)]
    words += ["--control", str(control), "--upstream", str(server.server_address[1])]
    with ChildProcess(
        words, name="proxy", log_path=log, env=base_environment(), cwd=REPO
    ) as process:
        for one in (port, control):
            wait_until(
                lambda one=one: port_accepts(one), deadline_s=30, what="the proxy", process=process
            )
        yield port, control
    server.shutdown()
    server.server_close()


def test_bodies_and_the_host_arrive_unchanged_and_the_counts_begin_anew_after_each_look(
    tmp_path: Path,
) -> None:
    body = bytes(range(256)) * 4_000
    with _proxied(tmp_path / "proxy.log") as (port, control):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(2):
            connection.request("PUT", "/b/key", body)
            assert connection.getresponse().read() == body[::-1]
        assert _Echo.hosts == [f"127.0.0.1:{port}"] * 2
        counts = take_counts(control)
        assert counts["requests"] == {"PUT": 2}
        assert counts["received"] == 2 * len(body)
        connection.request("PUT", "/b/key", b"x")
        assert connection.getresponse().read() == b"x"
        assert take_counts(control)["requests"] == {"PUT": 1}
        connection.close()
