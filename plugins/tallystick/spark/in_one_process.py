"""Runs the three steps of a run in this process: plan, stage and commit, without Airflow and without Spark.

The steps are those of Airflow's tasks, with the same objects in the lake. So this process may be killed at any moment and
be repeated, and may run at the same time as other runs of the lake. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Literal, cast

from tallystick.engine.transform import JobTransform
from tallystick.errors import Superseded, TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Entry, Totals
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.operations.commit import CommitResult, TableStager, commit
from tallystick.operations.kafka_log import KafkaLog
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.schemas import OpenRegistry
from tallystick.operations.stage import to_stage
from tallystick.protocol.planning import gaps
from tallystick.spark.outcome import scratch_full
from tallystick.spark.plan_stager import PlanStager, Staging
from tallystick.spark.without_spark import stage_without_spark

State = Literal["committed", "already", "held", "gap"]
OpenLog = Callable[[], AbstractContextManager[KafkaLog]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedInterval:
    """One interval of a replay's span, after the replay.

    `state`: `committed` by this replay; `already`: committed before it, or by another process meanwhile; `held`: another
    run has the grant; `gap`: no run has one. `request`: of the run that committed it or has the grant. `rows`: by table,
    of what this replay staged. `other_code`: it was committed by another job or declaration than those of this replay.
    """

    interval: Interval
    state: State
    request: Request | None = None
    version: int | None = None
    generation: int | None = None
    totals: Totals | None = None
    rows: Mapping[str, int] | None = None
    other_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What the span of a replay has at its end, in order of time. `lost`: an error for each plan that lost its grant."""

    uri: str
    pipeline: str
    version: int
    request: Request
    intervals: tuple[ReplayedInterval, ...]
    lost: tuple[Superseded, ...] = ()

    @property
    def complete(self) -> bool:
        """True if the span is committed, by any run; for a replacement, if no other run has a part of it."""
        return all(one.state in ("committed", "already") for one in self.intervals)


def replay(
    lake: Lake,
    request: PlanRequest,
    transform: Callable[..., Any],
    *,
    open_log: OpenLog,
    open_registry: OpenRegistry,
    environ: Mapping[str, str],
    staging: Staging = stage_without_spark,
) -> ReplayResult:
    """Plan the span of the request, stage what it was granted in this process, and commit it, in the order of time.

    `open_log`: called only if there is something to grant. `environ` has the connections of Kafka.

    Safe to repeat: the same request finds its plans in the root (C3). Each call stages under an attempt of its own, with
    the report last (C4, C5). A plan that is committed remains committed (C9, C11).

    Raises InvalidPipeline before anything is written if an Arrow job cannot write the pipeline's tables. Raises the
    errors of `plan`, of `to_stage`, of the staging and of `commit`; earlier intervals of the span are committed then. A
    plan that lost its grant does not end the others.
    """
    JobTransform(transform, request.pipeline)
    found = lake.load()
    before = found.root.version if found is not None else 0
    with _OpenedOnUse(open_log) as log:
        planned = plan(lake, cast("KafkaLog", log), request, open_registry=open_registry)
    stager = PlanStager(
        lake=lake,
        transform=transform,
        attempt=lake.runtime.uuid(),
        environ=environ,
        staging=staging,
    )
    done = _Done(lake, stager)
    done.stage_and_commit(planned, request.fingerprint)
    return lake.read(_SpanNow(request, planned, before, done).result)


