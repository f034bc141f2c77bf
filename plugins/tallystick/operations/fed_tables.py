"""Finds the tables of a committed interval that feed outputs, from its plan."""

from __future__ import annotations

from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.pipeline import outputs_in_spec


def tables_that_feed(lake: Lake, entry: Entry) -> frozenset[str] | None:
    """Return the tables whose rows an output of the entry's commit gets; None if it is not known: its plan is gone.

    Reads the plan only if the entry has an output.
    """
    if not entry.outputs or entry.committed is None:
        return frozenset()
    plan = lake.plan(entry.committed.plan)
    if plan is None:
        return None
    where = f"{lake.where(plan.key)}.spec"
    return frozenset(output.table for output in outputs_in_spec(plan.spec, where=where))
