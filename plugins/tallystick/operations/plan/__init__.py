"""The use case `plan`: find what a run may do, set boundaries, grant, and freeze one plan per grant. No JVM.

Each try of the swap reads the root, finds the gaps of the interval and the commits to replace, sets missing boundaries,
gives ids to new tables and columns, writes one plan per grant, and swaps a root that grants them. If the swap is lost,
the next try decides everything again and writes new plans.

    request     the request and the result
    run         the loop of the swap
    attempt     one try: identity, tables, boundaries, plans, entries
    closed      topics that are read no more
"""

from __future__ import annotations

from tallystick.operations.plan.request import PlannedInterval, PlanRequest, PlanResult
from tallystick.operations.plan.run import plan

__all__ = [
    "PlanRequest",
    "PlanResult",
    "PlannedInterval",
    "plan",
]
