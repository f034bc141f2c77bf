"""A TCP proxy for the embedded server that loses an answer: the connection ends, or remains and is silent."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from tallystick_devstack.postgres import Postgres

_BYTES = 65_536


class Proxy:
    """Forwards until a client's message contains the text `lose`, while `armed` is set.

    `arrives`: the server still gets that message, and its answer is lost. `silent`: the connection is not closed.
    """

    def __init__(self, server: Postgres, *, lose: str, arrives: bool, silent: bool = False) -> None:
        self._path = str(server.socket_dir / ".s.PGSQL.5432")
        self._lose, self._arrives, self._silent = lose.encode(), arrives, silent
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port = self._listens.getsockname()[1]
        self.armed, self.lost = threading.Event(), threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for connection in (self._listens, *self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for connection in (self._listens, *self._open):
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listens.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._path)
                self._open += [client, server]
                self._start(client, server)

    def _start(self, client: socket.socket, server: socket.socket) -> None:
        answers = threading.Event()
        answers.set()
        for target in (self._to_server, self._to_client):
            thread = threading.Thread(target=target, args=(client, server, answers))
            self._threads.append(thread)
            thread.start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, answers: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(_BYTES):
                if self._lose in data and self.armed.is_set() and not self.lost.is_set():
                    self.lost.set()
                    answers.clear()
                    if not self._arrives:
                        break
                server.sendall(data)
        _shut_down(server)

    def _to_client(
        self, client: socket.socket, server: socket.socket, answers: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_BYTES):
                if answers.is_set():
                    client.sendall(data)
                elif not self._silent:
                    break  # the server has answered, so it has executed the message; the answer is lost
        if answers.is_set() or not self._silent:
            _shut_down(client)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
