"""The actors of the explorer's schedules: runs of the three tasks, collections by gc, and adoptions of a topic.

Each is a process of its own (a greenlet) that runs tallystick's own code and returns control at every step.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import greenlet

from simulation.environment import (
    PIPELINE,
    TOPIC,
    Session,
    SimulatedLog,
    SimulatedStore,
    SimulatedTables,
    Simulation,
    ViolationError,
    at,
)
from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    InvalidRequest,
    OutsideRetention,
    RetryLater,
    RootVanished,
    Superseded,
    TallystickError,
)
from tallystick.format import keys
from tallystick.format.interval import Request
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport, RangeAccount, Report
from tallystick.format.root import Root
from tallystick.lake import Lake
from tallystick.operations.adopt_topic import adopt
from tallystick.operations.commit import commit
from tallystick.operations.compact import CompactOptions, CompactResult, compact
from tallystick.operations.gc import Collection, collect
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.run_request import RunDates, RunParams
from tallystick.operations.stage import still_granted, to_stage
from tallystick.operations.stage_together import OtherPlans, StageTogether
from tallystick.pipeline import Pipeline

TASKS = ("plan", "stage", "commit")


@dataclass
class Run:
    """One Airflow run: three tasks, retries, clears. `hours` None: triggered without dates."""

    sim: Simulation
    log: SimulatedLog
    name: str
    hours: tuple[int, int] | None
    replace: bool
    take_over: bool
    run_after: int
    clear_number: int = 0
    task: int = 0
    results: dict[int, Any] = field(default_factory=dict)
    actor: greenlet.greenlet | None = None
    done: bool = False
    refused: bool = False
    accept_loss: bool = False
    error: TallystickError | None = None
    pipeline: Pipeline = PIPELINE
    # The runs whose stage tasks share their attempts with this run, by name; empty if each stages its own plans only.
    together: Mapping[str, Run] = field(default_factory=dict)
    fresh: bool = True
    used: int = 0

    def ready(self) -> bool:
        """Return whether the scheduler would start the run."""
        return self.sim.hour >= (self.hours[1] if self.hours else self.run_after)

    def clear(self, task: int) -> None:
        """Clear the run as the Clear button does: a new clear number, and the tasks from `task` on run again."""
        self.clear_number += 1
        self.task = min(task, self.task)
        self.done, self.actor, self.error, self.fresh = False, None, None, True

    def recreate(self) -> None:
        """Recreate the run as after a new metadata database: the same run id, no result, and clears that count from 0."""
        self.clear_number, self.task = 0, 0
        self.results.clear()
        self.fresh = True
        self.done, self.actor, self.error = False, None, None

    @property
    def clears_restarted(self) -> bool:
        """True if the run failed because the ledger has a higher clear number of it."""
        return isinstance(self.error, Superseded) and "take_over=true" in str(self.error)

    def start(self) -> None:
        """Start the current task as a new process."""
        self.sim.trace.append(
            f"start {self.name}.{TASKS[self.task]} code={self.sim.code} clear={self.clear_number}"
        )
        body = (self._plan, self._stage, self._commit)[self.task]
        self.actor = greenlet.greenlet(functools.partial(self._guarded, body, self.sim.code))

    def _guarded(self, body: Callable[[int], Any], code: int) -> tuple[str, Any]:
        try:
            return "ok", body(code)
        except TallystickError as error:
            return "error", error

    def step(self) -> None:
        """Run the current task until its next step."""
        if self.actor is None:
            if self.done or not self.ready():
                return
            self.start()
        assert self.actor is not None
        outcome = self.actor.switch()
        if not self.actor.dead:
            return
        self.actor = None
        how, value = outcome
        self.sim.trace.append(
            f"{how} {self.name}.{TASKS[self.task]} {value if how == 'error' else ''}"
        )
        if how == "ok":
            self._succeeded(value)
        elif not isinstance(value, RetryLater):
            self.done, self.error = True, value
            # Rows that were read before an adoption are never replaced: no clear of this run can succeed.
            last_copy = "A replacement would lose their rows" in str(value)
            self.refused = self.refused or last_copy or isinstance(value, InvalidRequest)
            self.accept_loss = self.accept_loss or isinstance(value, OutsideRetention)

    def _succeeded(self, value: Any) -> None:
        self.results[self.task] = value
        self.error = None
        if self.task == 2:
            self.done = True
        else:
            self.task += 1

    # ------------------------------------------------------------ the three tasks, each a process of its own

    def _lake(self) -> tuple[Lake, SimulatedStore]:
        store = SimulatedStore(self.sim)
        lake = Lake(store, self.sim.runtime(), proven=True, page_bytes_max=self.sim.page_bytes_max)
        return lake, store

    def _plan(self, code: int) -> PlanResult:
        lake, _ = self._lake()
        start, end = (at(h) for h in self.hours) if self.hours else (None, None)
        request = PlanRequest(
            pipeline=self.pipeline,
            job_source=str(code).encode(),
            request=Request(dag="d", run=self.name, clear=self.clear_number),
            params=RunParams(
                mode="replace" if self.replace and self.hours else "process",
                start=start,
                end=end,
                take_over=self.take_over,
                accept_loss=self.accept_loss,
            ),
            dates=RunDates(data_interval=None, run_after=at(self.run_after)),
            first=at(0),
        )
        return plan(lake, Session(self.log), request)

    def _stage(self, code: int) -> list[tuple[str, str]]:
        lake, store = self._lake()
        planned: PlanResult = self.results[0]
        plan_keys = [p.plan for p in planned.intervals if not p.committed]
        fingerprint = fingerprint_of(code)
        todo = to_stage(lake, plan_keys, fingerprint=fingerprint)
        if not self.together:
            return [
                (p.key, stage_one(lake, store, self.log, p, self.sim.uuid())) for p in todo.plans
            ]
        return self._stage_together(lake, store, todo.plans)

    def _stage_together(
        self, lake: Lake, store: SimulatedStore, plans: Sequence[Plan]
    ) -> list[tuple[str, str]]:
        """Stage as a stage task and its driver that share attempts with other runs."""
        attempt = self.sim.uuid()
        fresh, self.fresh = self.fresh, False
        shared = StageTogether(
            lake=lake,
            request=Request(dag="d", run=self.name, clear=self.clear_number),
            attempt=attempt,
            fresh=fresh,
            is_running=lambda request: self.together[request.run].stages,
            note=self.sim.trace.append,
        )
        reports: dict[str, str] = dict(shared.reports(plans))
        self.used += len(reports)
        rest = [p for p in plans if p.key not in reports]
        others = OtherPlans(lake=lake, own=rest, attempt=attempt, plans_max=2)
        claimed = list(others.claim_more())
        reports |= {p.key: stage_one(lake, store, self.log, p, attempt) for p in rest}
        # The driver: the claimed plans, and then what is granted by now.
        try:
            for other in itertools.chain(claimed, others.claim_more()):
                if still_granted(lake, other.key) is not None:
                    key = keys.claimed_report(other.key, attempt)
                    stage_one(lake, store, self.log, other, attempt, report_key=key)
        except TallystickError as error:
            self.sim.trace.append(f"   {self.name} stages no further plan of another run: {error}")
        return list(reports.items())

    @property
    def stages(self) -> bool:
        """True if Airflow shows the run's stage task as running. After the faults, no run waits for another."""
        return self.sim.faults and self.actor is not None and self.task == 1

    def _commit(self, code: int) -> list[Any]:
        lake, store = self._lake()
        tables = SimulatedTables(store, lake.runtime)
        return [
            commit(lake, tables, plan_key=plan_key, report_key=report_key)
            for plan_key, report_key in self.results[1]
        ]


