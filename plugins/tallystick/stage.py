"""The use case `stage`, as far as it needs no Spark: is there still something to stage, and by this very job?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.errors import JobChanged, Superseded
from tallystick.lake import Lake, View
from tallystick.protocol import decide
from tallystick.protocol.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStage:
    """What is left to stage of a run's plans, and what is committed already."""

    plans: tuple[Plan, ...]
    committed: tuple[str, ...]


def to_stage(lake: Lake, plan_keys: Sequence[str], *, fingerprint: str) -> ToStage:
    """Say which of the run's plans are still to be staged, without starting a JVM.

    Raises Superseded where a plan is no longer granted, JobChanged where the deployed job is not the planned one.
    """
    plans: list[Plan] = []
    committed: list[str] = []
    for key in plan_keys:
        plan = still_granted(lake, key)
        if plan is None:
            committed.append(key)
            continue
        if plan.fingerprint != fingerprint:
            raise JobChanged(
                f"the job or the pipeline changed since {plan.interval} was planned (fingerprint {fingerprint[:12]} is "
                f"deployed, {plan.fingerprint[:12]} was planned).",
                next_step="clear this run's plan task: it plans the interval with the job of now.",
            )
        plans.append(plan)
    return ToStage(plans=tuple(plans), committed=tuple(committed))


def still_granted(lake: Lake, plan_key: str) -> Plan | None:
    """Return the plan while its grant stands, None once it is committed. Raises Superseded where others hold it."""
    plan = lake.plan(plan_key)

    def question(view: View) -> decide.CommitDecision | None:
        if plan is None:
            entries = view.whole_ledger().entries
            if any(e.committed is not None and e.committed.plan == plan_key for e in entries):
                return decide.AlreadyCommitted(generation=1)
            return None
        entry = view.ledger(plan.interval.start, plan.interval.end).entry(plan.interval)
        earlier = lake.earlier_commits(entry)[1:] if entry else ()
        return decide.decide_commit(
            view.root, entry, plan, earlier_plans=frozenset(c.plan for c in earlier)
        )

    decision = lake.cut(question)
    if isinstance(decision, decide.AlreadyCommitted):
        return None
    if plan is None or decision is None or isinstance(decision, decide.NotMine):
        holder = decision.holder if isinstance(decision, decide.NotMine) else None
        raise Superseded(
            f"plan {plan_key} is no longer granted"
            + (f": {holder} holds its interval." if holder else "."),
            next_step="nothing, if that was meant; else clear this run's plan task to plan the interval again.",
        )
    return plan
