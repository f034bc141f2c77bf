"""The strike kills a publisher between `in_progress` and `published`, in the middle where it can, and nobody else."""

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

from examples.runner.strike import Strike

# It does what a publisher does: page and root with `in_progress`, ten rows outside, page and root without it.
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
while put("root.json", "begun") != 200:
    pass
for row in range(10):
    with open(out, "a") as file:
        file.write("row\\n")
    time.sleep(pause)
put("ledger/2.json", '{"in_progress":null}')
put("root.json", "published")
print("noted", flush=True)
"""
BEGUN = '{"in_progress":"' + "0" * 32 + '"}'


class Upstream(BaseHTTPRequestHandler):
    """Keeps what is put; the first root of all is refused, as one that has lost its race is."""

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
    strike: Strike, out: Path, *, pause_s: float, page: str = BEGUN
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PUBLISHER, strike.url.removeprefix("http://")]
    return subprocess.run(
        [*words, str(out), str(pause_s), page],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(out: Path) -> int:
    return len(out.read_text().splitlines()) if out.exists() else 0


def test_a_publisher_dies_in_the_middle_and_the_next_one_passes(
    upstream: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with Strike(upstream, out=lambda: rows(out)) as strike:
        assert publish(strike, out, pause_s=0.2).returncode == -signal.SIGKILL
        blow = strike.blow
        assert blow is not None
        assert (blow.out, blow.noting) == (rows(out), False)
        assert 0 < rows(out) < 10
        assert Upstream.roots == [b"refused", b"begun"]
        assert "PUBLISHER" not in blow.command
        assert sys.executable.rpartition("/")[2] in blow.command
        assert publish(strike, out, pause_s=0).stdout == "noted\n"


def test_what_the_dead_had_on_its_way_does_not_land(upstream: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Strike(upstream, out=lambda: rows(out)) as strike:
        publish(strike, out, pause_s=0.2)
        # The gate never takes its own process for a sender: this connection has none that lives.
        late = http.client.HTTPConnection(strike.url.removeprefix("http://"))
        late.request("PUT", "/lake/x/root.json", b"published")
        with pytest.raises(http.client.RemoteDisconnected):
            late.getresponse()
        late.close()
    assert Upstream.roots == [b"refused", b"begun"]


def test_one_that_is_too_quick_to_be_seen_dies_when_it_notes_the_end(
    upstream: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with Strike(upstream, out=lambda: 0) as strike:
        assert publish(strike, out, pause_s=0).returncode == -signal.SIGKILL
        blow = strike.blow
    assert blow is not None
    assert blow.noting
    assert rows(out) == 10
    assert Upstream.roots == [b"refused", b"begun"]


def test_who_begins_nothing_is_left_alone(upstream: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Strike(upstream, out=lambda: rows(out)) as strike:
        assert publish(strike, out, pause_s=0, page='{"in_progress":null}').stdout == "noted\n"
        assert strike.blow is None
