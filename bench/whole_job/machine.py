"""Describes the machine and the versions, for the bundle."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from tallystick_devstack.java import find_java
from tallystick_devstack.kafka import KAFKA_VERSION

REPO = Path(__file__).resolve().parents[2]
_PACKAGES = ("pyspark", "pyarrow", "duckdb", "confluent-kafka", "ministack", "numpy", "boto3")


def describe_machine() -> dict[str, object]:
    """Return the cores, the memory, the kernel, and the state of the repository."""
    return {
        "cores": os.cpu_count() or 1,
        "cpu": _first("/proc/cpuinfo", "model name"),
        "memory_gb": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)),
        "kernel": platform.release(),
        "commit": _git("rev-parse", "HEAD"),
        "changed": _git("status", "--porcelain", "--untracked-files=no") != "",
    }


def describe_versions() -> dict[str, str]:
    """Return the versions of what several contenders or the servers use."""
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return {
        "python": platform.python_version(),
        "java": java.stderr.splitlines()[-1].strip(),
        "kafka broker": KAFKA_VERSION,
        **{name: version(name) for name in _PACKAGES},
    }


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=REPO, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"
