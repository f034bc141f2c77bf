"""A desk for one pipeline: the buttons of Airflow's pages, a gate before its Spark job, and a look at its lake.

Nothing here reaches into Airflow: REST calls with the bodies that the pages send, and the `airflow` command.
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

from support.door_project import Produced, Row, day
from support.s3_hold import HeldSwaps, HoldingProxy
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
# A dozen stories ask at once, and every answer costs the api-server's time.
POLL_S = 1.0
LOG_LINES = 12


@dataclass(frozen=True)
class DoorStack:
    """The one stack that all doors are pulled on. `slots`: how many stories may hold a task, of four that run at once."""

    stack: LocalStack
    project: Path
    base: Path
    proxy: HoldingProxy
    produced: Produced
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))

    def desk(self, pipeline: str) -> Desk:
        """A desk of its own for one story."""
        return Desk(self, pipeline, self.stack.airflow.api())

    @property
    def kafka(self) -> dict[str, str]:
        """How librdkafka reaches the broker, with user and password."""
        return confluent_words(self.stack.kafka.client_settings())

    @property
    def submits(self) -> list[list[str]]:
        """The argv of every spark-submit so far."""
        noted = self.project / "calls"
        return [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []

    def airflow_command(self, *words: str) -> str:
        """Run `airflow` as a person's shell does, and return what it said."""
        told = subprocess.run(
            ["airflow", *words],
            env={
                "PATH": self.stack.airflow.environment()["PATH"],
                "HOME": str(self.base),
                **self.stack.airflow.shell_environment(),
                **self.stack.environment(),
                "PYTHONPATH": str(self.project / "plugins"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout


@dataclass(frozen=True)
class Gate:
    """The gate at which a pipeline's job waits while it is shut; an attempt that came passes when it is told to."""

    folder: Path

    def shut(self) -> None:
        """Stop every attempt that comes from now on. Safe to repeat: a shut gate stays shut."""
        (self.folder / "shut").touch()

    def open_for_others(self) -> None:
        """Let pass whoever comes from now on; those who wait go on waiting. Safe to repeat: an open gate stays open."""
        (self.folder / "shut").unlink(missing_ok=True)

    def arrived(self) -> list[tuple[str, int]]:
        """(attempt, process id of the driver's Python) of all who ever came to the shut gate, the first one first."""
        files = sorted(self.folder.glob("here-*"), key=lambda path: path.stat().st_mtime_ns)
        names = [path.name.split("-") for path in files]
        return [(attempt, int(pid)) for _, attempt, pid in names]

    def wait_for(self, count: int) -> tuple[str, int]:
        """Wait until that many have come, and return the last one."""
        wait_until(
            lambda: len(self.arrived()) >= count,
            deadline_s=DEADLINE_S,
            what=f"arrival {count} at {self.folder}",
            poll_s=0.2,
        )
        return self.arrived()[count - 1]

    def let(self, attempt: str) -> None:
        """Let one attempt pass. Safe to repeat: it has passed."""
        (self.folder / f"go-{attempt}").touch()

    def open(self) -> None:
        """Let everybody pass. Safe to repeat: an open gate stays open."""
        self.open_for_others()
        for attempt, _ in self.arrived():
            self.let(attempt)


@dataclass
class Desk:
    """One pipeline's DAGs, gate and lake."""

    doors: DoorStack
    pipeline: str
    api: AirflowApi

    def __post_init__(self) -> None:
        self.gate = Gate(self.doors.project / "gates" / self.pipeline)
        self.uri = f"s3://lake/{self.pipeline}"
        # Read past the proxy. One client for all reads: making one costs more than a read.
        self.lake = Lake(open_store(self.uri), system_runtime())

    # Buttons

    def switch(self, *, on: bool, dag: str | None = None) -> None:
        """Turn the DAG's switch."""
        self.api.set_paused(dag or self.pipeline, paused=not on)

    def trigger(self, run_id: str, *, dag: str | None = None, **conf: Any) -> str:
        """Press Trigger with this form; `start` and `end` are the fields `from` and `to`."""
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
        made = self.api.create_backfill(self.pipeline, day(first), day(last), **settings)
        self.api.wait_for_backfill(int(made["id"]), deadline_s=DEADLINE_S)

    # Waiting and reading

    def wait(self, run_id: str, state: str = "success", *, dag: str | None = None) -> None:
        """Wait for a run's end, which must be this one."""
        run = self.api.wait_for_run(dag or self.pipeline, run_id, deadline_s=DEADLINE_S)
        assert run["state"] == state, f"run {run_id} of {dag or self.pipeline} is {run['state']}"

    def wait_for_appearance(self, run_id: str, *, dag: str | None = None) -> None:
        """Wait until Airflow has made a run."""
        wait_until(lambda: run_id in self.run_ids(dag), deadline_s=DEADLINE_S, what=f"run {run_id}")

    def run_ids(self, dag: str | None = None) -> list[str]:
        """The DAG's runs, the oldest first."""
        return [str(run["dag_run_id"]) for run in self.api.runs(dag or self.pipeline)]

    def wait_for_task(self, run_id: str, task: str, *states: str) -> None:
        """Wait until a task is in one of the states."""
        self.api.wait_for_task(
            self.pipeline, run_id, task, states=set(states), deadline_s=DEADLINE_S
        )

    def log(self, run_id: str, task: str, *, dag: str | None = None, number: int = 0) -> str:
        """The log of a task's last try, or of try `number`, as one line; empty where it never ran."""
        tries = self.tries(run_id, task, dag=dag)
        number = number or tries
        log = self.api.log(dag or self.pipeline, run_id, task, number) if tries else ""
        return " ".join(log.split())

    def tries(self, run_id: str, task: str, *, dag: str | None = None) -> int:
        """The number of a task's last try, 0 where it never ran."""
        found = self.api.tries(dag or self.pipeline, run_id, task)
        return int(found[-1]["try_number"]) if found else 0

    def plan_key(self, run_id: str) -> str:
        """The key of the run's one plan."""
        told: Any = self.api.xcom(self.pipeline, run_id, "plan")
        (plan,) = told["plans"]
        return str(plan["plan"])

    def report_key(self, run_id: str) -> str:
        """The key of the report that the run's stage named."""
        told: Any = self.api.xcom(self.pipeline, run_id, "stage")
        (staged,) = told
        return str(staged["report"])

    @property
    def submits(self) -> list[list[str]]:
        """The argv of every spark-submit of this pipeline so far."""
        return [a for a in self.doors.submits if f"tallystick-{self.pipeline}" in a]

    # The lake

    @property
    def root(self) -> Root:
        """The root of now."""
        return self.lake.load_existing().root

    @property
    def status(self) -> Status:
        """What `tally status` says."""
        return read_status(self.lake)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ledger."""
        return tuple(self.lake.load_existing().whole_ledger().entries)

    def entry(self, start: datetime) -> Entry:
        """The entry that begins at `start`."""
        return next(e for e in self.entries if e.interval.start == start)

    def generations(self) -> dict[int, int]:
        """The committed generations by the day that their interval begins with."""
        return {e.interval.start.day: e.committed.generation for e in self.entries if e.committed}

    def rows(self) -> list[Row]:
        """(partition, offset, n) of every row of the table of events, a double row twice."""
        metadata = self.root.tables["events"].metadata
        assert metadata is not None
        table = static_table(self.lake.store, metadata).scan().to_arrow()
        return sorted((r["_kafka_partition"], r["_offset"], r["n"]) for r in table.to_pylist())

    def expected(self, *days: int, factor: int = 1, topic: str = "doors") -> list[Row]:
        """The rows of these days, each once."""
        return self.doors.produced.expected(topic, days, factor)

    # Holding

    @contextmanager
    def held_job(self) -> Iterator[Gate]:
        """Stop this pipeline's jobs at their gate, open it at the end of the block at the latest."""
        with self.doors.slots:
            self.gate.shut()
            try:
                yield self.gate
            finally:
                self.gate.open()

    @contextmanager
    def held_swap(self, *, room: int = 1000) -> Iterator[HeldSwaps]:
        """Stop this lake's swaps on their way to the server, at most `room` of them; inside `held_job`."""
        with self.doors.proxy.holding(f"/lake/{self.pipeline}/root.json", room=room) as held:
            yield held

    # For people

    def story(self) -> str:
        """What happened so far: the ledger, runs with their tasks, the last lines of each log that did not end well."""
        lines = [f"lake {self.uri}"]
        with suppress(TallystickError):
            lines += [f"  {_entry_line(entry)}" for entry in self.entries]
        dags = [d["dag_id"] for d in self.api.dags() if self.pipeline in d["dag_id"]]
        for dag in dags:
            for run in self.api.runs(dag):
                lines += self._run_lines(dag, str(run["dag_run_id"]), str(run["state"]))
        shut = "shut" if (self.gate.folder / "shut").exists() else "open"
        lines.append(f"gate {shut}; came to it: {self.gate.arrived()}")
        lines.append(f"{len(self.submits)} spark-submit(s)")
        return "\n".join(lines)

    def _log_on_disk(self, dag: str, run_id: str, task: str) -> list[str]:
        """The lines of a task's latest log; Airflow shows them only once the task has ended."""
        folder = self.doors.stack.airflow.state_dir / "logs" / f"dag_id={dag}" / f"run_id={run_id}"
        files = sorted((folder / f"task_id={task}").glob("*.log"), key=lambda f: f.stat().st_mtime)
        return [_event(line) for line in files[-1].read_text().splitlines()] if files else []

    def _run_lines(self, dag: str, run_id: str, state: str) -> list[str]:
        tasks = {str(t["task_id"]): str(t["state"]) for t in self.api.tasks(dag, run_id)}
        states = ", ".join(
            f"{name} {tasks[name]}" for name in ("plan", "stage", "commit") if name in tasks
        )
        lines = [f"{dag} {run_id}: {state} ({states})"]
        for task in (
            name for name, its in tasks.items() if its not in ("success", "upstream_failed")
        ):
            told = self._log_on_disk(dag, run_id, task)
            lines += [f"    {task} | {line[:200]}" for line in told[-LOG_LINES:]]
        return lines


def _event(line: str) -> str:
    try:
        return str(json.loads(line)["event"])
    except (ValueError, KeyError, TypeError):
        return line


def _entry_line(entry: Entry) -> str:
    granted, committed = entry.granted, entry.committed
    held = (
        f"granted to {granted.request} as {granted.generation}" if granted else "granted to nobody"
    )
    if committed is None:
        return f"{entry.interval}: {held}; nothing committed"
    return (
        f"{entry.interval}: {held}; generation {committed.generation} committed by {committed.request}, "
        f"{committed.totals.records} records, {committed.totals.dead_letters} dead"
    )


def parent_of(pid: int) -> int:
    """The process that started `pid`."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words if word)
    return {name: text for name, _, text in pairs}
