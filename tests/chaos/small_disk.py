"""A disk of 256 KiB that can be filled to the last byte: a tmpfs in a private mount namespace.

An ordinary mount would outlive a crash of its process. This one belongs to the run's own mount namespace: the kernel
removes it with the last process of the run, however that ends. It needs root.
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


class MountError(Exception):
    """This process may not mount; the text is the error of the system."""


def enter_own_namespace() -> str | None:
    """Enter a copy of the mount namespace; call it before any thread or child exists. Return the error, or None.

    Safe to repeat: a copy of the copy works as well.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        return os.strerror(ctypes.get_errno())
    completed = subprocess.run(
        ["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False
    )
    return completed.stderr.strip() or None if completed.returncode else None


class SmallDisk:
    """The disk at `folder`; it exists from the first `mount` on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mounted = False

    def mount(self) -> None:
        """Mount it, empty. Raises MountError. Safe to repeat: a mounted disk is unchanged."""
        if self._mounted:
            return
        self.folder.mkdir(exist_ok=True)
        completed = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0777", "tmpfs", self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            raise MountError(completed.stderr.strip())
        self._mounted = True

    def fill(self, *, but_bytes: int) -> None:
        """Write until ENOSPC, then free `but_bytes`. Safe to repeat: the old ballast is removed first."""
        self.drain()
        with (self.folder / _BALLAST).open("wb", buffering=0) as ballast:
            size = 0
            with suppress(OSError):
                while True:
                    size += ballast.write(_BLOCK)
            ballast.truncate(max(0, size - but_bytes))

    def drain(self) -> None:
        """Remove the ballast. Safe to repeat: without ballast nothing happens."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount it, even if a process has a file open there. Safe to repeat: only a mounted disk is unmounted."""
        if self._mounted:
            subprocess.run(["umount", "--lazy", self.folder], check=False, capture_output=True)
            self._mounted = False