class _OpenedOnUse:
    """The log of Kafka, opened by its first use: a span that is committed already needs no broker."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open = open_log
        self._stack = ExitStack()
        self._log: KafkaLog | None = None

    def __enter__(self) -> _OpenedOnUse:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getattr__(self, name: str) -> Any:
        if self._log is None:
            self._log = self._stack.enter_context(self._open())
        return getattr(self._log, name)


class _Done:
    """What this call has staged and committed, by interval."""

    def __init__(self, lake: Lake, stager: PlanStager) -> None:
        self._lake, self._stager = lake, stager
        self._tables: TableStager | None = None
        self.results: dict[Interval, CommitResult] = {}
        self.reports: dict[Interval, Report] = {}
        self.lost: list[Superseded] = []

    def stage_and_commit(self, planned: PlanResult, fingerprint: str) -> None:
        """Stage and commit each plan that is left, one after another. Safe to repeat: see `replay`."""
        left = [one.plan for one in planned.intervals if not one.committed]
        found = to_stage(self._lake, left, fingerprint=fingerprint)
        self.lost.extend(found.lost)
        for one in found.plans:
            try:
                self._one(one)
            except Superseded as error:
                self.lost.append(error)

    def _one(self, one: Plan) -> None:
        """Stage and commit one plan. Safe to repeat: see `replay`."""
        try:
            report = self._stager.stage(one)
        except TallystickError:
            raise
        except Exception as error:
            full = scratch_full(error)
            if full is None:
                raise
            raise full from error
        self.reports[one.interval] = report
        self.results[one.interval] = commit(
            self._lake, self._stager_of_tables(), plan_key=one.key, report_key=report.key
        )

    def _stager_of_tables(self) -> TableStager:
        if self._tables is None:
            # PyIceberg is slow to import, and a span that is committed needs none of it.
            from tallystick.tables.staging import IcebergTables

            self._tables = IcebergTables(self._lake.store, self._lake.runtime)
        return self._tables


@dataclass(frozen=True, slots=True)
class _SpanNow:
    """What a replay reads at its end. `before`: the version of the root at its beginning, 0 if there was none."""

    request: PlanRequest
    planned: PlanResult
    before: int
    done: _Done

    def result(self, snapshot: Snapshot) -> ReplayResult:
        """Return what one root has of the span."""
        span = self.planned.interval
        assert span is not None  # the request has dates
        entries = snapshot.ledger(span.start, span.end).overlapping(span)
        found = [self._interval(entry) for entry in entries]
        missing = gaps(span, [entry.interval for entry in entries])
        found += [ReplayedInterval(interval=one, state="gap") for one in missing]
        return ReplayResult(
            uri=snapshot.lake.store.uri,
            pipeline=self.request.pipeline.name,
            version=snapshot.root.version,
            request=self.request.request,
            intervals=tuple(sorted(found, key=lambda one: one.interval)),
            lost=tuple(self.done.lost),
        )

    def _interval(self, entry: Entry) -> ReplayedInterval:
        committed = entry.committed
        if committed is None:
            assert entry.granted is not None  # an entry has one of the two
            return ReplayedInterval(
                interval=entry.interval, state="held", request=entry.granted.request
            )
        version = keys.record_version(committed.record)
        holder = dict(self.planned.held).get(entry.interval)
        if holder is not None and self.request.params.mode == "replace" and version <= self.before:
            return ReplayedInterval(interval=entry.interval, state="held", request=holder)
        is_own = self._is_own(entry.interval, version)
        report = self.done.reports.get(entry.interval) if is_own else None
        return ReplayedInterval(
            interval=entry.interval,
            state="committed" if is_own else "already",
            request=committed.request,
            version=version,
            generation=committed.generation,
            totals=committed.totals,
            rows=None if report is None else _rows(report),
            other_code=committed.fingerprint != self.request.fingerprint,
        )

    def _is_own(self, interval: Interval, version: int) -> bool:
        """Return True if this replay has published the commit of an interval."""
        if (own := self.done.results.get(interval)) is not None:
            return not own.already
        # An empty interval is committed by its plan, and has no result of a commit.
        at_once = {one.interval for one in self.planned.intervals if one.committed}
        return interval in at_once and version > self.before


def _rows(report: Report) -> dict[str, int]:
    return {table: report.rows(table) for table in sorted({f.table for f in report.files})}
