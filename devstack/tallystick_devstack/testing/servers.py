"""Runs S3 servers for tests, on free ports of 127.0.0.1. They end with the test, or with its process if it is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 60.0
_STOP_S = 10.0
_PORT_TRIES = 3

# The child reads its standard input in a thread. End of file means that the process at the other end has ended, for any
# reason. A pipe works on every system. PR_SET_PDEATHSIG exists only on Linux, and depends on a thread of the parent.
_DIE_WITH_PARENT = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
from ministack.app import main
main()
"""

_AWS_PREFIX = "AWS_"


def aws_environment(endpoint_url: str) -> dict[str, str]:
    """Return the variables with which boto3's chain uses a test server, and no configuration of this machine."""
    return {
        "AWS_ENDPOINT_URL_S3": endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def ministack() -> Iterator[str]:
    """Run ministack (S3 only, in memory) in a child process; yield its endpoint URL.

    It has one event loop, so each conditional PUT is atomic, and it can be used to test races.
    """
    with tempfile.TemporaryDirectory(prefix="tallystick-ministack-") as folder:
        process, url = _start_ministack(Path(folder))
        try:
            yield url
        finally:
            _stop(process)


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server in a thread of this process; yield its endpoint URL.

    It checks a condition and then writes, without a lock. Two concurrent creates can both succeed, so it must not be used
    to test races.
    """
    from moto.server import ThreadedMotoServer  # only a dependency of tests, and slow to import

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free when it was checked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_ministack(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(_PORT_TRIES):
        port = free_port()
        log = folder / f"{port}.log"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith((_AWS_PREFIX, "MINISTACK", "S3_"))
        }
        environment |= {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "SERVICES": "s3",
            # Its other services listen on all interfaces, regardless of BIND_HOST.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": "unix:///nonexistent",
            "LOG_LEVEL": "WARNING",
            "TMPDIR": str(folder),
            "S3_DATA_DIR": str(folder / "s3"),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _DIE_WITH_PARENT],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )
        if _healthy(process, f"http://127.0.0.1:{port}/_ministack/health"):
            return process, f"http://127.0.0.1:{port}"
        # Probably another process took the port between the check and the server's start.
        _stop(process)
    raise RuntimeError(
        f"ministack did not start; the end of its log:\n{log.read_text(errors='replace')[-4000:]}"
    )


def _healthy(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
