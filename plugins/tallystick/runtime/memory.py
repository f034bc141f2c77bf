"""Sets how a process that stages records uses memory and threads, unless its user has set that already.

Batches of the same size are allocated and freed all the time. By default glibc returns each large block to the kernel at
once, and Arrow's allocator after 10 ms, so that the kernel clears the same pages again and again. Import neither PyArrow
nor numpy before `keep_freed_memory`: they read their settings when they are loaded.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import MutableMapping

# The largest that all versions of glibc accept.
_MMAP_BYTES = 32 * 2**20
_TRIM_BYTES = 256 * 2**20
_MMAP_NAME, _TRIM_NAME = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"
# The parameters of mallopt(3) of glibc that have the same meaning as the variables.
_PARAMETERS = {_MMAP_NAME: (-3, _MMAP_BYTES), _TRIM_NAME: (-1, _TRIM_BYTES)}
# The threads that numpy starts for linear algebra wait for work in a busy loop at first, in each process.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
MEMORY_ENVIRONMENT = {
    _MMAP_NAME: str(_MMAP_BYTES),
    _TRIM_NAME: str(_TRIM_BYTES),
    "MIMALLOC_PURGE_DELAY": "20000",  # ms
} | _ONE_THREAD
"""The environment of a process that stages records, for the process that starts it."""


def keep_freed_memory(environ: MutableMapping[str, str]) -> None:
    """Set the same for this process, without what its user has set; other systems than Linux keep their malloc.

    `environ`: the environment of this process, which PyArrow's and numpy's libraries read. Safe to repeat: the second
    call sets the same.
    """
    # glibc reads its variables only when the process starts.
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        for name, (parameter, size) in _PARAMETERS.items():
            if mallopt is not None and name not in environ:
                mallopt(parameter, size)
    for name, value in MEMORY_ENVIRONMENT.items():
        if name not in _PARAMETERS:
            environ.setdefault(name, value)
