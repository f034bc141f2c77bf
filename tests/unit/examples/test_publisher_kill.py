"""The proxy kills a publisher between `in_progress` and `published`, in the middle if it can, and no other process."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from examples.runner.publisher_kill import PublisherKillProxy

# A small publisher: page and root with `in_progress`, ten rows outside, page and root without `in_progress`.
PUBLISHER = """
import http.client, sys, time
address, out, pause, page = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
connection = http.client.HTTPConnection(address)
def put(key, body):
    connection.request("PUT", "/lake/x/" + key, body.encode())
    answer = connection.getresponse()
    answer.read()
    return answer.status
put("ledger/1.json", page)
while put("root.json", "in progress") != 200:
    pass
for row in range(10):
    with open(out, "a") as file:
        file.write("row\\n")
    time.sleep(pause)
put("ledger/2.json", '{"in_progress":null}')
put("root.json", "published")
print("recorded", flush=True)
"""
IN_PROGRESS = '{"in_progress":"' + "0" * 32 + '"}'


class Upstream(BaseHTTPRequestHandler):
    """Stores what is put; refuses the first root, like a swap that another swap preceded."""

    protocol_version = "HTTP/1.1"
    roots: list[bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.path.endswith("root.json") and not self.roots
        if self.path.endswith("root.json"):
            self.roots.append(b"refused" if refused else body)
        self.send_response(412 if refused else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[str]:
    Upstream.roots = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def publish(
    proxy: PublisherKillProxy, out: Path, *, pause_s: float, page: str = IN_PROGRESS
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PUBLISHER, proxy.url.removeprefix("http://")]
    return subprocess.run(
        [*command, str(out), str(pause_s), page],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(out: Path) -> int:
    return len(out.read_text().splitlines()) if out.exists() else 0


def test_a_publisher_is_killed_in_the_middle_and_the_next_one_completes(
    upstream: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with PublisherKillProxy(upstream, count_published=lambda: rows(out)) as proxy:
        assert publish(proxy, out, pause_s=0.2).returncode == -signal.SIGKILL
        result = proxy.result
        assert result is not None
        assert (result.published, result.at_end) == (rows(out), False)
        assert 0 < rows(out) < 10
        assert Upstream.roots == [b"refused", b"in progress"]
        assert "PUBLISHER" not in result.command
        assert sys.executable.rpartition("/")[2] in result.command
        assert publish(proxy, out, pause_s=0).stdout == "recorded\n"


def test_a_request_of_a_dead_publisher_is_not_applied(upstream: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with PublisherKillProxy(upstream, count_published=lambda: rows(out)) as proxy:
        publish(proxy, out, pause_s=0.2)
        # The proxy ignores its own process as a sender, so this connection has no living sender.
        late = http.client.HTTPConnection(proxy.url.removeprefix("http://"))
        late.request("PUT", "/lake/x/root.json", b"published")
        with pytest.raises(http.client.RemoteDisconnected):
            late.getresponse()
        late.close()
    assert Upstream.roots == [b"refused", b"in progress"]


def test_a_fast_publisher_is_killed_when_it_records_the_end(upstream: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with PublisherKillProxy(upstream, count_published=lambda: 0) as proxy:
        assert publish(proxy, out, pause_s=0).returncode == -signal.SIGKILL
        result = proxy.result
    assert result is not None
    assert result.at_end
    assert rows(out) == 10
    assert Upstream.roots == [b"refused", b"in progress"]


def test_a_process_that_publishes_nothing_is_not_killed(upstream: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with PublisherKillProxy(upstream, count_published=lambda: rows(out)) as proxy:
        assert publish(proxy, out, pause_s=0, page='{"in_progress":null}').stdout == "recorded\n"
        assert proxy.result is None
