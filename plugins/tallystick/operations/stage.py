"""The use case `stage`, as far as it needs no Spark: is there still something to stage, and by this very job?"""

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
    """What is left to stage of a run's plans, what is committed already, and why others are no longer the run's."""

    plans: tuple[Plan, ...]
    committed: tuple[keys.PlanKey, ...]
    lost: tuple[Superseded, ...] = ()


def to_stage(lake: Lake, plan_keys: Sequence[keys.PlanKey], *, fingerprint: str) -> ToStage:
    """Say which of the run's plans are still to be staged, without starting a JVM.

    Raises Superseded where nothing is left but lost plans: one gap that was taken over must not hold up the others, and
    the run's commit says in the end what it lost. Raises JobChanged where the deployed job is not the planned one.
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
                f"the job or the pipeline changed since {plan.interval} was planned (fingerprint {fingerprint[:12]} is "
                f"deployed, {plan.fingerprint[:12]} was planned).",
                hint="clear this run's plan task: it plans the interval with the job of now.",
            )
        plans.append(plan)
    if lost and not plans:
        raise lost[0]
    return ToStage(plans=tuple(plans), committed=tuple(committed), lost=tuple(lost))


def still_granted(lake: Lake, plan_key: keys.PlanKey) -> Plan | None:
    """Return the plan while its grant stands, None once it is committed. Raises Superseded where others hold it."""
    plan = lake.plan(plan_key)
    found = lake.read(lambda snapshot: find_commit(lake, snapshot, plan_key))
    if isinstance(found, CommitResult):
        return None
    granted = found.granted if found is not None else None
    if granted is not None and granted.plan == plan_key:
        if plan is not None:
            return plan
        raise Corrupt(
            f"{lake.where(plan_key)} is granted and is not there.",
            hint="someone deleted it behind tallystick's back (a lifecycle rule?): clear this run's plan task.",
        )
    holder = granted.request if granted is not None else None
    raise Superseded(
        f"plan {plan_key} is no longer granted"
        + (f": {holder} holds its interval." if holder else "."),
        hint="nothing, if that was meant; else clear this run's plan task to plan the interval again.",
    )
