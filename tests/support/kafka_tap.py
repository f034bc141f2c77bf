"""A TCP proxy before one real broker: while it is `quiet`, each answer to a fetch loses its records, and nothing else.

The answer keeps error NONE, the log start, the high watermark and the last stable offset: what a broker sends when its
tiered storage has not answered in time (KIP-405). Clients stay behind the proxy, because the address in the broker's
metadata is replaced by its own.
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
    """Forwards between clients and the broker at `bootstrap` (host:port), from `with` to its end."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listens.getsockname()[1]
        self._quiet = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        # How many answers have lost their records.
        self.emptied = 0

    @property
    def bootstrap(self) -> str:
        """host:port of the proxy."""
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Empty each answer to a fetch until the end of the block."""
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
        # A listening socket wakes from accept() by a shutdown only.
        for one in (self._listens, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for one in (self._listens, *self._open):
            one.close()

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
                    client.close()  # the broker is down: the client learns it as it would from the broker
                    continue
                broker.settimeout(None)
                self._open += [client, broker]
                asked: dict[int, tuple[int, int]] = {}
                self._start(self._requests, client, broker, asked)
                self._start(self._answers, broker, client, asked)

    def _requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with _both_ended(client, broker):
            while (frame := _frame(client)) is not None:
                api, version, correlation = _HEAD.unpack_from(frame)
                if api in (_FETCH, _METADATA):
                    asked[correlation] = (api, version)
                broker.sendall(_framed(frame))

    def _answers(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with _both_ended(client, broker):
            while (frame := _frame(broker)) is not None:
                (correlation,) = struct.unpack_from(">i", frame)
                api, version = asked.pop(correlation, (-1, 0))
                if api == _METADATA:
                    frame = self._at_our_address(frame, version)
                elif api == _FETCH and self._quiet.is_set():
                    frame = self._without_records(frame, version)
                client.sendall(_framed(frame))

    def _at_our_address(self, frame: bytes, version: int) -> bytes:
        answer = MetadataResponse.decode(frame, version=version, header=True)
        for one in answer.brokers:
            one.host, one.port = "127.0.0.1", self.port
        return bytes(answer.encode(header=True))

    def _without_records(self, frame: bytes, version: int) -> bytes:
        answer = FetchResponse.decode(frame, version=version, header=True)
        held = [part for topic in answer.responses for part in topic.partitions if part.records]
        if not held:
            return frame
        for part in held:
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
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _frame(connection: socket.socket) -> bytes | None:
    """The next length-prefixed message, or None at the end."""
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
