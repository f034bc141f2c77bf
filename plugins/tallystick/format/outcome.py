"""The outcome of a driver on a cluster, which its stage task reads from the lake: reports, or an error. Pure.

A driver on the task's own machine writes the same into a local file. No root, report or record names an outcome: it is
scratch of its attempt, and the commit checks every report that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePlan(StoredValue):
    """One plan and its report; None if nothing was staged, because the plan was committed or superseded already."""

    plan: keys.PlanKey
    report: keys.ReportKey | None

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.report is not None:
            keys.check_report(self.report)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeError(StoredValue):
    """The error with which a driver ended: its kind, what happened, and what to do next."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome(StoredObject):
    """What a driver wrote at its end: a report of each plan, or its error."""

    FORMAT: ClassVar[str] = "tallystick.outcome/1"

    attempt: str
    plans: tuple[OutcomePlan, ...] = ()
    error: OutcomeError | None = None

    def __post_init__(self) -> None:
        keys.check_attempt(self.attempt)
        if bool(self.plans) is (self.error is not None):
            raise ValueError("expected either plans or an error in the outcome of a driver")
        if len({one.plan for one in self.plans}) != len(self.plans):
            raise ValueError("expected each plan once, found a plan twice")
