"""The outputs of a commit: whether each is pending for an interval, and its next step. Pure.

An output contains the rows of one table outside the lake (in a topic, a database, a receiver of calls). The root swap is
the only decision: the swap that commits a plan also sets it as `wanted` of each output. The publication follows. It is
safe to repeat, and is repeated until the plan is `published` in the ledger. Each step is a separate swap:

    commit P    wanted = P
    begin       in_progress = P    before the first row is sent: from here on, the output may have some rows
    (publish)                      outside the lake, safe to repeat
    finish      published = P, in_progress = None

If a plan is replaced while `in_progress` is set, only `wanted` changes. The publication in progress is finished first:
otherwise it would be unknown which of its rows the output has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallystick.format import keys
from tallystick.format.outputs import OutputSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The step that sets `plan` in progress in the ledger, then publishes it.

    `instead_of`: the plan whose rows the output has now, or None.
    """

    plan: keys.PlanId
    instead_of: keys.PlanId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The step that finishes the publication of `plan`, which is in progress: the output may have some or all rows.

    `instead_of`: the plan that was published before, or None.
    """

    plan: keys.PlanId
    instead_of: keys.PlanId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The absence of a step: nothing is pending."""


Step = Start | Resume | Rest


def next_step(slot: OutputSlot) -> Step:
    """Return the next step for one output and interval. Total: every slot has exactly one next step."""
    if slot.in_progress is not None:
        return Resume(plan=slot.in_progress, instead_of=slot.published)
    if slot.wanted != slot.published:
        return Start(plan=slot.wanted, instead_of=slot.published)
    return Rest()


def with_plan(slot: OutputSlot | None, plan: keys.PlanId, *, nothing: bool) -> OutputSlot:
    """Return the slot after `plan` is committed. `nothing`: the plan has no row for this output.

    If the plan has no row and none was ever sent, there is nothing to publish: the commit itself sets `published`.
    """
    if slot is None:
        return OutputSlot(wanted=plan, published=plan if nothing else None)
    if nothing and slot.in_progress is None and slot.published is None:
        return OutputSlot(wanted=plan, published=plan)
    return replace(slot, wanted=plan)


def outputs_with_plan(
    slots: Mapping[str, OutputSlot], plan_key: keys.PlanKey, nothing: Mapping[str, bool]
) -> dict[str, OutputSlot]:
    """Return an entry's slots after the commit of a plan that names these outputs; other slots are unchanged.

    `nothing`: by output, True if the plan has no row for it.
    """
    _, uuid = keys.plan_parts(plan_key)
    changed = {n: with_plan(slots.get(n), uuid, nothing=none) for n, none in nothing.items()}
    return {**slots, **changed}


def in_progress(slot: OutputSlot, plan: keys.PlanId) -> OutputSlot | None:
    """Return the slot with `plan` in progress; None if that is not its next step.

    That is the case if another plan is in progress, or if another plan is wanted now.
    """
    if slot.in_progress == plan:
        return slot
    if next_step(slot) != Start(plan=plan, instead_of=slot.published):
        return None
    return replace(slot, in_progress=plan)


def finished(slot: OutputSlot, plan: keys.PlanId) -> OutputSlot | None:
    """Return the slot with `plan` published; unchanged if it is so already; None if `plan` was not in progress."""
    if slot.in_progress == plan:
        return replace(slot, in_progress=None, published=plan)
    return slot if slot.published == plan else None


def slot_problem(
    was: OutputSlot | None, now: OutputSlot | None, committed: keys.PlanId | None
) -> str | None:
    """Return how a swap breaks the rules of one slot (I12); None if it does not.

    `committed`: the uuid of the plan that this same swap commits for the interval, or None.
    """
    if now is None:
        return None if was is None else "vanished"
    if was is None:
        allowed = (
            [with_plan(None, committed, nothing=nothing) for nothing in (False, True)]
            if committed
            else []
        )
        return None if now in allowed else "appeared without a commit of its plan"
    if now == was:
        return None
    steps = [
        in_progress(was, was.wanted),
        finished(was, was.in_progress) if was.in_progress else None,
    ]
    if committed is not None:
        steps = [with_plan(was, committed, nothing=nothing) for nothing in (False, True)]
    return None if now in steps else f"went from {was.to_json()} to {now.to_json()}"
