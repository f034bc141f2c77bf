"""A TCP proxy for one real broker: while it is `quiet`, it removes the records, and only these, from fetch answers.

The answer keeps error NONE, the log start, the high watermark and the last stable offset: a broker answers so if its
tiered storage has not answered in time (KIP-405). Clients keep using the proxy, because it replaces the address in the
broker's metadata by its own.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse

_FETCH, _METADATA = FetchResponse.API_KEY, MetadataResponse.API_KEY
_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id


class KafkaTap:
    """Forwards between clients and the broker at `bootstrap` (host:port), while its `with` block runs."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listens.getsockname()[1]
        self._quiet = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        # The number of answers whose records were removed.
        self.emptied = 0

    @property
    def bootstrap(self) -> str:
        """host:port of the proxy."""
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Remove the records of each fetch answer until the end of the block."""
        self._quiet.set()
        try:
            yield
        finally:
            self._quiet.clear()

    def __enter__(self) -> KafkaTap:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # Only a shutdown ends accept() of a listening socket.
        for connection in (self._listens, *self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for connection in (self._listens, *self._open):
            connection.close()

    def _start(self, target: Any, *words: Any) -> None:
        thread = threading.Thread(target=target, args=words, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listens.accept()
                try:
                    broker = socket.create_connection(self._broker, 10)
                except OSError:
                    client.close()  # the broker is down: the client gets the same error as from the broker
                    continue
                broker.settimeout(None)
                self._open += [client, broker]
                pending: dict[int, tuple[int, int]] = {}
                self._start(self._requests, client, broker, pending)
                self._start(self._answers, broker, client, pending)

    def _requests(
        self, client: socket.socket, broker: socket.socket, pending: dict[int, tuple[int, int]]
    ) -> None:
        with _both_ended(client, broker):
            while (frame := _frame(client)) is not None:
                api, version, correlation = _HEAD.unpack_from(frame)
                if api in (_FETCH, _METADATA):
                    pending[correlation] = (api, version)
                broker.sendall(_framed(frame))

    def _answers(
        self, broker: socket.socket, client: socket.socket, pending: dict[int, tuple[int, int]]
    ) -> None:
        with _both_ended(client, broker):
            while (frame := _frame(broker)) is not None:
                (correlation,) = struct.unpack_from(">i", frame)
                api, version = pending.pop(correlation, (-1, 0))
                if api == _METADATA:
                    frame = self._at_our_address(frame, version)
                elif api == _FETCH and self._quiet.is_set():
                    frame = self._without_records(frame, version)
                client.sendall(_framed(frame))

    def _at_our_address(self, frame: bytes, version: int) -> bytes:
        answer = MetadataResponse.decode(frame, version=version, header=True)
        for broker in answer.brokers:
            broker.host, broker.port = "127.0.0.1", self.port
        return bytes(answer.encode(header=True))

    def _without_records(self, frame: bytes, version: int) -> bytes:
        answer = FetchResponse.decode(frame, version=version, header=True)
        with_records = [p for topic in answer.responses for p in topic.partitions if p.records]
        if not with_records:
            return frame
        for part in with_records:
            part.records = b""
            part.aborted_transactions = []
        with self._guard:
            self.emptied += 1
        return bytes(answer.encode(header=True))


@contextmanager
def _both_ended(*sockets: socket.socket) -> Iterator[None]:
    """End both connections when one of them ends."""
    try:
        with suppress(OSError):
            yield
    finally:
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _frame(connection: socket.socket) -> bytes | None:
    """Return the next length-prefixed message, or None at the end."""
    head = _exactly(connection, 4)
    return None if head is None else _exactly(connection, struct.unpack(">i", head)[0])


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
