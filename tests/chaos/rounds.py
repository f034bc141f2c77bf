"""One round: produce records, start runs, compact at the same time, inject a fault, bring all to an end, audit.

The seed alone determines what a round draws: its lake, moment and victim. It does not control which of two processes is
faster, so the same seed may lead to another order of events.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from chaos.closing import Closing
from chaos.compactor import TARGETS, Compactor
from chaos.errors import MissedError, ViolationError
from chaos.moments import after_the_first_root, draw
from chaos.moved_rows import CompactedWatcher
from chaos.records import produce_days, start_of
from chaos.tap import Point, Trap
from chaos.victims import Chain, chains
from chaos.workspace import SEEN_S, Lake, Workspace
from oracle.audit import Finding
from oracle.produced import ProducerLog
from tallystick.errors import SettingsError, TallystickError
from tallystick_devstack.airflow_api import Json
from tallystick_devstack.process import wait_until

MOMENT_S = 600.0
SETTLE_S = 1200.0
CLEARS_MAX = 4
API_POLL_S = 1.0
_POLL_S = 0.5
_TAIL_LINES = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Nemesis:
    """A kind of fault. `inject` starts the round's runs (`at`, `begin`), injects the fault, and ends it before returning.

    `lake` draws fields of the round's lake; `ready` prepares the workspace, and raises an error if it cannot; `problem`
    checks what the oracle does not read, and returns None if it is right. `again`: in half of the rounds, the days are
    committed and compacted first, and the fault is injected while they are replaced.
    """

    name: str
    what: str
    inject: Callable[[Round], None]
    cluster: bool = False
    lake: Callable[[random.Random, Workspace], dict[str, Any]] = lambda _rng, _workspace: {}
    ready: Callable[[Workspace], None] = lambda _workspace: None
    problem: Callable[[Round], str | None] = lambda _round: None
    again: bool = True


@dataclass(slots=True, kw_only=True)
class Round:
    """One round of one nemesis; `prelude`: lines for the top of its DAG file, which break the product on purpose."""

    workspace: Workspace
    nemesis: Nemesis
    seed: int
    hold: bool | None = None
    prelude: str = ""
    report: Callable[[str], None] = lambda _: None
    steps: list[str] = field(default_factory=list)
    began_at: float = field(default_factory=time.monotonic)
    rng: random.Random = field(init=False)
    lake: Lake = field(init=False)
    log: ProducerLog = field(init=False)
    by_trigger: bool = field(init=False)
    again: bool = field(init=False)
    compactor: Compactor = field(init=False)
    runs_expected: int = 0
    runs_green: int = 0
    last_day: int = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.nemesis.name}/{self.seed}")
        again = ("-again" if self.hold else "") + ("-broken" if self.prelude else "")
        drawn = {"days": self.rng.choice((1, 1, 2)), **self.nemesis.lake(self.rng, self.workspace)}
        name = f"{self.nemesis.name}-{self.seed}{again}"
        self.lake = Lake(name=name, cluster=self.nemesis.cluster, prelude=self.prelude, **drawn)
        self.log = ProducerLog(self.workspace.base / f"{name}.sent", keep_values=True)
        self.by_trigger = self.rng.random() < 1 / 3
        drawn_apart = random.Random(f"{self.nemesis.name}/{self.seed}/compactions")
        self.again = self.nemesis.again and drawn_apart.random() < 0.5
        self.compactor = Compactor(
            workspace=self.workspace,
            lake=self.lake,
            target=drawn_apart.choice(TARGETS),
            rng=drawn_apart,
            note=self.note,
        )
        self.last_day = self.lake.days

    def note(self, line: str) -> None:
        """Record a step, with the seconds since the beginning of the round."""
        step = f"{time.monotonic() - self.began_at:6.1f} s  {line}"
        self.steps.append(step)
        self.report(f"    {step}")

    # ------------------------------------------------------------ the phases

    def run(self) -> Finding:
        """Play the round; raises MissedError if no fault was injected, ViolationError if the guarantee is violated."""
        workspace, lake = self.workspace, self.lake
        workspace.declare(lake)
        workspace.create_topic(lake.name)
        days = list(range(1, lake.days + 1))
        produce_days(workspace.kafka, lake.name, days=days, rng=self.rng, log=self.log)
        self._retry(lambda: workspace.api.wait_for_dag(lake.name, deadline_s=SEEN_S))
        self.note(f"{len(self.log.read())} records in {lake.days} day(s)")
        try:
            with CompactedWatcher(workspace.place(lake)) as watcher:
                with self.compactor:
                    if self.again:
                        self._commit_and_compact()
                    self.nemesis.inject(self)
                    self.settle()
                violations = [*watcher.violations, *self.compactor.problems]
        finally:
            self._switch_off()
        if violations:
            raise self.violation(f"a reader or a compaction found: {violations[0]}")
        return self._audited()

    def _commit_and_compact(self) -> None:
        """Commit all days, and wait until a compaction has moved their rows: the fault then meets replacements."""
        self.catch_up()
        self.settle()
        try:
            self.compactor.wait_for_one(MOMENT_S)
        except SettingsError as error:
            raise self.violation(f"nothing is compacted: {error}") from error
        self.note("the days are committed and compacted; they are replaced now")

    def begin(self) -> None:
        """Start the runs of all days, in one of three rounds with Trigger pressed at the same time.

        Two runs then request the same day: one gets it, the other leaves it out, and both must succeed.
        """
        if self.again:
            for day in range(1, self.lake.days + 1):
                self.trigger(day, mode="replace")
        else:
            self.catch_up()
        if self.by_trigger:
            self.trigger(1)

    def catch_up(self) -> None:
        """Switch the DAG on: a scheduled run for each day."""
        self._retry(lambda: self.workspace.api.set_paused(self.lake.name, paused=False))
        self.runs_expected += self.lake.days

    def trigger(self, day: int, *, mode: str = "process") -> None:
        """Press Trigger for one day."""
        span = {"from": start_of(day).isoformat(), "to": start_of(day + 1).isoformat()}
        conf = {"mode": mode, **span}
        # With this id, a second press is refused and starts nothing, if the answer to the first was lost.
        run_id = f"manual-{self.runs_expected}-of-day-{day}"
        self._retry(lambda: self.workspace.api.trigger(self.lake.name, conf=conf, run_id=run_id))
        self.runs_expected += 1
        self.last_day = max(self.last_day, day)

    @contextmanager
    def at(self, points: tuple[Point, ...], *, hold: bool | None = None) -> Iterator[Trap]:
        """Start the runs, and wait for a drawn moment; raises MissedError if they end before it."""
        points = after_the_first_root(points) if self.again else points
        moment = draw(self.rng, points, hold=self.hold if hold is None else hold)
        self.note(f"moment: {moment}")
        with self.workspace.tap.trap(moment.point, self.lake.name, hold=moment.hold) as trap:
            self.begin()
            self.until(trap.sprung.is_set, f"the moment ({moment})")
            inject_at = time.monotonic() + moment.delay_s
            wait_until(
                lambda: time.monotonic() >= inject_at, deadline_s=60.0, what="the end of the delay"
            )
            yield trap

    def until(self, check: Callable[[], bool], what: str, *, poll_s: float = 0.05) -> None:
        """Wait until `check` is true while the runs are active; raises MissedError if they end without it."""
        over, polled_at = False, time.monotonic()

        def happened_or_over() -> bool:
            nonlocal over, polled_at
            if check():
                return True
            if (
                time.monotonic() - polled_at >= API_POLL_S
            ):  # Airflow's API costs more than most checks
                over, polled_at = self._all_ended(), time.monotonic()
            return over

        try:
            wait_until(happened_or_over, deadline_s=MOMENT_S, what=what, poll_s=poll_s)
        except SettingsError as error:
            raise self.violation(f"the runs make no progress: {error}") from error
        # Check once more: it may have happened at the end of the last run.
        if over and not check():
            raise MissedError(f"the runs ended before {what}")

    def chain(self, trap: Trap, *, fits: Callable[[Chain], bool] = bool) -> Chain:
        """Return the running task that the trap holds, else draw one; raises MissedError if none is running."""
        found: list[Chain] = []

        def find() -> bool:
            found[:] = [c for c in chains(self.workspace.scheduler_pid) if fits(c)]
            if not found:
                trap.released.set()  # the victim has not started yet, and the held process may have to start it
            return bool(found)

        self.until(find, "a running task")
        trapped = [c for c in found if c.holds(trap.holder)]
        return trapped[0] if trapped else self.rng.choice(found)

    # ------------------------------------------------------------ the end

    def settle(self) -> None:
        """Bring every run to success: by Airflow's retries, and after the last retry by the Clear button.

        Raises ViolationError if that is not enough: after the faults have stopped, every run must be able to succeed.
        Safe to repeat: successful runs are unchanged.
        """
        clears = 0
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.workspace.revive()
            runs = self._runs()
            states = sorted(str(r["state"]) for r in runs)
            if len(runs) >= self.runs_expected and set(states) == {"success"}:
                if len(runs) > self.runs_green:
                    self.note(f"{len(runs)} run(s) succeeded after {clears} clear(s)")
                self.runs_green = len(runs)
                return
            if len(runs) >= self.runs_expected and set(states) <= {"success", "failed"}:
                if clears == CLEARS_MAX:
                    raise self.violation(f"runs are {states} after {clears} clears")
                clears += 1
                self._clear_failed(runs, whole=clears > 1)
            if time.monotonic() >= deadline:
                raise self.violation(f"runs are {states} after {SETTLE_S:g} s")
            time.sleep(_POLL_S)

    def _clear_failed(self, runs: list[Json], *, whole: bool) -> None:
        for run in runs:
            if run["state"] == "failed":
                run_id = str(run["dag_run_id"])
                self.note(f"Clear of {run_id}{'' if whole else ', failed tasks only'}")
                for line in self._last_log_lines(run_id)[-3:]:
                    self.note(f"  {line}")
                try:
                    self.workspace.api.clear_run(self.lake.name, run_id, only_failed=not whole)
                except TallystickError as error:
                    self.note(f"  refused: {error}")

    def _audited(self) -> Finding:
        days = range(1, self.last_day + 1)
        closing = Closing(
            workspace=self.workspace,
            lake=self.lake,
            compactor=self.compactor,
            sent=self.log.read(),
            acknowledged=self._acknowledged(),
            intervals=[(start_of(d), start_of(d + 1)) for d in days],
            note=self.note,
        )
        try:
            finding = closing.run()
        except ViolationError as found:
            raise self.violation(str(found)) from None
        problem = self.nemesis.problem(self)
        if problem is not None:
            raise self.violation(problem)
        self.note(f"{finding.records} records, each once; compactions: {self.compactor.counts}")
        return finding

    def violation(self, message: str) -> ViolationError:
        """Return a ViolationError with the steps of the round and the last log lines of its tasks."""
        lines = [message, "", *self.steps]
        try:
            for run in self._runs():
                lines += ["", f"{run['dag_run_id']} is {run['state']}"]
                lines += self._last_log_lines(str(run["dag_run_id"]))
        except TallystickError as error:
            lines.append(f"Airflow does not answer: {error}")
        return ViolationError("\n".join(lines))

    # ------------------------------------------------------------ Airflow

    def tries(self) -> list[Json]:
        """Return the last try of every task of every run; none while Airflow does not answer."""
        try:
            return [
                task
                for run in self._runs()
                for task in self.workspace.api.tasks(self.lake.name, str(run["dag_run_id"]))
            ]
        except TallystickError:
            return []

    def log_of(self, task: Json) -> str:
        """Return the logs of all tries of a task as one line, because Airflow breaks long lines."""
        name, run_id = self.lake.name, str(task["dag_run_id"])
        last = int(task["try_number"])
        logs = (
            self.workspace.api.log(name, run_id, str(task["task_id"]), n)
            for n in range(1, last + 1)
        )
        return " ".join(word for log in logs for word in log.split())

    def _retry(self, request: Callable[[], object]) -> None:
        """Repeat a request, which must be safe to repeat, until Airflow answers: it may be busy, or just starting."""

        def answered() -> bool:
            try:
                request()
            except TallystickError as error:
                return "answered 409" in str(error)  # an earlier try had this effect
            return True

        wait_until(answered, deadline_s=MOMENT_S, what="Airflow's answer", poll_s=0.5)

    def _runs(self) -> list[Json]:
        try:
            return self.workspace.api.runs(self.lake.name)
        except TallystickError:
            return []  # the nemesis may have killed the API's database

    def _all_ended(self) -> bool:
        runs = self._runs()
        return len(runs) >= max(1, self.runs_expected) and all(
            r["state"] in ("success", "failed") for r in runs
        )

    def _last_log_lines(self, run_id: str) -> list[str]:
        lines: list[str] = []
        for task in self.workspace.api.tasks(self.lake.name, run_id):
            lines.append(f"{task['task_id']} is {task['state']}, try {task['try_number']}")
            if task["state"] not in ("success", None) and int(task["try_number"]):
                try:
                    text = self.workspace.api.log(
                        self.lake.name, run_id, str(task["task_id"]), int(task["try_number"])
                    )
                    lines += [f"    {line[:160]}" for line in text.splitlines()[-_TAIL_LINES:]]
                except TallystickError as error:
                    lines.append(f"    no log: {error}")
        return lines

    def _acknowledged(self) -> set[str]:
        """Return the plans whose commit Airflow got as successful: all plans of successful runs."""
        ids = [str(run["dag_run_id"]) for run in self._runs()]
        xcoms: list[Any] = []
        for run_id in ids:
            self._retry(
                lambda at=run_id: xcoms.append(self.workspace.api.xcom(self.lake.name, at, "plan"))
            )
        return {planned["plan"] for xcom in xcoms for planned in xcom["plans"]}

    def _switch_off(self) -> None:
        try:
            self.workspace.api.set_paused(self.lake.name, paused=True)
        except TallystickError as error:
            self.note(f"the DAG could not be paused: {error}")
