"""Checks if an output has rows of a committed interval: if it takes no second publication, they must not be replaced."""

from __future__ import annotations

from tallystick.format import keys
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.pipeline import outputs_in_spec


def has_published_rows(lake: Lake, entry: Entry, output: str) -> bool:
    """Return True if the output has a row of the interval, or may have.

    The slot alone does not answer this: it is also `published` if the plan had no rows for the output. Return True if the
    objects that would answer are gone.
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
