"""Test servers end with the process that started them, also if that is killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

from tallystick_devstack.testing.servers import ministack

DEADLINE_S = 30.0
STARTER = """
from tallystick_devstack.testing.servers import ministack
with ministack() as url:
    print(url, flush=True)
    input()
"""


def listens(url: str) -> bool:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


def stops_listening(url: str) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while listens(url):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_ministack_ends_with_its_block() -> None:
    with ministack() as url:
        assert listens(url)
        assert urlsplit(url).hostname == "127.0.0.1"
    assert stops_listening(url)


def test_ministack_ends_with_a_starter_that_is_killed() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        assert listens(url)
        starter.send_signal(signal.SIGKILL)
    assert stops_listening(url)
