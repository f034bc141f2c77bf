"""Listeners for metrics, each on a free port of the loopback interface: a StatsD server, and an OTLP/HTTP collector."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

DEADLINE_S = 30.0
Labels = tuple[tuple[str, str], ...]


def until(found: Callable[[], bool]) -> None:
    """Wait until `found` returns True; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


class OtlpCollector:
    """A collector that decodes what it gets, and answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = []
        self.url = ""

    @property
    def metrics(self) -> list[Metric]:
        """All metrics of all requests, in order."""
        return [
            metric
            for _, _, sent in self.requests
            for resource in sent.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]


def labels(point: object) -> Labels:
    """Return the attributes of a data point, sorted by name."""
    return tuple(sorted((a.key, a.value.string_value) for a in point.attributes))  # type: ignore[attr-defined]


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """Run a collector in a thread."""
    found = OtlpCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = ExportMetricsServiceRequest.FromString(body)
            found.requests.append((self.path, dict(self.headers), sent))
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StatsdServer:
    """A UDP socket that reads StatsD's lines, such as `airflow.tallystick.commit.rows:5|c`."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own
        self.port: int = own.getsockname()[1]

    def lines_to(self, last: str) -> list[str]:
        """Return the lines up to the first that begins with `last`, without it; fail after the deadline.

        A sender on this machine writes to the buffer of the socket itself, so nothing is reordered.
        """
        lines: list[str] = []
        self._own.settimeout(DEADLINE_S)
        while not lines or not lines[-1].startswith(last):
            lines += self._own.recv(65_536).decode().splitlines()
        return lines[:-1]


@contextmanager
def statsd_server() -> Iterator[StatsdServer]:
    """Open a socket that receives StatsD's packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        own.bind(("127.0.0.1", 0))
        yield StatsdServer(own)
