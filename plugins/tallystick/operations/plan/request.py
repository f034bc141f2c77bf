"""The request and the result of the use case `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.operations.run_request import RunDates, RunParams
from tallystick.pipeline import Pipeline
from tallystick.protocol import planning


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInterval:
    """One plan of the run: to be staged, or committed already, because it is empty or the run committed it before."""

    interval: Interval
    plan: keys.PlanKey
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The outcome of a plan task.

    `intervals`: the planned intervals of the run. `held`: intervals that are granted to other runs. `covered`: committed
    intervals that stay. `cancelled`: grants that were cancelled. `left`: intervals that a selecting mode leaves out,
    because their records can no longer be read.
    """

    interval: Interval | None
    version: int
    intervals: tuple[PlannedInterval, ...] = ()
    held: tuple[tuple[Interval, Request], ...] = ()
    covered: tuple[Interval, ...] = ()
    cancelled: tuple[tuple[Interval, Request], ...] = ()
    left: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The input of a plan task: pipeline, job, request, params and dates.

    `first`: the start of the first interval if the ledger is empty and the run has no dates.
    """

    pipeline: Pipeline
    job_source: bytes
    request: Request
    params: RunParams
    dates: RunDates
    first: datetime

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the deployed job."""
        return self.pipeline.fingerprint(self.job_source)


def plan_result(
    decision: planning.PlanDecision,
    requested: Interval,
    version: int,
    intervals: Sequence[PlannedInterval],
) -> PlanResult:
    """Build the result under root `version`: the plans that the run had before, and those that were granted now."""
    own = [
        PlannedInterval(interval=h.interval, plan=h.plan, committed=h.committed)
        for h in decision.owned
    ]
    return PlanResult(
        interval=requested,
        version=version,
        intervals=tuple(sorted((*own, *intervals), key=lambda p: p.interval)),
        held=tuple((e.interval, e.granted.request) for e in decision.held if e.granted),
        covered=tuple(e.interval for e in decision.covered),
        cancelled=tuple((e.interval, e.granted.request) for e in decision.cancelled if e.granted),
    )
