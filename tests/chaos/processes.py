"""Nemeses that kill processes of Airflow and Spark, and one that freezes a task for longer than Airflow waits."""

from __future__ import annotations

import random
from typing import Any

import psutil

from chaos.errors import MissedError
from chaos.moments import ANY, COMMIT, DRIVER, PLAN, REPORT, STAGE, UPLOAD
from chaos.rounds import Nemesis, Round
from chaos.victims import Chain, executors, freeze, is_alive, kill, thaw
from chaos.workspace import Workspace
from tallystick_devstack.process import wait_until

ZOMBIE_S = 300.0
# One executor with one core on each worker; all of them start before the first task.
_TWO_EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}


def _task(r: Round) -> None:
    with r.at((*PLAN, *STAGE, *COMMIT)) as trap:
        chain = r.chain(trap, fits=lambda c: c.task is not None)
        assert chain.task is not None
        r.note(f"kill -9 of task {chain.task.pid}")
        kill(chain.task)


def _supervisor(r: Round) -> None:
    with r.at((*PLAN, *STAGE, *COMMIT)) as trap:
        chain = r.chain(trap)
        r.note(f"kill -9 of supervisor {chain.supervisor.pid}")
        kill(chain.supervisor)


def _scheduler(r: Round) -> None:
    with r.at(ANY) as trap:
        r.note("kill -9 of the scheduler, its workers and their processes")
        r.workspace.stack.airflow.stop_component("scheduler", kill=True)
        trap.released.set()
        r.workspace.revive()


def _driver(r: Round) -> None:
    of_jvm = r.rng.random() < 0.5
    with r.at(STAGE) as trap:
        chain = r.chain(trap, fits=lambda c: _spark_of(c, of_jvm=of_jvm) is not None)
        victim = _spark_of(chain, of_jvm=of_jvm)
        assert victim is not None
        r.note(f"kill -9 of the {'JVM' if of_jvm else 'Python driver'} {victim.pid}")
        kill(victim)


def _spark_of(chain: Chain, *, of_jvm: bool) -> psutil.Process | None:
    return chain.jvm if of_jvm else chain.driver


def _executor(r: Round) -> None:
    with r.at(UPLOAD) as trap:
        found: list[psutil.Process] = []

        def find() -> bool:
            found[:] = executors(w.pid for w in r.workspace.stack.spark.workers.values() if w.alive)
            return bool(found)

        r.until(find, "an executor")
        victim = r.rng.choice(sorted(found, key=lambda p: p.pid))
        above = _above(trap.holder)
        victim = next((p for p in found if p.pid in above), victim)
        r.note(f"kill -9 of executor {victim.pid}")
        kill(victim)


def _above(pid: int | None) -> set[int]:
    try:
        return {p.pid for p in psutil.Process(pid).parents()} if pid is not None else set()
    except psutil.NoSuchProcess:
        return set()


def _worker(r: Round) -> None:
    with r.at((*UPLOAD, *REPORT)) as trap:
        workers = r.workspace.stack.spark.workers
        above = _above(trap.holder)
        drawn = r.rng.choice(sorted(workers))
        number = next((n for n, w in workers.items() if w.pid in above), drawn)
        r.note(f"kill -9 of Spark worker {number} with its executors")
        workers[number].kill()
        trap.released.set()
        r.workspace.revive()


def _on_cluster(_rng: random.Random, _workspace: Workspace) -> dict[str, Any]:
    # Several tasks per partition, so that some are still to run.
    return {"days": 1, "records_per_task": 60, "spark_conf": _TWO_EXECUTORS}


def _frozen(r: Round) -> None:
    """Freeze supervisor, task, JVM and driver; let the second attempt succeed; then let the first one continue."""
    alone_first, in_flight = r.rng.random() < 0.5, r.rng.random() < 0.5
    with r.at(DRIVER, hold=True) as trap:
        chain = r.chain(trap, fits=lambda c: c.driver is not None)
        frozen = freeze(chain.all)
        r.note(f"frozen: supervisor {chain.supervisor.pid} and {len(frozen) - 1} below it")
        try:
            if not in_flight:
                trap.released.set()
            r.settle()
            if not all(map(is_alive, frozen)):
                raise MissedError("the frozen attempt ended before it was thawed")
            trap.released.set()
            if alone_first:
                # The driver runs as far as it can before its supervisor, still frozen, can end it.
                thaw(chain.below)
                wait_until(
                    lambda: not any(map(is_alive, chain.below)),
                    deadline_s=ZOMBIE_S,
                    what="the end of the driver that Airflow treats as dead",
                )
        finally:
            thaw(frozen)
        r.note(f"thawed: {'the driver first' if alone_first else 'all at once'}")
        busy = [p for p in frozen if p.pid != chain.supervisor.pid]  # which then runs another task
        wait_until(
            lambda: not any(map(is_alive, busy)),
            deadline_s=ZOMBIE_S,
            what="the end of the attempt that Airflow treats as dead",
        )


PROCESSES = (
    Nemesis(name="task", what="kill -9 of the task process", inject=_task),
    Nemesis(name="supervisor", what="kill -9 of the task's supervisor", inject=_supervisor),
    Nemesis(name="scheduler", what="kill -9 of the scheduler and its workers", inject=_scheduler),
    Nemesis(name="driver", what="kill -9 of the Spark driver", inject=_driver),
    Nemesis(
        name="executor",
        what="kill -9 of a Spark executor",
        inject=_executor,
        cluster=True,
        lake=_on_cluster,
    ),
    Nemesis(
        name="worker",
        what="kill -9 of a Spark worker",
        inject=_worker,
        cluster=True,
        lake=_on_cluster,
    ),
    Nemesis(
        name="frozen-driver",
        what="SIGSTOP past the heartbeat timeout, then SIGCONT",
        inject=_frozen,
        lake=lambda _rng, _workspace: {"days": 1},
    ),
)
