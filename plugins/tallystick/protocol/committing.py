"""What committing a plan means under the root that was just read: a total function of both.

Deciding again on every root that is read is what makes a lost race and a lost reply the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format.interval import Request
from tallystick.format.page import Entry
from tallystick.format.plan import Plan
from tallystick.format.root import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """The grant is the plan's, and everything it was planned on still holds: swap the root."""

    before: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The plan is committed; `replaced_by` is the generation that replaced it since, if one did."""

    generation: int
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityDiffers:
    """A topic, cluster or table is not the planned one."""

    what: str
    planned: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsDiffer:
    """A column id means another column in the root than in the plan."""

    table: str
    planned: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLost:
    """The entry was taken over, cancelled, planned anew, or is not there."""

    holder: Request | None


CommitDecision = Publish | AlreadyCommitted | IdentityDiffers | ColumnsDiffer | GrantLost


def decide_commit(
    root: Root, entry: Entry | None, plan: Plan, *, earlier_plans: frozenset[str] = frozenset()
) -> CommitDecision:
    """Decide what committing `plan` means under `root`.

    `entry` is the ledger's entry of the plan's interval, `earlier_plans` the plans whose commits that entry's record
    chain shows as replaced. The plan's key is its identity; generations only explain.
    """
    if entry is not None and entry.committed is not None:
        if entry.committed.plan == plan.key:
            return AlreadyCommitted(generation=entry.committed.generation)
        if plan.key in earlier_plans:
            return AlreadyCommitted(
                generation=plan.generation, replaced_by=entry.committed.generation
            )
    if entry is None or entry.granted is None or entry.granted.plan != plan.key:
        return GrantLost(holder=entry.holder if entry is not None else None)
    return differs_from_root(root, plan) or Publish(before=entry)


def differs_from_root(root: Root, plan: Plan) -> IdentityDiffers | ColumnsDiffer | None:
    """The first way in which the plan's topics, tables and columns are not the root's; None where all agree."""
    for topic in plan.topics:
        known = root.topics.get(topic.name)
        found = (known.topic_id, known.cluster_id) if known else ("nothing", "no cluster")
        planned = (topic.topic_id, topic.cluster_id)
        if found != planned:
            return IdentityDiffers(
                what=f"topic {topic.name}",
                planned=f"id {planned[0]} in cluster {planned[1]}",
                found=f"id {found[0]} in cluster {found[1]}",
            )
    for table in plan.tables:
        there = root.tables.get(table.name)
        if there is None or there.uuid != table.uuid:
            return IdentityDiffers(
                what=f"table {table.name}",
                planned=f"uuid {table.uuid}",
                found=f"uuid {there.uuid}" if there else "no such table",
            )
        by_id = {c.id: c for c in there.columns}
        for column in table.columns:
            now = by_id.get(column.id)
            if now is None or (now.name, now.type) != (column.name, column.type):
                return ColumnsDiffer(
                    table=table.name,
                    planned=f"{column.name} {column.type} (id {column.id})",
                    found=f"{now.name} {now.type}" if now else "no column of that id",
                )
    return None
