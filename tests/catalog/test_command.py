"""The command `tally catalog` as a process: it prints how to connect, serves, and ends upon SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog.conftest import DEADLINE_S, session, until
from support.flights_lake import FlightsLake
from tallystick_devstack.testing.fault_proxy import FaultProxy, HttpFault


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Run `tally catalog` on a free port, and end it."""
    with subprocess.Popen(
        [
            *(sys.executable, "-c", "from tallystick.cli import main; main()"),
            *("catalog", *argv, "--port", "0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and standard error of a process that ends by itself before the deadline."""
    _, stderr = process.communicate(timeout=DEADLINE_S)
    return process.returncode, " ".join(stderr.split())


def lines_of(process: subprocess.Popen[str], count: int) -> Sequence[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def test_it_prints_how_to_connect_serves_and_ends_upon_sigterm(
    flights: FlightsLake, uri: str
) -> None:
    with running(uri) as process:
        first, *engines = lines_of(process, 5)
        found = re.fullmatch(r"Serving flights at (http://127\.0\.0\.1:\d+)", first)
        assert found is not None
        assert [line.split(":")[0] for line in engines] == ["PyIceberg", "DuckDB", "Spark", "Trino"]
        assert all(found[1] in line for line in engines)
        rows = session(found[1]).load_table("flights.flights").scan().to_arrow().num_rows
        assert rows == len(flights.committed())
        process.send_signal(signal.SIGTERM)
        code, stderr = ended(process)
    assert code == -signal.SIGTERM
    assert "Traceback" not in stderr
    assert re.search(r"INFO GET /v1/config 200 \d+ ms", stderr)


def test_it_ends_upon_sigterm_while_a_request_waits_for_the_store(
    flights: FlightsLake, uri: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(FaultProxy):
        """Hangs from the moment on at which the test sets `hangs`."""

        hangs = False

        def choose(self, seen: object) -> HttpFault:
            return HttpFault(forward="never", answer="hang") if self.hangs else HttpFault()

    with Late(s3, method=None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        with running(uri, "--json") as process:
            assert process.stdout is not None
            text = ""
            while not text.endswith("\n}\n"):
                text += process.stdout.readline()
            answer = json.loads(text)
            assert answer["lakes"] == {"flights": uri}
            proxy.hangs = True
            before = len(proxy.seen)
            host, port = answer["url"].removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(b"GET /v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n")
                until(lambda: len(proxy.seen) > before)
                process.send_signal(signal.SIGTERM)
                code, stderr = ended(process)
    assert code == -signal.SIGTERM
    assert "Traceback" not in stderr


def test_a_lake_before_its_first_run_is_served_and_named(uri: str) -> None:
    with running(uri) as process:
        url = lines_of(process, 1)[0].split(" at ")[1]
        with urllib.request.urlopen(f"{url}/v1/config", timeout=DEADLINE_S) as answer:
            assert json.load(answer)["overrides"] == {"prefix": "flights@0"}
        process.send_signal(signal.SIGTERM)
        _, stderr = ended(process)
    assert "Nothing has been planned in flights" in stderr


def test_a_token_of_the_command_is_accepted_by_the_command(
    flights: FlightsLake, uri: str, tmp_path: Path
) -> None:
    made = subprocess.run(
        [
            *(sys.executable, "-c", "from tallystick.cli import main; main()"),
            *("catalog", uri, "--new-token", "--json"),
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    form = json.loads(made.stdout)
    file = tmp_path / "tokens"
    file.write_text(f"{form['line']}\n")
    assert form["token"] not in form["line"]
    with running(uri, "--tokens", str(file), "--host", "0.0.0.0") as process:
        first = lines_of(process, 1)[0]
        url = first.split(" at ")[1].replace("0.0.0.0", "127.0.0.1")
        found = session(url, token=form["token"])
        assert found.list_namespaces() == [("flights",)]
        process.send_signal(signal.SIGTERM)
        _, stderr = ended(process)
    assert "Without --tls, tokens are sent in clear" in stderr
    assert form["token"] not in stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--host", "0.0.0.0"), "expected a loopback address because there are no tokens"),
        (("--tokens", "nowhere"), "No such file"),
        (("--tls", "nowhere", "nowhere"), "expected a certificate and its key"),
        (("--name", "latest=s3://lake/x"), "expected the name of a lake"),
        (("--name", "flights=s3://lake/x"), "expected each name once"),
        (("--name", "s3://lake/x"), "expected NAME=URI"),
    ],
)
def test_a_wrong_option_ends_it_before_it_serves(
    flights: FlightsLake, uri: str, argv: Sequence[str], message: str
) -> None:
    with running(uri, *argv) as process:
        code, stderr = ended(process)
    assert code == 77
    assert message in stderr
    assert "Next: " in stderr


def test_an_address_that_is_taken_ends_it(flights: FlightsLake, uri: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = subprocess.run(
            [
                *(sys.executable, "-c", "from tallystick.cli import main; main()"),
                *("catalog", uri, "--port", str(port)),
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert process.returncode == 77
    assert "expected a free address" in " ".join(process.stderr.split())
