"""Decides which plans of other runs one attempt may stage as well, and which run may use such a report. Pure.

A report has the same checks at the commit, whichever run's attempt wrote it (docs/design/0005-staging-together.md).
"""

from __future__ import annotations

from tallystick.format.claim import Claim
from tallystick.format.interval import Request
from tallystick.format.plan import Plan
from tallystick.format.report import Report

OFFSETS_MAX = 500_000
"""A larger plan is staged by its own run alone. All plans of other runs in one attempt have at most as many offsets."""


def offsets(plan: Plan) -> int:
    """Return the number of offsets that an attempt reads for the plan."""
    return sum(r.readable.length for topic in plan.topics for r in topic.ranges)


def is_small(plan: Plan) -> bool:
    """Return True if the plan can be staged together with others.

    A plan with a lookback cannot: its rows depend on the rows of earlier intervals, which its own run waits for.
    """
    return offsets(plan) <= OFFSETS_MAX and plan.spec.get("lookback") is None


def can_join(own: Plan, other: Plan) -> bool:
    """Return True if an attempt that was started for `own` may stage `other`, a plan of another run.

    Both need the same job, declaration and DAG: then the driver has the same file, settings and connections for both.
    """
    return (
        not own.request.same_run(other.request)
        and own.request.dag == other.request.dag
        and own.pipeline == other.pipeline
        and own.fingerprint == other.fingerprint
        and own.spec == other.spec
        and is_small(other)
    )


def is_of_another_run(claim: Claim, plan: Plan) -> bool:
    """Return True if the plan is claimed by a stage task of another run than its own."""
    return not claim.request.same_run(plan.request)


def may_use(plan: Plan, request: Request) -> bool:
    """Return True if a run with the current `request` may use a report that another run's attempt wrote for the plan.

    If the run was cleared after the plan was made, it must stage anew: a person expects that from Clear, because an
    imported module may have changed, which no fingerprint shows.
    """
    return plan.request == request


def is_claimed_report(plan: Plan, claim: Claim, report: Report) -> bool:
    """Return True if the report is the one that the claim announced for exactly this plan and job."""
    return (
        (claim.plan, report.plan, report.plan_sha256) == (plan.key, plan.key, plan.sha256)
        and report.fingerprint == plan.fingerprint
        and report.attempt == claim.attempt
    )
