"""One call of `commit`: each try of the swap decides on the root that it has read, and builds the next root."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from tallystick.errors import (
    Corrupt,
    IdentityChanged,
    ReportRejected,
    SchemaChanged,
    Superseded,
    listed,
)
from tallystick.format import keys
from tallystick.format.page import Committed, Entry, Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval
from tallystick.format.report import FileReport, Report, account_totals
from tallystick.format.root import RootTable
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.room import RoomRequest
from tallystick.operations.commit import replacement
from tallystick.operations.commit.report import check_report
from tallystick.operations.commit.result import CommitResult, find_commit
from tallystick.operations.commit.shared_rows import RemovedRows, removed_rows
from tallystick.protocol import committing
from tallystick.protocol.compacting import Positions
from tallystick.protocol.publishing import outputs_with_plan
from tallystick.tables.state import TableState, table_state


class TableStager(Protocol):
    """A writer of table metadata that nothing names yet. The implementation is in tallystick.tables.staging."""

    def stage(
        self,
        state: TableState,
        *,
        add: Sequence[FileReport],
        drop: Collection[str],
        properties: Mapping[str, str],
        now: datetime,
        delete: Mapping[str, Positions] = MappingProxyType({}),
        sorted_by: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> str:
        """Write metadata with one new snapshot that removes the files `drop` and adds the files `add`; return its key.

        `delete`: the deleted positions of files that stay or are added, in place of those that they had before.
        `sorted_by`: the ids of the columns by which added files are sorted.
        Safe to repeat: every call writes new objects that only a root can make visible.
        """
        ...


def commit(
    lake: Lake, tables: TableStager, *, plan_key: keys.PlanKey, report_key: keys.ReportKey
) -> CommitResult:
    """Commit the files of the report for the plan, exactly once. No output is contacted.

    Safe to repeat: the ledger names the committed plan, so a repeat, a lost reply and a second attempt all end as
    AlreadyCommitted (C9, C10, C11, C12). A replacement is refused, and its grant is withdrawn, if it contains fewer
    records and dead letters than the commit that it replaces, or if records of that commit are dead letters now, unless
    the plan accepts that. It is also refused if an output that takes no second publication has received the interval.

    Raises ReportRejected if a replacement is refused, if the report is gone, is not the plan's or does not add up, or if
    its files are gone or changed. Raises Superseded if the grant was taken away. Raises IdentityChanged or SchemaChanged
    if the topics or tables are not the planned ones. Raises the errors of the lake.
    """
    plan = lake.plan(plan_key)
    report = lake.report(report_key)
    if plan is None or report is None:
        gone = plan_key if plan is None else report_key
        return _without_objects(lake, plan_key, gone)
    attempt = _CommitAttempt(lake, tables, plan, report)
    # Ask publishers to pause from the first try on: the metadata of many tables takes long to write, and a lost swap
    # voids it.
    return lake.swap(
        attempt.step, turn=RoomRequest(store=lake.store, runtime=lake.runtime, after_losses=0)
    )


class _CommitAttempt:
    """The state that all tries of one `commit` call share."""

    def __init__(self, lake: Lake, tables: TableStager, plan: Plan, report: Report) -> None:
        self._lake, self._tables, self._plan, self._report = lake, tables, plan, report
        self._checked = False
        self._refused: tuple[ReportRejected, Committed | None] | None = None

    def step(self, snapshot: Snapshot) -> Update[CommitResult] | NoUpdate[CommitResult]:
        """Decide on the current root. Safe to repeat: it finds this call's own earlier success there (C9)."""
        lake, plan, report = self._lake, self._plan, self._report
        ledger = snapshot.ledger(plan.interval.start, plan.interval.end)
        entry = ledger.entry(plan.interval)
        decision = committing.decide_commit(
            snapshot.root, entry, plan, earlier_plans=_earlier_plans(lake, entry, plan)
        )
        if isinstance(decision, committing.AlreadyCommitted):
            found = find_commit(lake, snapshot, plan.key)
            assert isinstance(found, CommitResult)
            return NoUpdate(value=found)
        if not isinstance(decision, committing.Publish):
            if (refusal := self._withdrawn(entry)) is not None:
                return NoUpdate(then_raise=refusal)
            raise _refusal(lake, plan, decision)
        if not self._checked:
            # Check only now: if the plan is committed or superseded, gc may have deleted its files.
            check_report(lake, plan, report)
            self._checked = True
        before = decision.before
        why_not = replacement.refused(lake, plan, report, before)
        if why_not is not None:
            self._refused = (why_not, before.committed)
            return _withdraw(snapshot, before, why_not)
        return _publish(lake, self._tables, snapshot, before, plan, report)

    def _withdrawn(self, entry: Entry | None) -> ReportRejected | None:
        """Return why this call withdrew the grant (C9); None if it did not, or if the interval has changed since."""
        if self._refused is None or entry is None:
            return None
        why, committed = self._refused
        # A compaction may have moved the rows of the commit since.
        unchanged = _plan_of(entry.committed) == _plan_of(committed)
        return why if entry.granted is None and unchanged else None


