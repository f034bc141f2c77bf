"""Finds the processes of a run, and kills or freezes them: scheduler > supervisor > task > spark-submit's JVM > driver.

Names are those that the processes give themselves; each is looked for below the process that this run has started, so
that nobody else's is ever touched.
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
    """One task that runs: its supervisor, the task's own process, and what the task has started below it."""

    supervisor: psutil.Process
    task: psutil.Process | None
    below: tuple[psutil.Process, ...]

    @property
    def jvm(self) -> psutil.Process | None:
        """The JVM of spark-submit, where it is up."""
        return next((p for p in self.below if _name(p) == "java"), None)

    @property
    def driver(self) -> psutil.Process | None:
        """The Python process that runs the job's file, where it is up."""
        jvm = self.jvm
        below = _children(jvm) if jvm is not None else []
        return next((p for p in below if "--attempt" in _argv(p)), None)

    @property
    def all(self) -> tuple[psutil.Process, ...]:
        """Everything of this task, its supervisor first."""
        return (self.supervisor, *([self.task] if self.task else []), *self.below)

    def holds(self, pid: int | None) -> bool:
        """Whether a process is one of this task's."""
        return pid in {p.pid for p in self.all}


def chains(scheduler_pid: int) -> list[Chain]:
    """The tasks that run below a scheduler (or its warden), the oldest first."""
    found = []
    for one in _below(scheduler_pid):
        title = " ".join(_argv(one))
        if title.startswith(_SUPERVISOR) and _IDLE not in title:
            children = _children(one)
            task = children[0] if children else None
            below = tuple(_below(task.pid)) if task is not None else ()
            found.append(Chain(supervisor=one, task=task, below=below))
    return sorted(found, key=lambda chain: chain.supervisor.pid)


def executors(worker_pids: Iterable[int]) -> list[psutil.Process]:
    """The executors' JVMs below the workers of a standalone cluster."""
    return [p for pid in worker_pids for p in _below(pid) if _EXECUTOR in " ".join(_argv(p))]


def kill(victim: psutil.Process) -> None:
    """Kill with -9, and wait until it is gone. Safe to repeat: the dead are left alone."""
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    wait_until(lambda: not is_alive(victim), deadline_s=DEAD_S, what=f"the end of {victim.pid}")


def freeze(victims: Sequence[psutil.Process]) -> tuple[psutil.Process, ...]:
    """Stop processes, wait until they stand still, and return them. Safe to repeat: the frozen stay so.

    Whoever had ended just then (a worker of PySpark, say) is not among them, although it may stay a zombie for as long
    as its parent stands still.
    """
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: not any(map(_moves, victims)), deadline_s=DEAD_S, what="everybody standing still"
    )
    return tuple(filter(is_alive, victims))


def thaw(victims: Sequence[psutil.Process]) -> None:
    """Let processes go on. Safe to repeat: those that run do not notice."""
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGCONT)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process exists and has not ended (a zombie has)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _moves(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _below(pid: int) -> list[psutil.Process]:
    return _quiet(lambda: psutil.Process(pid).children(recursive=True))


def _children(process: psutil.Process) -> list[psutil.Process]:
    return _quiet(process.children)


def _quiet(look: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    try:
        return look()
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
