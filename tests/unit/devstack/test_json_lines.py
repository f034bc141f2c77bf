"""The lines of a file: each byte of a line, no byte of its end, in every form of a file."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tallystick.errors import InvalidRequest
from tallystick_devstack.json_lines import source


def read(path: Path | str, *, bytes_max: int = 1000) -> list[tuple[int, bytes]]:
    """Return the numbers and the bytes of the lines."""
    with source(str(path)).lines(bytes_max=bytes_max) as lines:
        return [(line.number, line.value) for line in lines]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n\r\n  \n", []),
        (b"a\nb\n", [(1, b"a"), (2, b"b")]),
        (b"a\nb", [(1, b"a"), (2, b"b")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"a\r\nb", [(1, b"a"), (2, b"b")]),
        (b"a\n\nb\n", [(1, b"a"), (3, b"b")]),
        (b" a \t\nb\rc\n", [(1, b" a \t"), (2, b"b\rc")]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [(1, b"a"), (2, b"\xef\xbb\xbfb")]),
        (b"\xff\x00\nb", [(1, b"\xff\x00"), (2, b"b")]),
        (b"x" * 1000 + b"\r\n", [(1, b"x" * 1000)]),
        (b"\xef\xbb\xbf" + b"x" * 1000 + b"\n", [(1, b"x" * 1000)]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_is_sent_byte_for_byte(
    tmp_path: Path, content: bytes, lines: list[tuple[int, bytes]], packed: bool
) -> None:
    path = tmp_path / "file.json"  # gzip is found by the content, not by the name
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read(path) == lines


def test_blank_lines_and_a_byte_order_mark_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbfa\n\n \nb\n")
    with source(str(path)).lines(bytes_max=10) as lines:
        assert (lines.blank_lines, lines.byte_order_mark) == (0, False)
        assert len(list(lines)) == 2
        assert (lines.blank_lines, lines.byte_order_mark) == (2, True)
        assert lines.position() == path.stat().st_size


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_that_is_too_long_is_named_by_its_number(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"a\n" + b"x" * 1001 + end)
    with pytest.raises(InvalidRequest, match=r"line 2: expected at most 1,000 bytes"):
        read(path)


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-9], lambda c: c[:5], lambda c: c[:12] + b"\xff" * 30 + c[42:]]
)
def test_damaged_gzip_content_is_an_error_and_not_a_shorter_file(
    tmp_path: Path, damage: object
) -> None:
    path = tmp_path / "file.json.gz"
    assert callable(damage)
    path.write_bytes(damage(gzip.compress(os.urandom(500).hex().encode() + b"\n")))
    with pytest.raises(InvalidRequest, match="gzip content is damaged"):
        read(path, bytes_max=10_000)


def test_gzip_members_one_after_another_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert read(path) == [(1, b"a"), (2, b"b")]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        source(str(tmp_path / "none"))
    with pytest.raises(InvalidRequest, match="it is a folder"):
        source(str(tmp_path))


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    content = b"a\r\n\nb"
    buffer = io.BytesIO(gzip.compress(content) if packed else content)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=buffer))
    assert not source("-").rereadable
    assert read("-") == [(1, b"a"), (3, b"b")]


def test_a_named_pipe_is_read_once_and_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    seen = threading.Event()

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(b"a\n")
            seen.wait(30)  # the second line is written after the first was read
            pipe.write(b"b\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert not source(str(path)).rereadable
    found = []
    with source(str(path)).lines(bytes_max=10) as lines:
        for line in lines:
            found.append(line.value)
            seen.set()
    writer.join()
    assert found == [b"a", b"b"]


def test_a_file_is_rereadable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\n")
    found = source(str(path))
    assert (found.rereadable, found.size_bytes) == (True, 2)
    assert read(path) == read(path)