def _plan_of(committed: Committed | None) -> keys.PlanKey | None:
    return committed.plan if committed is not None else None


def _earlier_plans(lake: Lake, entry: Entry | None, plan: Plan) -> frozenset[str]:
    if entry is None or entry.committed is None or entry.committed.plan == plan.key:
        return frozenset()
    if entry.granted is not None and entry.granted.plan == plan.key:
        return frozenset()  # the plan has a grant, so it was never committed and never replaced
    return frozenset(c.plan for c in lake.earlier_commits(entry)[1:])


def _without_objects(lake: Lake, plan_key: keys.PlanKey, gone: str) -> CommitResult:
    """Return the result if the plan is committed, although the plan or the report is gone.

    Raises ReportRejected if the plan is still granted, Superseded if it is not.
    """
    found = lake.read(lambda snapshot: find_commit(lake, snapshot, plan_key))
    if isinstance(found, CommitResult):
        return found
    if found is not None and found.granted is not None and found.granted.plan == plan_key:
        raise ReportRejected(
            f"{lake.where(gone)} is gone, and plan {plan_key} is granted and not committed.",
            hint="clear this run's plan task with its downstream. Find out what deleted the object: tallystick did "
            "not (a lifecycle rule?).",
        )
    raise Superseded(
        f"{lake.where(gone)} is gone, and plan {plan_key} is not committed: its grant was cancelled and collected.",
        hint="clear this run's plan task to plan the interval again.",
    )


def _refusal(
    lake: Lake,
    plan: Plan,
    decision: committing.Difference | committing.GrantLost,
) -> Superseded | IdentityChanged | SchemaChanged:
    match decision:
        case committing.IdentityDiffers(what=what, planned=planned, found=found):
            return IdentityChanged(
                f"{what}: expected {planned} as in the plan of {plan.interval}, found {found} in the lake.",
                hint="clear this run's plan task; if the topic was created anew, its error describes how to continue.",
            )
        case committing.ColumnsDiffer(table=table, planned=planned, found=found):
            return SchemaChanged(
                f"table {table}: expected {planned} as in the plan of {plan.interval}, found {found} in the lake.",
                hint="clear this run's plan task to replan with the current columns.",
            )
        case committing.PartitioningDiffers(table=table, planned=old, found=new):
            return SchemaChanged(
                f"table {table}: expected partitioning by {listed(old)} as in the plan of {plan.interval}, found "
                f"{listed(new)} in the lake.",
                hint="clear this run's plan task to replan with the current partitioning.",
            )
        case committing.GrantLost(holder=holder):
            who = (
                f"is now held by {holder}"
                if holder
                else "is not in the ledger (taken over or cancelled)"
            )
            return Superseded(
                f"{plan.interval} was granted to {plan.request} as generation {plan.generation} and {who}.",
                hint="do nothing if that was intended; otherwise clear this run's plan task. gc collects the files.",
            )


def _withdraw(snapshot: Snapshot, before: Entry, why: ReportRejected) -> Update[CommitResult]:
    """Build the update that withdraws the grant and then raises `why`.

    Clearing this run again leads to the same refusal, and its grant would block another run that can replace the
    interval. Safe to repeat: a repeat finds the grant gone.
    """
    ledger = snapshot.ledger(before.interval.start, before.interval.end)
    ledger.cancel(before.interval)
    return Update(
        tables=snapshot.root.tables, topics=snapshot.root.topics, ledger=ledger, then_raise=why
    )


