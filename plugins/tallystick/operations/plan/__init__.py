"""The use case `plan`: find what a run may do, set boundaries, grant, and freeze one plan per gap. No JVM.

Loop of the swap: read the root; find the interval's uncovered gaps; set missing boundaries; give ids to new tables and
columns; write one plan per gap; swap a root that grants them. A rebase decides everything again and writes new plans.

    question    what is asked, what Kafka is asked, what is answered
    run         the loop of the swap
    granting    one try: identity, tables, boundaries, plans, entries
"""

from __future__ import annotations

from tallystick.operations.plan.request import (
    KafkaLog,
    PartitionView,
    PlannedInterval,
    PlanRequest,
    PlanResult,
    TopicDescription,
)
from tallystick.operations.plan.run import plan

__all__ = [
    "KafkaLog",
    "PartitionView",
    "PlanRequest",
    "PlanResult",
    "PlannedInterval",
    "TopicDescription",
    "plan",
]
