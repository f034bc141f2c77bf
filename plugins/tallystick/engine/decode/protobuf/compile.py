"""Compiles .proto files with protoc: those of a registry when a run is planned, the text of a declaration in tasks."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from tallystick.errors import InvalidPipeline

_TIMEOUT_S = 60
_MESSAGE_CHARS_MAX = 2_000
_OUT = "descriptors"
# Warnings with a time, which protoc writes besides its messages.
_LOG_LINE = re.compile(r"WARNING: All log messages|[IWEF]\d{4} ")


def compiled_descriptors(protos: Mapping[str, str], root: str) -> bytes:
    """Return the serialized FileDescriptorSet of the file `root`, with all files that it imports.

    `protos`: the texts of the .proto files by the path that imports name; those of google/protobuf are known. The same
    texts give the same bytes. Raises InvalidPipeline with protoc's message, or if protoc is not installed.
    """
    if root not in protos:
        raise InvalidPipeline(
            f"file {root!r}: expected one of {', '.join(sorted(protos)) or 'no files'}.",
            hint="name the file that defines the message, by the path that imports use.",
        )
    check_protoc()
    with tempfile.TemporaryDirectory() as folder, as_file(files("grpc_tools") / "_proto") as known:
        source = Path(folder) / "source"
        for name, text in protos.items():
            path = source / _checked(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return _run(source, known, root, Path(folder) / _OUT)


def check_protoc() -> None:
    """Raise InvalidPipeline if protoc is not installed."""
    if find_spec("grpc_tools") is None:
        raise InvalidPipeline(
            "expected the package grpcio-tools, which contains protoc, found none.",
            hint="install tallystick[protobuf] where runs are planned; for a format with schema=..., also where Spark "
            "tasks run.",
        )


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or str(path) != name or "\\" in name:
        raise InvalidPipeline(
            f"file {name!r}: expected a relative path without `..`, as imports name it.",
            hint='write "shop/v1/order.proto".',
        )
    return path


def _run(source: Path, known: Path, root: str, out: Path) -> bytes:
    """Run protoc in a process of its own: it writes its messages to the process's standard error."""
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        *("-I", str(source), "-I", str(known)),
        *("--include_imports", f"--descriptor_set_out={out}"),
        str(source / root),
    ]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidPipeline(
            f"file {root!r}: expected protoc to end within {_TIMEOUT_S} s, found it running.",
            hint="make the file simpler: it takes too long to compile.",
        ) from error
    if ended.returncode or not out.exists():
        lines = [one for one in ended.stderr.splitlines() if not _LOG_LINE.match(one)]
        message = "; ".join(lines).replace(f"{source}/", "").rstrip(".")[:_MESSAGE_CHARS_MAX]
        raise InvalidPipeline(
            f"file {root!r}: expected a file that protoc compiles, found: {message or 'no message'}.",
            hint="correct the .proto file, and pass all files that it imports.",
        )
    return out.read_bytes()