def _publish(
    lake: Lake, tables: TableStager, snapshot: Snapshot, before: Entry, plan: Plan, report: Report
) -> Update[CommitResult]:
    """Write the metadata of every table and build the update of this root.

    Safe to repeat: nothing names the metadata before the swap (C7, C8).
    """
    replaced, granted = before.committed, before.granted
    assert granted is not None  # guaranteed by committing.Publish
    dropped = _files_of(lake, before, replaced) if replaced is not None else {}
    generation = granted.generation
    totals = Totals(**account_totals(report.accounts))
    after = replace(
        before,
        granted=None,
        committed=Committed(
            plan=plan.key,
            request=plan.request,
            generation=generation,
            fingerprint=plan.fingerprint,
            record=snapshot.record_key,
            totals=totals,
            lookback=report.lookback,
        ),
        outputs=outputs_with_plan(before.outputs, plan.key, _nothing_for(lake, plan, report)),
    )
    removed = removed_rows(lake, snapshot, before, after, dropped) if replaced is not None else {}
    staged = _stage_tables(lake, tables, snapshot, plan, report, removed)
    ledger = snapshot.ledger(plan.interval.start, plan.interval.end)
    ledger.put(after)
    added = {name: tuple(f.key for f in report.files if f.table == name) for name in staged}
    done = CommittedInterval(
        interval=plan.interval,
        plan=plan.key,
        report=report.key,
        request=plan.request,
        generation=generation,
        fingerprint=plan.fingerprint,
        replaces=replaced.record if replaced else None,
        totals=totals,
        accounts=report.accounts,
        added={name: files for name, files in added.items() if files},
        dropped={name: files for name, files in dropped.items() if files},
    )
    result = CommitResult(
        interval=plan.interval,
        plan=plan.key,
        version=snapshot.root.version + 1,
        generation=generation,
        totals=totals,
        already=False,
    )
    return Update(
        tables={**snapshot.root.tables, **staged},
        topics=snapshot.root.topics,
        ledger=ledger,
        committed=(done,),
        value=result,
    )


def _nothing_for(lake: Lake, plan: Plan, report: Report) -> dict[str, bool]:
    """Return, by output of the plan, True if no row was staged for it."""
    return {o.name: not report.rows(o.table) for o in replacement.outputs_of(lake, plan)}


def _files_of(lake: Lake, entry: Entry, committed: Committed) -> Mapping[str, tuple[str, ...]]:
    """Return the files that the entry's committed plan added, by table. A replacement drops the rows of all of them.

    Raises Corrupt if the record of that commit is gone or describes another plan.
    """
    chain = lake.earlier_commits(entry)
    if not chain or chain[0].plan != committed.plan:
        found = f"plan {chain[0].plan}" if chain else "no record, or one without this interval"
        raise Corrupt(
            f"{lake.where(committed.record)}, the record of the commit to be replaced: expected plan {committed.plan}, "
            f"found {found}.",
            hint="restore it from a bucket version: it was not changed by tallystick. The old commit remains.",
        )
    return chain[0].added


def _stage_tables(
    lake: Lake,
    tables: TableStager,
    snapshot: Snapshot,
    plan: Plan,
    report: Report,
    removed: Mapping[str, RemovedRows],
) -> dict[str, RootTable]:
    properties = {
        "tallystick.plan": plan.key,
        "tallystick.interval": str(plan.interval),
        "tallystick.record": snapshot.record_key,
    }
    staged: dict[str, RootTable] = {}
    for name in sorted({t.name for t in plan.tables} | set(removed)):
        if len(staged) == 1 and snapshot.root.pending:
            # A publisher that did not pause (`lake.room`) has swapped by now: begin again if the root moved.
            snapshot.check_still_there()
        table = snapshot.root.tables[name]
        rows = removed.get(name)
        metadata = tables.stage(
            table_state(name, table),
            add=[f for f in report.files if f.table == name],
            drop=frozenset(rows.drop if rows is not None else ()),
            delete=rows.delete if rows is not None else {},
            properties=properties,
            now=lake.runtime.now(),
        )
        staged[name] = replace(table, metadata=metadata)
    return staged
