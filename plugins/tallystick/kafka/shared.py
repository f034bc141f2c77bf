"""Lends one client of a cluster to reads that follow each other: connecting costs more than reading a small range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.client import KafkaClient


class SharedClient:
    """A client that is opened by the first read that needs it; use it in a `with` statement, in one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._idle: KafkaClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client. Safe to repeat: the next read opens another one."""
        client, self._idle = self._idle, None
        if client is not None:
            client.close()

    @contextmanager
    def lent(self) -> Iterator[KafkaClient]:
        """Lend the client for one read. Raises what opening a client raises.

        After a read that failed or was not read to its end, the client is closed: an answer may still be on its way. A
        second read at the same time gets a client of its own.
        """
        client, self._idle = self._idle or KafkaClient(self._settings).__enter__(), None
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self.close()
        self._idle = client
