"""Reads the lines of a JSON lines file or of standard input, plain or gzip, as bytes and with their numbers."""

from __future__ import annotations

import gzip
import io
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from tallystick.errors import InvalidRequest

STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that is not blank: its number, from 1, and its bytes without the end of the line (LF or CRLF)."""

    number: int
    value: bytes


class LineReader(Protocol):
    """The lines of one pass over a source, and what the pass has left out so far."""

    blank_lines: int
    byte_order_mark: bool

    def __iter__(self) -> Iterator[Line]: ...

    def position(self) -> int:
        """Return how many bytes of the source are read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file, or standard input (`-`). `size_bytes` is None if it can be read only once: a pipe."""

    name: str
    size_bytes: int | None

    @property
    def rereadable(self) -> bool:
        """True if it can be read more than once."""
        return self.size_bytes is not None

    @contextmanager
    def lines(self, *, bytes_max: int) -> Iterator[LineReader]:
        """Open the source. Raises InvalidRequest for a line longer than `bytes_max`, and for damaged gzip content."""
        if self.name == STDIN:
            yield _Lines(self.name, sys.stdin.buffer, bytes_max)
            return
        with _opened(self.name) as raw:
            yield _Lines(self.name, raw, bytes_max)


def source(name: str) -> Source:
    """Return the source of that name. Raises InvalidRequest if there is no file that can be read."""
    if name == STDIN:
        return Source(name=name, size_bytes=None)
    try:
        found = Path(name).stat()
    except OSError as error:
        raise _unreadable(name, str(error.strerror)) from None
    if stat.S_ISDIR(found.st_mode):
        raise _unreadable(name, "it is a folder")
    regular = stat.S_ISREG(found.st_mode)
    return Source(name=name, size_bytes=found.st_size if regular else None)


def _opened(name: str) -> BinaryIO:
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise _unreadable(name, str(error.strerror)) from None


class _Lines:
    def __init__(self, name: str, raw: BinaryIO, bytes_max: int) -> None:
        self.blank_lines = 0
        self.byte_order_mark = False
        self._name, self._raw, self._bytes_max = name, raw, bytes_max
        self._counted = _Counted(raw)

    def position(self) -> int:
        return self._counted.read_bytes

    def __iter__(self) -> Iterator[Line]:
        buffered = io.BufferedReader(cast("io.RawIOBase", self._counted), 1 << 16)
        content: BinaryIO = buffered
        if buffered.peek(2)[:2] == _GZIP:
            content = cast("BinaryIO", gzip.GzipFile(fileobj=buffered))
        try:
            yield from self._split(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise _unreadable(self._name, f"its gzip content is damaged: {error}") from None
        except OSError as error:
            raise _unreadable(self._name, str(error)) from None

    def _split(self, content: BinaryIO) -> Iterator[Line]:
        number = 0
        while line := content.readline(self._bytes_max + 3):
            number += 1
            if number == 1 and line.startswith(_BOM):
                self.byte_order_mark = True
                line = line[len(_BOM) :]
            value = line
            if line.endswith(b"\n"):
                value = line[:-2] if line.endswith(b"\r\n") else line[:-1]
            if len(value) > self._bytes_max:
                raise InvalidRequest(
                    f"{self._name}, line {number}: expected at most {self._bytes_max:,} bytes (the topic's "
                    "max.message.bytes), found more.",
                    hint="check that the file has one JSON object per line; or split the line, or create the topic with "
                    "a larger max.message.bytes (--config).",
                )
            if not value.strip():
                self.blank_lines += 1
                continue
            yield Line(number=number, value=value)


class _Counted(io.RawIOBase):
    """A raw stream that counts what was read of it."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        self._raw = raw
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        # Of a pipe, read1 returns what is there: a slow writer's line is not held back until the buffer is full.
        read = getattr(self._raw, "read1", self._raw.read)
        chunk = read(len(buffer))
        buffer[: len(chunk)] = chunk
        self.read_bytes += len(chunk)
        return len(chunk)


def _unreadable(name: str, why: str) -> InvalidRequest:
    shown = "standard input" if name == STDIN else name
    return InvalidRequest(
        f"{shown}: expected a file of JSON lines (plain or gzip), found: {why}.",
        hint="name a file that can be read, or - for standard input.",
    )