@functools.cache
def fingerprint_of(code: int) -> str:
    """Return the fingerprint of a deployed version."""
    return PIPELINE.fingerprint(str(code).encode())


def stage_one(
    lake: Lake,
    store: SimulatedStore,
    log: SimulatedLog,
    todo: Plan,
    attempt: str,
    *,
    report_key: keys.ReportKey | None = None,
) -> str:
    """Stage a plan without Spark: write one file per table that lists its offsets, then the real report.

    `report_key`: the key of the report, if it is announced by a claim.
    """
    for t in todo.topics:
        if any(not r.readable.empty for r in t.ranges) and t.topic_id != log.topic_id:
            raise IdentityChanged(f"{log.topic_id}, not {t.topic_id}.", hint="adopt it.")
    rows = [
        [t.name, p, r.start, r.end]
        for t in todo.topics
        for p, r in enumerate(t.ranges)
        if not r.span.empty
    ]
    files: list[FileReport] = []
    for table in ("a", "b"):
        key = keys.data_file(table, todo.key, attempt, "0", lake.runtime.uuid())
        body = json.dumps(rows).encode()
        lake.put_new(key, body)
        stored = store.sim.objects[key]
        files.append(
            FileReport(table=table, key=key, etag=stored.etag, size_bytes=len(body), rows=len(rows))
        )
    accounts = tuple(
        RangeAccount(
            topic=t.name,
            partition=p,
            start=r.start,
            end=r.end,
            records=r.readable.length,
            lost=r.lost,
        )
        for t in todo.topics
        for p, r in enumerate(t.ranges)
    )
    report = Report(
        key=report_key
        or keys.report(todo.interval.start, todo.interval.end, attempt, lake.runtime.uuid()),
        plan=todo.key,
        plan_sha256=todo.sha256,
        fingerprint=todo.fingerprint,
        attempt=attempt,
        library="explorer",
        files=tuple(files),
        accounts=accounts,
    )
    lake.put_new(report.key, report.encode())
    return report.key


