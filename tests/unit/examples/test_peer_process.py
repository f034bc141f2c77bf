"""The process that a kill proxy kills is the one at the other end of its own connection."""

from __future__ import annotations

import socket
import subprocess
import sys

from examples.demo.kill_proxy import peer_process

CLIENT = """
import socket, sys
own = socket.socket()
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.bind(("127.0.0.1", int(sys.argv[1])))
own.connect(("127.0.0.1", int(sys.argv[2])))
sys.stdin.read()
"""


def client(port: int, server: socket.socket) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that connects to the server from this port, and return both."""
    command = [sys.executable, "-c", CLIENT, str(port), str(server.getsockname()[1])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    server.settimeout(60)
    return process, server.accept()[0]


def test_another_connection_from_the_same_port_is_not_taken_for_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = [client(port, one), client(port, two)]
        try:
            for process, connection in started:
                assert peer_process(connection).pid == process.pid
        finally:
            for process, connection in started:
                connection.close()
                process.kill()
                process.communicate()
