"""Keeps the logs of a stack's servers small: a server writes for as long as it runs, and its file would only grow.

The servers hold their files open and append to them, so a file is copied and then emptied, never renamed. What a server
writes in the moment between the two is lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LOG_MAX_BYTES = 8 << 20
KEPT = 1


def rotate(logs: Iterable[Path], *, max_bytes: int = LOG_MAX_BYTES) -> None:
    """Copy each log that is longer than `max_bytes` to `<name>.1`, and empty it.

    A log that cannot be copied (a full disk) stays as it is. Safe to repeat: an interrupted copy is written over by the
    next one, and the log is emptied only after the copy is whole.
    """
    for path in logs:
        with suppress(OSError):
            if path.stat().st_size > max_bytes:
                fresh = path.with_name(f"{path.name}.new")
                shutil.copyfile(path, fresh)
                fresh.replace(path.with_name(f"{path.name}.{KEPT}"))
                os.truncate(path, 0)
