"""The CPU seconds of each process of a measured command, by its part in a run.

The kernel keeps no account of processes that have ended, so each one is looked at every few milliseconds, and its last
figures count. What it uses after that is in no part; the sum of the group shows how much that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.whole_job.measured import TICKS_PER_S

PROC = Path("/proc")
JVM_LAUNCHER, JVM_DRIVER = "JVM that starts the driver", "driver: JVM"
PYTHON, DAEMON, WORKER, OTHER = "Python", "workers: daemon", "workers", "other"


@dataclass(slots=True)
class ProcessTimes:
    """The last seen CPU seconds by process. Call `look` while they run."""

    proc: Path = PROC
    _seconds: dict[int, float] = field(default_factory=dict)
    _words: dict[int, list[str]] = field(default_factory=dict)
    _parents: dict[int, int] = field(default_factory=dict)

    def look(self, pids: Iterable[int]) -> None:
        """Read the figures of these processes. One that has ended keeps the figures of the last look."""
        for pid in pids:
            with suppress(OSError, IndexError, ValueError):
                # The name, in brackets, can contain anything; the fields after it are numbers (proc(5)).
                numbers = (self.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
                words = (self.proc / str(pid) / "cmdline").read_text().split("\0")
                self._parents[pid] = int(numbers[1])
                self._seconds[pid] = (int(numbers[11]) + int(numbers[12])) / TICKS_PER_S
                if words[0]:
                    # A process that becomes another program has the words of the last one.
                    self._words[pid] = words

    def by_part(self) -> dict[str, float]:
        """Return the CPU seconds by part of the run."""
        found: dict[str, float] = {}
        for pid, seconds in self._seconds.items():
            part = part_of(pid, self._words, self._parents)
            found[part] = found.get(part, 0.0) + seconds
        return found


def part_of(pid: int, words: Mapping[int, list[str]], parents: Mapping[int, int]) -> str:
    """Return the part of a process by its command and its parent's."""
    own = " ".join(words.get(pid, []))
    if "org.apache.spark.launcher.Main" in own:
        return JVM_LAUNCHER
    if "org.apache.spark.deploy.SparkSubmit" in own:
        return JVM_DRIVER
    if _is_daemon(own):
        above = " ".join(words.get(parents.get(pid, 0), []))
        return WORKER if _is_daemon(above) else DAEMON
    return PYTHON if "python" in words.get(pid, [""])[0].rpartition("/")[2] else OTHER


def _is_daemon(words: str) -> bool:
    # Spark's own, and tallystick's, which has loaded what the workers need.
    return "pyspark.daemon" in words or "tallystick.spark.daemon" in words
