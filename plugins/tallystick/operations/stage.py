"""The part of the use case `stage` that needs no Spark: find the plans that this job still has to stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.errors import Corrupt, JobChanged, Superseded
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations.commit import CommitResult, find_commit


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStage:
    """The plans of a run: those left to stage, those committed, and an error for each plan that lost its grant."""

    plans: tuple[Plan, ...]
    committed: tuple[keys.PlanKey, ...]
    lost: tuple[Superseded, ...] = ()


def to_stage(lake: Lake, plan_keys: Sequence[keys.PlanKey], *, fingerprint: str) -> ToStage:
    """Return the plans of a run that are still to be staged, without starting a JVM.

    Raises Superseded if a plan lost its grant and none is left to stage. If some are left, a lost grant does not block
    them, and the commit task reports it. Raises JobChanged if the deployed job is not the planned one. Raises Corrupt if
    the object of a granted plan is gone.
    """
    plans: list[Plan] = []
    committed: list[keys.PlanKey] = []
    lost: list[Superseded] = []
    for key in plan_keys:
        try:
            plan = still_granted(lake, key)
        except Superseded as error:
            lost.append(error)
            continue
        if plan is None:
            committed.append(key)
            continue
        if plan.fingerprint != fingerprint:
            raise JobChanged(
                f"the job or the pipeline changed since {plan.interval} was planned: expected fingerprint "
                f"{plan.fingerprint[:12]}, found {fingerprint[:12]}.",
                hint="clear this run's plan task to replan the interval with the current job.",
            )
        plans.append(plan)
    if lost and not plans:
        raise lost[0]
    return ToStage(plans=tuple(plans), committed=tuple(committed), lost=tuple(lost))


def still_granted(lake: Lake, plan_key: keys.PlanKey) -> Plan | None:
    """Return the plan if it is granted, None if it is committed.

    Raises Superseded if its grant was taken away, Corrupt if it is granted and its object is gone.
    """
    plan = lake.plan(plan_key)
    found = lake.read(lambda snapshot: find_commit(lake, snapshot, plan_key))
    if isinstance(found, CommitResult):
        return None
    granted = found.granted if found is not None else None
    if granted is not None and granted.plan == plan_key:
        if plan is not None:
            return plan
        raise Corrupt(
            f"{lake.where(plan_key)} is granted and is gone.",
            hint="clear this run's plan task. Find out what deleted the plan: tallystick did not (a lifecycle rule?).",
        )
    holder = granted.request if granted is not None else None
    raise Superseded(
        f"plan {plan_key} is no longer granted"
        + (f": {holder} holds its interval." if holder else "."),
        hint="do nothing if that was intended; otherwise clear this run's plan task to plan the interval again.",
    )
