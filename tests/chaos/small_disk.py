"""A disk of 256 KiB that can be filled to the last byte: a tmpfs, mounted where nobody else sees it.

A mount of an ordinary process would outlive its crash. This one belongs to a mount namespace of this run's own: the
kernel removes it with the last process of the run, whatever killed that. It needs root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import suppress
from pathlib import Path

SIZE_BYTES = 256 << 10
_CLONE_NEWNS = 0x00020000
_BALLAST = "ballast"
_BLOCK = bytes(4096)


class CannotMount(Exception):
    """This process may not mount; the reason is the system's own."""


def enter_own_namespace() -> str | None:
    """Leave the machine's mounts for a copy of them, before any thread or child is there; why not, where it cannot.

    Safe to repeat: a copy of a copy serves as well.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        return os.strerror(ctypes.get_errno())
    made = subprocess.run(
        ["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False
    )
    return made.stderr.strip() or None if made.returncode else None


class SmallDisk:
    """The disk at `folder`; it exists from the first `mount` on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mounted = False

    def mount(self) -> None:
        """Mount it, empty. Raises CannotMount. Safe to repeat: a mounted one is left alone."""
        if self._mounted:
            return
        self.folder.mkdir(exist_ok=True)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0777", "tmpfs", self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise CannotMount(made.stderr.strip())
        self._mounted = True

    def fill(self, *, but_bytes: int) -> None:
        """Write until the disk says ENOSPC, then give `but_bytes` back. Safe to repeat: the old ballast goes first."""
        self.drain()
        with (self.folder / _BALLAST).open("wb", buffering=0) as ballast:
            size = 0
            with suppress(OSError):
                while True:
                    size += ballast.write(_BLOCK)
            ballast.truncate(max(0, size - but_bytes))

    def drain(self) -> None:
        """Take the ballast away. Safe to repeat: without one nothing happens."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount it, also while somebody has a file open there. Safe to repeat: only a mounted one is unmounted."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", self.folder], check=False, capture_output=True)
            self._mounted = False
