"""A proxy in front of the S3 server that counts requests and bytes: python -m bench.whole_job.counting_proxy.

It forwards every byte as it is, so signatures stay valid, and reads along only in the direction of the server. A request
counts when its head has arrived. A connection to the second port gets the counts as one line of JSON, and sets them to 0.
It runs in a process of its own, so its CPU seconds belong to the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs

_CHUNK = 256 * 1024
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_DECODED = re.compile(rb"\r\nx-amz-decoded-content-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_COPY = re.compile(rb"\r\nx-amz-copy-source:", re.IGNORECASE)
_CONDITION = re.compile(rb"\r\nif-(none-)?match:", re.IGNORECASE)


@dataclass(slots=True)
class S3Counts:
    """Requests by verb and by kind, and the bytes of bodies: `received` from clients, `sent` to them with the heads."""

    requests: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    received: int = 0
    sent: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the counts as a JSON value."""
        return {
            "requests": dict(sorted(self.requests.items())),
            "kinds": dict(sorted(self.kinds.items())),
            "received": self.received,
            "sent": self.sent,
        }

    def reset(self) -> None:
        """Set all counts to 0. Safe to repeat: they stay 0. Open connections go on counting in this object."""
        self.requests.clear()
        self.kinds.clear()
        self.received = self.sent = 0


class RequestCounter:
    """Reads the requests of one connection as they pass, and adds them to the counts."""

    def __init__(self, counts: S3Counts) -> None:
        self._counts = counts
        self._buffer = bytearray()
        self._body = 0
        self._chunked = False

    def feed(self, block: bytes) -> None:
        """Read the next bytes that the client has sent. Not safe to repeat: they would count twice."""
        if self._body >= len(block):  # the fast way of a large body
            self._body -= len(block)
            return
        self._buffer += block[self._body :]
        self._body = 0
        while self._step():
            pass

    def _step(self) -> bool:
        """Read one head, chunk or body from the buffer; return False if it does not contain a whole one."""
        if self._body:
            skipped = min(self._body, len(self._buffer))
            del self._buffer[:skipped]
            self._body -= skipped
            return skipped > 0
        if self._chunked:
            return self._chunk()
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return False
        self._head(bytes(self._buffer[: end + 2]))
        del self._buffer[: end + len(_HEAD_END)]
        return True

    def _chunk(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._buffer[:end])
        if not line:  # after the last chunk and its trailers
            del self._buffer[:2]
            self._chunked = False
            return True
        size = line.split(b";")[0].strip()
        length = int(size, 16) if re.fullmatch(rb"[0-9A-Fa-f]+", size) else -1  # -1: a trailer
        del self._buffer[: end + 2]
        if length > 0:
            self._counts.received += length
            self._body = length + 2
        return True

    def _head(self, head: bytes) -> None:
        verb, target = head.split(b" ", 2)[:2]
        self._counts.requests[verb.decode("ascii", "replace")] += 1
        self._counts.kinds[kind_of(verb, target, head)] += 1
        self._chunked = _CHUNKED.search(head) is not None
        length = _LENGTH.search(head)
        if length is not None and not self._chunked:
            self._body = int(length[1])
            decoded = _DECODED.search(head)
            self._counts.received += int(decoded[1]) if decoded else self._body


def kind_of(verb: bytes, target: bytes, head: bytes) -> str:
    """Return the kind of a request, by S3's own names of the operations where several share a verb."""
    path, _, query = target.decode("ascii", "replace").partition("?")
    names = parse_qs(query, keep_blank_values=True)
    is_bucket = "/" not in path.strip("/")
    match verb:
        case b"PUT":
            part, copy = "partNumber" in names, _COPY.search(head) is not None
            if part:
                return "part copy" if copy else "part"
            if copy:
                return "copy"
            return "put if" if _CONDITION.search(head) else "put"
        case b"POST":
            if "uploads" in names:
                return "multipart start"
            if "uploadId" in names:
                return "multipart end"
            return "delete many" if "delete" in names else "post"
        case b"GET":
            return "list" if is_bucket else "get"
        case b"DELETE":
            return "multipart abort" if "uploadId" in names else "delete"
        case _:
            return verb.decode("ascii", "replace").lower()


class CountingProxy:
    """The two listeners."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._counts = S3Counts()

    async def serve(self, port: int, control: int) -> None:
        """Serve until the process ends."""
        proxy = await asyncio.start_server(self._client, "127.0.0.1", port, limit=_CHUNK)
        answers = await asyncio.start_server(self._answer, "127.0.0.1", control)
        async with proxy, answers:
            await asyncio.gather(proxy.serve_forever(), answers.serve_forever())

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._upstream, limit=_CHUNK)
        except OSError:
            writer.close()
            return
        requests = asyncio.create_task(self._requests(reader, to_server))
        try:
            await self._responses(from_server, writer)
        finally:
            requests.cancel()
            for stream in (writer, to_server):
                stream.close()

    async def _requests(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        counter = RequestCounter(self._counts)
        with suppress(OSError):
            while block := await reader.read(_CHUNK):
                counter.feed(block)
                to.write(block)
                await to.drain()
            to.write_eof()

    async def _responses(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(_CHUNK):
                self._counts.sent += len(block)
                to.write(block)
                await to.drain()

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(self._counts.to_json()).encode() + b"\n")
        self._counts.reset()
        await writer.drain()
        writer.close()


def take_counts(control: int) -> dict[str, object]:
    """Return the counts since the last call. Not safe to repeat: the next call returns those after this one."""
    with (
        socket.create_connection(("127.0.0.1", control), timeout=10) as connection,
        connection.makefile() as lines,
    ):
        counts: dict[str, object] = json.loads(lines.readline())
        return counts


def main() -> None:
    """Serve with the ports of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", type=int, required=True, help="port of the S3 server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    arguments = parser.parse_args()
    proxy = CountingProxy(("127.0.0.1", arguments.upstream))
    asyncio.run(proxy.serve(arguments.port, arguments.control))


if __name__ == "__main__":
    main()
