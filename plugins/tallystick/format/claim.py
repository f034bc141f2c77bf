"""The claim of a plan: the note that a stage task stages it, with the report that it will write. Pure.

A claim is written once per plan and never changes. It only saves work: a plan can be staged, and committed, without
regard to its claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject
from tallystick.format.interval import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(StoredObject):
    """The claim of one plan by an attempt of the run `request`, which may be another run than the plan's own.

    `until`: when the plan's own run stages the plan itself although the claim has no report.
    """

    FORMAT: ClassVar[str] = "tallystick.claim/1"

    plan: keys.PlanKey
    request: Request
    attempt: str
    until: datetime

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        keys.check_attempt(self.attempt)
        keys.check_instant(self.until)

    @property
    def key(self) -> keys.ClaimKey:
        """The key of this claim: one per plan."""
        return keys.claim(self.plan)

    @property
    def report(self) -> keys.ReportKey:
        """The key of the report that the attempt writes if the plan is of another run."""
        return keys.claimed_report(self.plan, self.attempt)
