"""Outputs as participants of a commit: what each owes to an interval, and which step comes next. Pure.

An output holds the rows of one table somewhere else (a topic, a database, a receiver of calls). The root swap is the
only decision: the swap that commits a plan also says that each output wants it. Publishing comes after it, is safe to
repeat, and is repeated until the ledger says `published`. Each step is a swap of its own:

    commit P    wanted = P
    begin       begun = P          before the first row leaves: from here on, some may be out there
    (publish)                      outside the lake, safe to repeat
    finish      published = P, begun = None

A replacement while `in_progress` is set changes only `wanted`: what was begun is brought to its end first, or nobody
would know which of its rows are out there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tallystick.format import keys
from tallystick.format.outputs import OutputSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Say in the ledger that `plan` is begun, then publish it. `instead_of`: the plan whose rows are there now."""

    plan: keys.PlanId
    instead_of: keys.PlanId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """`plan` was begun: publish it to its end; some of its rows, or all, may be out there."""

    plan: keys.PlanId
    instead_of: keys.PlanId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is pending."""


Step = Start | Resume | Rest


def next_step(slot: OutputSlot) -> Step:
    """What is to be done next for one output and interval. Total: every slot has exactly one next step."""
    if slot.in_progress is not None:
        return Resume(plan=slot.in_progress, instead_of=slot.published)
    if slot.wanted != slot.published:
        return Start(plan=slot.wanted, instead_of=slot.published)
    return Rest()


def with_plan(slot: OutputSlot | None, plan: keys.PlanId, *, nothing: bool) -> OutputSlot:
    """The slot once `plan` is committed. `nothing`: the plan has no row for this output.

    Where there is no row and none was ever sent, there is nothing to publish: the slot is settled by the commit itself.
    """
    if slot is None:
        return OutputSlot(wanted=plan, published=plan if nothing else None)
    if nothing and slot.in_progress is None and slot.published is None:
        return OutputSlot(wanted=plan, published=plan)
    return replace(slot, wanted=plan)


def outputs_with_plan(
    slots: Mapping[str, OutputSlot], plan_key: keys.PlanKey, nothing: Mapping[str, bool]
) -> dict[str, OutputSlot]:
    """An entry's slots once a plan is committed that names these outputs; others stay as they are.

    `nothing`: by output, whether the plan has no row for it.
    """
    _, uuid = keys.plan_parts(plan_key)
    changed = {n: with_plan(slots.get(n), uuid, nothing=none) for n, none in nothing.items()}
    return {**slots, **changed}


def in_progress(slot: OutputSlot, plan: keys.PlanId) -> OutputSlot | None:
    """The slot once `plan` is begun; None where that is not its next step (another was begun, or wanted since)."""
    if slot.in_progress == plan:
        return slot
    if next_step(slot) != Start(plan=plan, instead_of=slot.published):
        return None
    return replace(slot, in_progress=plan)


def finished(slot: OutputSlot, plan: keys.PlanId) -> OutputSlot | None:
    """The slot once all of `plan` is out; the same where that is known already, None where it was not begun."""
    if slot.in_progress == plan:
        return replace(slot, in_progress=None, published=plan)
    return slot if slot.published == plan else None


def slot_problem(
    was: OutputSlot | None, now: OutputSlot | None, committed: keys.PlanId | None
) -> str | None:
    """How a swap breaks the rules of one slot (I12); None where it keeps them.

    `committed`: the uuid of the plan that this very swap commits for the interval.
    """
    if now is None:
        return None if was is None else "vanished"
    if was is None:
        allowed = (
            [with_plan(None, committed, nothing=nothing) for nothing in (False, True)]
            if committed
            else []
        )
        return None if now in allowed else "appeared without a commit of what it wants"
    if now == was:
        return None
    steps = [
        in_progress(was, was.wanted),
        finished(was, was.in_progress) if was.in_progress else None,
    ]
    if committed is not None:
        steps = [with_plan(was, committed, nothing=nothing) for nothing in (False, True)]
    return None if now in steps else f"went from {was.to_json()} to {now.to_json()}"
