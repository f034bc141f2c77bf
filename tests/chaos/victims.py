"""Finds the processes of a run, and kills or freezes them: scheduler > supervisor > task > spark-submit's JVM > driver.

Processes are found by their titles, and only among the descendants of a process that this run has started, so that no
other process is affected.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tallystick_devstack.process import wait_until

DEAD_S = 30.0
_SUPERVISOR = "airflow worker -- LocalExecutor"
_IDLE = "<idle>"
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One running task: its supervisor, the task's process, and the descendants of the task."""

    supervisor: psutil.Process
    task: psutil.Process | None
    below: tuple[psutil.Process, ...]

    @property
    def jvm(self) -> psutil.Process | None:
        """The JVM of spark-submit, None if it does not run."""
        return next((p for p in self.below if _name(p) == "java"), None)

    @property
    def driver(self) -> psutil.Process | None:
        """The Python process that runs the job's file, None if it does not run."""
        jvm = self.jvm
        below = _children(jvm) if jvm is not None else []
        return next((p for p in below if "--attempt" in _argv(p)), None)

    @property
    def all(self) -> tuple[psutil.Process, ...]:
        """All processes of this task, its supervisor first."""
        return (self.supervisor, *([self.task] if self.task else []), *self.below)

    def holds(self, pid: int | None) -> bool:
        """Return True if a process belongs to this task."""
        return pid in {p.pid for p in self.all}


def chains(scheduler_pid: int) -> list[Chain]:
    """Return the tasks that run below a scheduler (or its warden), the oldest first."""
    found = []
    for process in _below(scheduler_pid):
        title = " ".join(_argv(process))
        if title.startswith(_SUPERVISOR) and _IDLE not in title:
            children = _children(process)
            task = children[0] if children else None
            below = tuple(_below(task.pid)) if task is not None else ()
            found.append(Chain(supervisor=process, task=task, below=below))
    return sorted(found, key=lambda chain: chain.supervisor.pid)


def executors(worker_pids: Iterable[int]) -> list[psutil.Process]:
    """Return the JVMs of the executors below the workers of a standalone cluster."""
    return [p for pid in worker_pids for p in _below(pid) if _EXECUTOR in " ".join(_argv(p))]


def kill(victim: psutil.Process) -> None:
    """Kill a process with SIGKILL, and wait for its end. Safe to repeat: a dead process is not an error."""
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    wait_until(lambda: not is_alive(victim), deadline_s=DEAD_S, what=f"the end of {victim.pid}")


def freeze(victims: Sequence[psutil.Process]) -> tuple[psutil.Process, ...]:
    """Stop processes, wait until they are stopped, and return them. Safe to repeat: stopped processes remain stopped.

    A process that has just ended (of PySpark, for example) is not returned, although it may remain a zombie while its
    parent is stopped.
    """
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: not any(map(_runs, victims)), deadline_s=DEAD_S, what="all processes to be stopped"
    )
    return tuple(filter(is_alive, victims))


def thaw(victims: Sequence[psutil.Process]) -> None:
    """Let processes continue. Safe to repeat: running processes are unaffected."""
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGCONT)


def is_alive(process: psutil.Process) -> bool:
    """Return True if a process exists and has not ended (a zombie has)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _below(pid: int) -> list[psutil.Process]:
    return _or_empty(lambda: psutil.Process(pid).children(recursive=True))


def _children(process: psutil.Process) -> list[psutil.Process]:
    return _or_empty(process.children)


def _or_empty(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    try:
        return find()
    except psutil.NoSuchProcess:
        return []


def _argv(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