@dataclass
class Collector:
    """A gc task: one collection, in its own process."""

    sim: Simulation
    reader_grace: timedelta
    cancel_after: timedelta | None
    batch: int
    doubt_grace: timedelta = timedelta(0)
    actor: greenlet.greenlet = field(init=False)

    def __post_init__(self) -> None:
        self.actor = greenlet.greenlet(self._collect)

    def _collect(self) -> Collection | None:
        store = SimulatedStore(self.sim)
        lake = Lake(store, self.sim.runtime(), proven=True, page_bytes_max=self.sim.page_bytes_max)
        tables = SimulatedTables(store, lake.runtime)
        try:
            return collect(
                lake,
                tables,
                delete=True,
                reader_grace=self.reader_grace,
                cancel_after=self.cancel_after,
                doubt_grace=self.doubt_grace,
                batch=self.batch,
                threads=0,
            )
        except (RetryLater, RootVanished):
            return None  # contended or in doubt, or there is no lake yet: the next collection continues
        except TallystickError as error:
            raise ViolationError(f"gc refuses a valid lake: {error}") from error


@dataclass
class Compactor:
    """A compaction task: one run of `compact`, in its own process."""

    sim: Simulation
    target_bytes: int
    actor: greenlet.greenlet = field(init=False)
    result: CompactResult | None = None

    def __post_init__(self) -> None:
        self.actor = greenlet.greenlet(self._compact)

    def _compact(self) -> None:
        store = SimulatedStore(self.sim)
        lake = Lake(store, self.sim.runtime(), proven=True, page_bytes_max=self.sim.page_bytes_max)
        tables = SimulatedTables(store, lake.runtime)
        options = CompactOptions(until=at(9), target_bytes=self.target_bytes, files_min=2)
        try:
            self.result = compact(lake, tables, tables, options)
            done = {name: one.files_before for name, one in self.result.tables.items()}
            self.sim.trace.append(f"COMPACTED {done}, left {dict(self.result.left)}")
        except (RetryLater, RootVanished, Corrupt) as error:
            # In doubt, or no lake yet, or gc was faster than the rewriting: the next run makes it.
            self.sim.trace.append(f"not compacted: {error}")


@dataclass
class Adopter:
    """An operator who adopts the current topic as the successor of the ledger's topic, and passes the old one's ends."""

    sim: Simulation
    log: SimulatedLog
    ends: Mapping[str, Mapping[int, int]]
    actor: greenlet.greenlet = field(init=False)

    def __post_init__(self) -> None:
        self.actor = greenlet.greenlet(self._adopt)

    def _adopt(self) -> None:
        store = SimulatedStore(self.sim)
        lake = Lake(store, self.sim.runtime(), proven=True, page_bytes_max=self.sim.page_bytes_max)
        log = Session(self.log)
        try:
            topic_id = log.describe([TOPIC])[TOPIC].topic_id
            adopt(
                lake,
                TOPIC,
                lambda: log.describe([TOPIC])[TOPIC],
                ends_of=self._ends_of,
                confirmed_id=topic_id,
            )
            self.sim.trace.append(f"ADOPTED {topic_id}")
        except (RetryLater, RootVanished, InvalidRequest, IdentityChanged, Superseded) as error:
            # In doubt, or nothing to adopt yet, or the topic was created once more.
            self.sim.trace.append(f"not adopted: {error}")

    def _ends_of(self, root: Root) -> Mapping[int, int]:
        known = root.topics.get(root.open_topic(TOPIC))
        return self.ends.get(known.topic_id, {}) if known else {}
