"""Rotates the logs of a stack's servers, which otherwise grow as long as the servers run.

The servers keep their log files open and append to them. So a file is copied and then truncated, never renamed. Lines
that a server writes between the copy and the truncation are lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LOG_MAX_BYTES = 8 << 20
KEPT = 1


def last_rotation(log: Path) -> tuple[int, int] | None:
    """Return what identifies the last rotation of a log: the copy's inode and time in nanoseconds. None: it had none.

    The length of the log does not show a rotation: after it, the log can grow longer than it was.
    """
    with suppress(OSError):
        copy = log.with_name(f"{log.name}.{KEPT}").stat()
        return copy.st_ino, copy.st_mtime_ns
    return None


def rotate(logs: Iterable[Path], *, max_bytes: int = LOG_MAX_BYTES) -> None:
    """Copy each log that is longer than `max_bytes` to `<name>.1`, then truncate it.

    If a log cannot be copied (a full disk), it is not changed. Safe to repeat: the next copy overwrites an interrupted
    one, and the log is truncated only after the copy is complete.
    """
    for path in logs:
        with suppress(OSError):
            if path.stat().st_size > max_bytes:
                fresh = path.with_name(f"{path.name}.new")
                shutil.copyfile(path, fresh)
                fresh.replace(path.with_name(f"{path.name}.{KEPT}"))
                os.truncate(path, 0)
