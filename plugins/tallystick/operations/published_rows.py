"""Whether rows of a committed interval have left for an output: what may not be sent twice must not be replaced then."""

from __future__ import annotations

from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.pipeline import outputs_in_spec


def has_published_rows(lake: Lake, entry: Entry, output: str) -> bool:
    """Whether a row of the interval is in the output, or may be: a slot is published also where there was none to send.

    Total: where nobody can tell any more, one may be.
    """
    slot = entry.outputs.get(output)
    if slot is None or slot.in_progress is not None or slot.published is None:
        return slot is not None and slot.may_have_rows
    out = slot.published
    commit = next((c for c in lake.commits_of(entry) if keys.plan_parts(c.plan)[1] == out), None)
    plan = lake.plan(commit.plan) if commit is not None else None
    if commit is None or plan is None:
        return True
    named = outputs_in_spec(plan.spec, where=f"{lake.where(plan.key)}.spec")
    table = next((o.table for o in named if o.name == output), None)
    return table is None or bool(commit.added.get(table))
