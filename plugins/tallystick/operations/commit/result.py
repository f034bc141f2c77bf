"""The result of a commit, and how an earlier commit of a plan is found."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Entry, Totals
from tallystick.lake import Lake, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome of a commit. `already`: True if an earlier call published it.

    `version` is the version of the root. `replaced_by` is the generation that has replaced it since, or None.
    """

    interval: Interval
    plan: keys.PlanKey
    version: int
    generation: int
    totals: Totals
    already: bool
    replaced_by: int | None = None


def find_commit(
    lake: Lake, snapshot: Snapshot, plan_key: keys.PlanKey
) -> CommitResult | Entry | None:
    """Return the commit of a plan, even if it was replaced since.

    If the plan is not committed, return the ledger's current entry of its interval, or None if there is no entry. The
    plan itself is not read: its key contains the interval.
    """
    start, end = keys.plan_interval(plan_key)
    entry = snapshot.ledger(start, end).entry(Interval(start=start, end=end))
    if entry is None or entry.committed is None:
        return entry
    now = entry.committed
    if now.plan == plan_key:
        return _already(snapshot, entry.interval, plan_key, now.generation, now.totals)
    for earlier in lake.earlier_commits(entry)[1:]:
        if earlier.plan == plan_key:
            done = _already(snapshot, entry.interval, plan_key, earlier.generation, earlier.totals)
            return replace(done, replaced_by=now.generation)
    return entry


def committed_report(
    lake: Lake, snapshot: Snapshot, plan_key: keys.PlanKey
) -> keys.ReportKey | None:
    """Return the report with which a plan was committed, even if it was replaced since.

    None if the plan is not committed, has no offsets, or gc has deleted its record.
    """
    start, end = keys.plan_interval(plan_key)
    entry = snapshot.ledger(start, end).entry(Interval(start=start, end=end))
    if entry is None or entry.committed is None:
        return None
    commits = lake.commits_of(entry)
    return next((one.report for one in commits if one.plan == plan_key), None)


def _already(
    snapshot: Snapshot, interval: Interval, plan_key: keys.PlanKey, generation: int, totals: Totals
) -> CommitResult:
    return CommitResult(
        interval=interval,
        plan=plan_key,
        version=snapshot.root.version,
        generation=generation,
        totals=totals,
        already=True,
    )
