"""Decides the result of committing a plan under the root that was just read: a total function of both.

The decision is made again on every root that is read. So a lost race and a lost reply are handled in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.format.columns import is_part_of, successor
from tallystick.format.interval import Request
from tallystick.format.page import Entry
from tallystick.format.plan import Plan, PlannedTable
from tallystick.format.root import Root, RootTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """The decision to swap the root: the plan has the grant, and its topics, tables and columns are unchanged."""

    before: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The plan is committed; `replaced_by` is the generation that replaced it since then, or None."""

    generation: int
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityDiffers:
    """A topic, cluster or table in the root is not the planned one."""

    what: str
    planned: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsDiffer:
    """A column id that means another column in the root than in the plan."""

    table: str
    planned: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitioningDiffers:
    """A table that the root has with another partitioning than the plan: the staged files have the planned one."""

    table: str
    planned: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLost:
    """The plan has no grant: the entry was taken over, cancelled or planned again, or does not exist."""

    holder: Request | None


Difference = IdentityDiffers | ColumnsDiffer | PartitioningDiffers
CommitDecision = Publish | AlreadyCommitted | Difference | GrantLost


def decide_commit(
    root: Root, entry: Entry | None, plan: Plan, *, earlier_plans: frozenset[str] = frozenset()
) -> CommitDecision:
    """Decide the result of committing `plan` under `root`.

    `entry` is the ledger's entry of the plan's interval. `earlier_plans` are the plans whose commits were replaced,
    according to that entry's record chain. The plan's key is its identity; generations serve only as an explanation.
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


def differs_from_root(root: Root, plan: Plan, *, is_committed: bool = False) -> Difference | None:
    """Return the first difference between the plan's topics, tables and columns and the root's; None if all agree.

    A plan that was granted before a column was renamed, dropped or given a wider type differs: it must be planned again.
    For a committed plan that is no difference (I11), and neither is another partitioning.
    """
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
        different = _columns_differ(there, table, is_committed=is_committed)
        if different is not None:
            return different
        if table.partition_by != there.partition_by and not is_committed:
            return PartitioningDiffers(
                table=table.name, planned=table.partition_by, found=there.partition_by
            )
    return None


def _columns_differ(
    there: RootTable, planned: PlannedTable, *, is_committed: bool
) -> ColumnsDiffer | None:
    by_id = {c.id: c for c in there.columns}
    for column in planned.columns:
        present = by_id.get(column.id)
        if present is not None and is_part_of(column, present):
            continue
        now = successor(column, there.columns, there.dropped, there.former_names)
        if is_committed and now is not None:
            continue
        return ColumnsDiffer(
            table=planned.name,
            planned=f"{column.name} {column.text} (id {column.id})",
            found=f"{present.name} {present.text}" if present else "no column with that id",
        )
    return None
