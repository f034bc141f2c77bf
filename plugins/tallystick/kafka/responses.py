"""Receives the responses of a broker: the bytes of each go from the socket into one buffer of their own.

kafka-python copies every byte of a response about seven times: out of the parts that it receives, into its buffer, and
twice out of it. A fetch has megabytes, and nothing of that is needed.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

import kafka.errors as kerrors

_SIZE: Final = struct.Struct(">i")
# What decodes a response that is not larger may need `bytes`, as the library's own buffer returns them.
_COPIED_BYTES_MAX: Final = 64 << 10


class Response:
    """The bytes of one response and a position, with the methods of kafka-python's own buffer."""

    def __init__(self, content: bytearray) -> None:
        self._content = memoryview(content).toreadonly()
        self._at = 0

    def __len__(self) -> int:
        return len(self._content)

    def read(self, count: int | None = None) -> bytes | memoryview:
        """Return the next bytes: fewer if there are not as many, and all that are left without `count`.

        Without `count`, much is returned as a view: the decoder of a fetch reads from it what it needs.
        """
        rest = self._content[self._at :]
        if count is None:
            self._at = len(self._content)
            return rest if len(rest) > _COPIED_BYTES_MAX else bytes(rest)
        self._at += min(count, len(rest))
        return bytes(rest[:count])

    def seek(self, at: int) -> None:
        """Go to a position."""
        self._at = at

    def tell(self) -> int:
        """Return the position."""
        return self._at


class Receiver:
    """The responses that arrive on one connection.

    A response of more than `bytes_max` bytes is refused before it is received.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = bytearray(_SIZE.size)
        self._content: bytearray | None = None
        self._missing = memoryview(self._size)

    def receive(self, sock: socket.socket) -> tuple[list[Response], Exception | None]:
        """Return the responses that have arrived whole, or the error that ended the connection.

        If bytes arrived before the end, this returns no error, and the next call returns it. kafka-python drops these
        bytes, and with them the reason of a broker that refuses a password and closes the connection at once.
        """
        arrived: list[Response] = []
        received = False
        while True:
            try:
                count = sock.recv_into(self._missing)
            except (
                BlockingIOError,
                InterruptedError,
                ssl.SSLWantReadError,
                ssl.SSLWantWriteError,
            ):
                return arrived, None
            except OSError as failed:
                return arrived, None if received else kerrors.KafkaConnectionError(failed)
            if not count:
                ended = kerrors.KafkaConnectionError("socket disconnected")
                return arrived, None if received else ended
            received = True
            self._missing = self._missing[count:]
            while not len(self._missing):
                if self._content is not None:
                    arrived.append(Response(self._content))
                    self._content, self._missing = None, memoryview(self._size)
                    continue
                (size,) = _SIZE.unpack(self._size)
                if not 0 <= size <= self._bytes_max:
                    return arrived, kerrors.InvalidReceiveError(f"Invalid frame length: {size}")
                self._content = bytearray(size)
                self._missing = memoryview(self._content)
