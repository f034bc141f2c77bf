"""The cache of compiled loops: files whose names decide their content.

It is NUMBA_CACHE_DIR, or `__pycache__` next to the source of the loops, or the user's cache folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

_DIGEST_BYTES = 32


def cache_folders(source: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the folders that may have the code of a module's loops; new code is written to the first writable one."""
    if chosen := environ.get("NUMBA_CACHE_DIR"):
        return [Path(chosen)]
    home = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or "/") / ".cache")
    return [source.parent / "__pycache__", Path(home) / "tallystick"]


def read_code(path: Path) -> bytes | None:
    """Return the code of a file, or None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == content[:_DIGEST_BYTES] else None


def write_code(path: Path, code: bytes) -> None:
    """Write a file of the cache as a whole. Safe to repeat: its name decides its content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        new.write_bytes(hashlib.sha256(code).digest() + code)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
