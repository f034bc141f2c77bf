"""A driver for one pipeline: the buttons of Airflow's pages, a barrier in front of its Spark job, and its lake.

It uses only public interfaces of Airflow: REST calls with the bodies that the pages send, and the `airflow` command.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from support.s3_hold import HeldSwaps, HoldingProxy
from support.user_action_project import Produced, Row, day, python_path
from tallystick.errors import TallystickError
from tallystick.format.page import Entry
from tallystick.format.root import Root
from tallystick.lake import Lake
from tallystick.operations.status import Status, read_status
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store
from tallystick.tables.reading import static_table
from tallystick_devstack.airflow_api import AirflowApi
from tallystick_devstack.kafka_login import confluent_words
from tallystick_devstack.parts import LocalStack
from tallystick_devstack.process import wait_until

DEADLINE_S = 1500.0
# A dozen scenarios poll at once, and every answer costs time of the api-server.
POLL_S = 4.0
LOG_LINES = 12


@dataclass(frozen=True)
class ActionStack:
    """The one stack of all user actions. `slots`: how many scenarios may hold a task, of four that run at once."""

    local: LocalStack
    project: Path
    base: Path
    proxy: HoldingProxy
    produced: Produced
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))

    def driver(self, pipeline: str) -> Driver:
        """Return a driver for one scenario."""
        return Driver(self, pipeline, self.local.airflow.api())

    @property
    def kafka(self) -> dict[str, str]:
        """librdkafka's settings for the broker, with user and password."""
        return confluent_words(self.local.kafka.client_settings())

    @property
    def submits(self) -> list[list[str]]:
        """The argv of every spark-submit so far."""
        calls = self.project / "calls"
        return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []

    def airflow_command(self, *words: str) -> str:
        """Run `airflow` as a user's shell does, and return its output."""
        completed = subprocess.run(
            ["airflow", *words],
            env={
                "PATH": self.local.airflow.environment()["PATH"],
                "HOME": str(self.base),
                **self.local.airflow.shell_environment(),
                **self.local.environment(),
                "PYTHONPATH": python_path(self.project),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout


@dataclass(frozen=True)
class Barrier:
    """The barrier at which the attempts of a pipeline's job wait while it is closed; each can be let pass by itself."""

    folder: Path

    def close(self) -> None:
        """Stop every attempt that arrives from now on. Safe to repeat: a closed barrier stays closed."""
        (self.folder / "closed").touch()

    def open_for_new(self) -> None:
        """Let new attempts pass; those that wait still wait. Safe to repeat: an open barrier stays open."""
        (self.folder / "closed").unlink(missing_ok=True)

    def arrived(self) -> list[tuple[str, int]]:
        """Return (attempt, process id of the Spark driver's Python) of every stopped attempt, the first one first."""
        files = sorted(self.folder.glob("here-*"), key=lambda path: path.stat().st_mtime_ns)
        names = [path.name.split("-") for path in files]
        return [(attempt, int(pid)) for _, attempt, pid in names]

    def wait_for(self, count: int) -> tuple[str, int]:
        """Wait until `count` attempts have arrived, and return the last of them."""
        wait_until(
            lambda: len(self.arrived()) >= count,
            deadline_s=DEADLINE_S,
            what=f"arrival {count} at {self.folder}",
            poll_s=0.2,
        )
        return self.arrived()[count - 1]

    def let_pass(self, attempt: str) -> None:
        """Let one attempt pass. Safe to repeat: it has passed."""
        (self.folder / f"go-{attempt}").touch()

    def open(self) -> None:
        """Let every attempt pass. Safe to repeat: an open barrier stays open."""
        self.open_for_new()
        for attempt, _ in self.arrived():
            self.let_pass(attempt)


@dataclass
class Driver:
    """The DAGs, the barrier and the lake of one pipeline."""

    stack: ActionStack
    pipeline: str
    api: AirflowApi

    def __post_init__(self) -> None:
        self.barrier = Barrier(self.stack.project / "barriers" / self.pipeline)
        self.uri = f"s3://lake/{self.pipeline}"
        # Reads bypass the proxy. One client for all reads: to make one costs more than a read.
        self.lake = Lake(open_store(self.uri), system_runtime())

    # Buttons

    def switch(self, *, on: bool, dag: str | None = None) -> None:
        """Pause or unpause the DAG."""
        self.api.set_paused(dag or self.pipeline, paused=not on)

    def trigger(self, run_id: str, *, dag: str | None = None, **conf: Any) -> str:
        """Press Trigger with these fields; `start` and `end` are the fields `from` and `to`."""
        dates = {"from": conf.pop("start", None), "to": conf.pop("end", None)}
        form = {**conf, **{name: at.isoformat() for name, at in dates.items() if at is not None}}
        self.api.trigger(dag or self.pipeline, conf=form, run_id=run_id)
        return run_id

    def clear(
        self, run_id: str, task: str, *, downstream: bool = True, prevent_running: bool = True
    ) -> None:
        """Press Clear on one task."""
        self.api.clear_tasks(
            self.pipeline,
            run_id,
            [task],
            downstream=downstream,
            prevent_running=prevent_running,
        )

    def mark(self, run_id: str, task: str, state: Literal["success", "failed"]) -> None:
        """Mark one task by hand."""
        self.api.mark_task(self.pipeline, run_id, task, state)

    def backfill(self, first: int, last: int, **settings: Any) -> None:
        """Backfill days, both inclusive, and wait until Airflow has closed it."""
        backfill = self.api.create_backfill(self.pipeline, day(first), day(last), **settings)
        self.api.wait_for_backfill(int(backfill["id"]), deadline_s=DEADLINE_S)

    # Waiting and reading

    def wait(self, run_id: str, state: str = "success", *, dag: str | None = None) -> None:
        """Wait for the end of a run, and check its state."""
        run = self.api.wait_for_run(dag or self.pipeline, run_id, deadline_s=DEADLINE_S)
        assert run["state"] == state, f"run {run_id} of {dag or self.pipeline} is {run['state']}"

    def wait_for_appearance(self, run_id: str, *, dag: str | None = None) -> None:
        """Wait until Airflow has created a run."""
        wait_until(lambda: run_id in self.run_ids(dag), deadline_s=DEADLINE_S, what=f"run {run_id}")

    def run_ids(self, dag: str | None = None) -> list[str]:
        """Return the ids of the DAG's runs, the oldest first."""
        return [str(run["dag_run_id"]) for run in self.api.runs(dag or self.pipeline)]

    def wait_for_task(self, run_id: str, task: str, *states: str) -> None:
        """Wait until a task is in one of the states."""
        self.api.wait_for_task(
            self.pipeline, run_id, task, states=set(states), deadline_s=DEADLINE_S
        )

    def log(self, run_id: str, task: str, *, dag: str | None = None, number: int = 0) -> str:
        """Return the log of a task's last try, or of try `number`, as one line; empty if it never ran."""
        tries = self.tries(run_id, task, dag=dag)
        number = number or tries
        log = self.api.log(dag or self.pipeline, run_id, task, number) if tries else ""
        return " ".join(log.split())

    def tries(self, run_id: str, task: str, *, dag: str | None = None) -> int:
        """Return the number of a task's last try, 0 if it never ran."""
        tries = self.api.tries(dag or self.pipeline, run_id, task)
        return int(tries[-1]["try_number"]) if tries else 0

    def plan_key(self, run_id: str) -> str:
        """Return the key of the run's only plan."""
        xcom: Any = self.api.xcom(self.pipeline, run_id, "plan")
        (plan,) = xcom["plans"]
        return str(plan["plan"])

    def report_key(self, run_id: str) -> str:
        """Return the key of the report that the run's stage returned."""
        xcom: Any = self.api.xcom(self.pipeline, run_id, "stage")
        (staged,) = xcom
        return str(staged["report"])

    @property
    def submits(self) -> list[list[str]]:
        """The argv of every spark-submit of this pipeline so far."""
        return [a for a in self.stack.submits if f"tallystick-{self.pipeline}" in a]

    # The lake

    @property
    def root(self) -> Root:
        """The current root."""
        return self.lake.load_existing().root

    @property
    def status(self) -> Status:
        """The answer of `tally status`."""
        return read_status(self.lake)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ledger."""
        return tuple(self.lake.load_existing().whole_ledger().entries)

    def entry(self, start: datetime) -> Entry:
        """Return the entry that begins at `start`."""
        return next(e for e in self.entries if e.interval.start == start)

    def generations(self) -> dict[int, int]:
        """Return the committed generations, by the day on which their interval begins."""
        return {e.interval.start.day: e.committed.generation for e in self.entries if e.committed}

    def rows(self) -> list[Row]:
        """Return (partition, offset, n) of every row of the table of events; a duplicate is listed twice."""
        metadata = self.root.tables["events"].metadata
        assert metadata is not None
        table = static_table(self.lake.store, metadata).scan().to_arrow()
        return sorted((r["_kafka_partition"], r["_offset"], r["n"]) for r in table.to_pylist())

    def expected(self, *days: int, factor: int = 1, topic: str = "january") -> list[Row]:
        """Return the rows of these days, each once."""
        return self.stack.produced.expected(topic, days, factor)

    # Holding

    @contextmanager
    def held_job(self) -> Iterator[Barrier]:
        """Stop this pipeline's jobs at their barrier; it is open at the end of the block at the latest."""
        with self.stack.slots:
            self.barrier.close()
            try:
                yield self.barrier
            finally:
                self.barrier.open()

    @contextmanager
    def held_swap(self, *, room: int = 1000) -> Iterator[HeldSwaps]:
        """Stop this lake's swaps on their way to the server, at most `room` of them; use it inside `held_job`."""
        with self.stack.proxy.holding(f"/lake/{self.pipeline}/root.json", room=room) as held:
            yield held

    # For people

    def history(self) -> str:
        """Return what happened so far: the ledger, runs with their tasks, the last log lines of each task that failed."""
        lines = [f"lake {self.uri}"]
        with suppress(TallystickError):
            lines += [f"  {_entry_line(entry)}" for entry in self.entries]
        dags = [d["dag_id"] for d in self.api.dags() if self.pipeline in d["dag_id"]]
        for dag in dags:
            for run in self.api.runs(dag):
                lines += self._run_lines(dag, str(run["dag_run_id"]), str(run["state"]))
        state = "closed" if (self.barrier.folder / "closed").exists() else "open"
        lines.append(f"barrier {state}; stopped attempts: {self.barrier.arrived()}")
        lines.append(f"{len(self.submits)} spark-submit(s)")
        return "\n".join(lines)

    def _log_on_disk(self, dag: str, run_id: str, task: str) -> list[str]:
        """Return the lines of a task's latest log; Airflow shows them only after the end of the task."""
        folder = self.stack.local.airflow.state_dir / "logs" / f"dag_id={dag}" / f"run_id={run_id}"
        files = sorted((folder / f"task_id={task}").glob("*.log"), key=lambda f: f.stat().st_mtime)
        return [_event(line) for line in files[-1].read_text().splitlines()] if files else []

    def _run_lines(self, dag: str, run_id: str, state: str) -> list[str]:
        tasks = {str(t["task_id"]): str(t["state"]) for t in self.api.tasks(dag, run_id)}
        states = ", ".join(
            f"{name} {tasks[name]}"
            for name in ("plan", "stage", "commit", "replay")
            if name in tasks
        )
        lines = [f"{dag} {run_id}: {state} ({states})"]
        for task in (
            name for name, state in tasks.items() if state not in ("success", "upstream_failed")
        ):
            log = self._log_on_disk(dag, run_id, task)
            lines += [f"    {task} | {line[:200]}" for line in log[-LOG_LINES:]]
        return lines


def _event(line: str) -> str:
    try:
        return str(json.loads(line)["event"])
    except (ValueError, KeyError, TypeError):
        return line


def _entry_line(entry: Entry) -> str:
    granted, committed = entry.granted, entry.committed
    grant = f"granted to {granted.request} as {granted.generation}" if granted else "not granted"
    if committed is None:
        return f"{entry.interval}: {grant}; nothing committed"
    return (
        f"{entry.interval}: {grant}; generation {committed.generation} committed by {committed.request}, "
        f"{committed.totals.records} records, {committed.totals.dead_letters} dead"
    )


def parent_of(pid: int) -> int:
    """Return the process that started `pid`."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words if word)
    return {name: text for name, _, text in pairs}
