"""Ends this process when its parent dies (Linux only)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
# Spark's launcher sets it for a Python process that it starts. Such a process is a child of the JVM.
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def die_with_parent() -> None:
    """Request that the kernel kills this process when its parent dies; on other systems nothing happens.

    Without this, if a worker is killed with -9, its task and the task's driver run on at the same time as their own
    retry. That does no harm to the lake, but wastes the machine.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with_jvm(environ: Mapping[str, str]) -> None:
    """Request the same for the Python process of a driver, if a JVM started it.

    If a cluster kills a driver, it kills the JVM. The job's Python notices that only at its next call of the JVM, and
    until then reads Kafka and writes files. A job that Python started by itself has no JVM as its parent, and is not
    affected.
    """
    if _GATEWAY in environ:
        parent = os.getppid()
        die_with_parent()
        if os.getppid() != parent:  # the JVM died before the request
            os._exit(1)
