"""The use case `commit`: check the staged files, then swap the root that makes them visible. No JVM.

One PUT publishes all tables, the dead letters and the offsets together. Every try of the swap decides again, on the root
that it has read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from tallystick.errors import Corrupt, IdentityChanged, ReportRejected, SchemaChanged, Superseded
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Committed, Entry, Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval
from tallystick.format.report import FileReport, Report, account_totals
from tallystick.format.root import RootTable
from tallystick.lake import Lake, NoUpdate, Snapshot, Update
from tallystick.lake.room import RoomRequest
from tallystick.operations.published_rows import has_published_rows
from tallystick.pipeline import DEAD_LETTERS, PlannedOutput, outputs_in_spec
from tallystick.protocol import committing
from tallystick.protocol.invariants import account_problem
from tallystick.protocol.publishing import outputs_with_plan
from tallystick.tables.state import TableState


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
    ) -> str:
        """Write metadata with one new snapshot that removes the files `drop` and adds the files `add`; return its key.

        Safe to repeat: every call writes new objects that only a root can make visible.
        """
        ...


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
        why_not = _holds_fewer(lake, plan, report, before) or _sent_for_good(lake, plan, before)
        if why_not is not None:
            self._refused = (why_not, before.committed)
            return _withdraw(snapshot, before, why_not)
        return _publish(lake, self._tables, snapshot, before, plan, report)

    def _withdrawn(self, entry: Entry | None) -> ReportRejected | None:
        """Return why this call withdrew the grant (C9); None if it did not, or if the interval has changed since."""
        if self._refused is None or entry is None:
            return None
        why, committed = self._refused
        return why if (entry.granted, entry.committed) == (None, committed) else None


def _earlier_plans(lake: Lake, entry: Entry | None, plan: Plan) -> frozenset[str]:
    if entry is None or entry.committed is None or entry.committed.plan == plan.key:
        return frozenset()
    if entry.granted is not None and entry.granted.plan == plan.key:
        return frozenset()  # the plan has a grant, so it was never committed and never replaced
    return frozenset(c.plan for c in lake.earlier_commits(entry)[1:])


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
    decision: committing.IdentityDiffers | committing.ColumnsDiffer | committing.GrantLost,
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


# ---------------------------------------------------------------- staged files


def check_report(lake: Lake, plan: Plan, report: Report) -> None:
    """Raise ReportRejected unless the report is this plan's, adds up, and its files exist as reported (I3, I7)."""
    for problem in _problems(plan, report):
        raise _rejected(lake, plan, report, problem)
    expected = {f.key: f for f in report.files}
    for table in sorted({f.table for f in report.files}):
        prefix = keys.attempt_prefix(table, plan.key, report.attempt)
        for listed in lake.store.list(prefix):
            file = expected.pop(listed.key, None)
            if file is not None and (file.size_bytes, file.etag) != (
                listed.size_bytes,
                listed.etag,
            ):
                raise _rejected(
                    lake,
                    plan,
                    report,
                    f"{listed.key}: expected {file.size_bytes} bytes and ETag {file.etag} as reported, found "
                    f"{listed.size_bytes} and {listed.etag}",
                )
    if expected:
        raise _rejected(lake, plan, report, f"{sorted(expected)[0]} does not exist")


def _rejected(lake: Lake, plan: Plan, report: Report, problem: str) -> ReportRejected:
    return ReportRejected(
        f"{lake.where(report.key)} for {plan.interval} does not match the plan: {problem}.",
        hint="clear this run's stage task to stage it again; if the error comes back, it is a defect: keep the report.",
    )


def _problems(plan: Plan, report: Report) -> Sequence[str]:
    problems: list[str] = []
    if report.plan != plan.key or report.plan_sha256 != plan.sha256:
        problems.append(
            f"expected a report of {plan.key}@{plan.sha256}, found one of {report.plan}@{report.plan_sha256}"
        )
    if report.fingerprint != plan.fingerprint:
        problems.append(
            f"expected fingerprint {plan.fingerprint[:12]}, found {report.fingerprint[:12]}"
        )
    if (unbalanced := account_problem(plan, report.accounts)) is not None:
        problems.append(unbalanced)
    dead = sum(a.dead_letters for a in report.accounts)
    if report.rows(DEAD_LETTERS) != dead:
        problems.append(
            f"dead letters: expected {dead} rows as accounted, found {report.rows(DEAD_LETTERS)}"
        )
    return problems or _file_problems(plan, report)


def _file_problems(plan: Plan, report: Report) -> Sequence[str]:
    problems: list[str] = []
    _, plan_uuid = keys.plan_parts(plan.key)
    readable = {(t.name, p): r.readable for t in plan.topics for p, r in enumerate(t.ranges)}
    for file in report.files:
        table, part, uuid, attempt = keys.data_file_parts(file.key)
        planned = plan.table(table)
        if planned is None or (part, uuid, attempt) != (
            plan.interval.part,
            plan_uuid,
            report.attempt,
        ):
            problems.append(f"{file.key} is outside the attempt's prefix")
            continue
        unknown = {c.id for c in file.columns} - {c.id for c in planned.columns}
        if unknown:
            problems.append(f"{file.key} has column id {min(unknown)}, which is not in the plan")
        for line in file.lineage:
            span = readable.get((line.topic, line.partition))
            if span is None or not span.start <= line.first <= line.last < span.end:
                problems.append(
                    f"{file.key}: expected offsets of {line.topic}[{line.partition}] in {span}, found "
                    f"{line.first}..{line.last}"
                )
    return problems


def _holds_fewer(lake: Lake, plan: Plan, report: Report, entry: Entry) -> ReportRejected | None:
    """Return the error if a replacement lacks records of the commit that it replaces, or has them as dead letters.

    Return None if it does not, if the plan accepts it, or if nothing is replaced.
    """
    before = entry.committed
    if before is None:
        return None
    now, then = Totals(**account_totals(report.accounts)), before.totals
    first, last = (keys.instant(at) for at in (plan.interval.start, plan.interval.end))
    trigger = f"trigger a run with from={first}, to={last}, mode=replace and "
    old_remains = "The old commit remains, and the grant is withdrawn."
    to_dead = 0 if plan.accept_dead_letters else _rows_to_dead(lake, report, entry.interval, before)
    if now.records + now.dead_letters < then.records + then.dead_letters and not (
        plan.accept_loss or plan.accept_compaction
    ):
        also = " as well as accept_dead_letters=true" if to_dead or plan.accept_dead_letters else ""
        return ReportRejected(
            f"{plan.interval}: expected at least {then.records + then.dead_letters} records and dead letters, as many as "
            f"in the committed generation {before.generation}, found {now.records + now.dead_letters} in the "
            f"replacement. {old_remains}",
            hint="the topic was compacted or lost records since then. To replace the interval anyway, "
            f"{trigger}accept_compaction=true or accept_loss=true{also}.",
        )
    if not to_dead:
        return None
    # The hint repeats the switches of this plan: without them, the next run would be refused for that reason.
    accepts = {"accept_compaction": plan.accept_compaction, "accept_loss": plan.accept_loss}
    accepted = "".join(f", {name}=true" for name, is_set in accepts.items() if is_set)
    return ReportRejected(
        f"{plan.interval}: expected {then.records} records and {then.dead_letters} dead letters, as in the committed "
        f"generation {before.generation}, found {now.records} and {now.dead_letters} in the replacement: at least "
        f"{to_dead} row(s) would become dead letters. {old_remains}",
        hint="check the declaration (a column's type, parse or source, the topic's decode): the log of `stage` has "
        f"the reasons. If they are to remain dead letters, {trigger}accept_dead_letters=true{accepted}.",
    )


def _rows_to_dead(lake: Lake, report: Report, interval: Interval, before: Committed) -> int:
    """Return the minimum number of records of the committed generation that are dead letters in the report.

    Counted per topic and partition, so that more records in one partition (as of an added topic) do not hide fewer in
    another.
    """
    if not any(account.dead_letters for account in report.accounts):
        return 0
    record = lake.record(before.record)
    known = next((c for c in record.intervals if c.interval == interval), None) if record else None
    # Without a record, the files to drop are unknown too: `_files_of` raises Corrupt for that.
    then = {(a.topic, a.partition): a for a in known.accounts} if known else {}
    found = 0
    for now in report.accounts:
        if (old := then.get((now.topic, now.partition))) is not None:
            found += max(0, min(old.records - now.records, now.dead_letters - old.dead_letters))
    return found


def _sent_for_good(lake: Lake, plan: Plan, before: Entry) -> ReportRejected | None:
    """Return the error if an output that takes no second publication has received the interval, or may have; else None.

    That can happen after the replacement was planned.
    """
    for output in _outputs_of(lake, plan):
        if output.replaced == "refuse" and has_published_rows(lake, before, output.name):
            return ReportRejected(
                f"{plan.interval} is published to output {output.name}, which does not allow a replacement. The old "
                "commit remains, and the grant is withdrawn.",
                hint="leave the interval as it is; or declare how the output handles a replacement: "
                "replaced='correct', 'compensate' or 'once'.",
            )
    return None


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


# ---------------------------------------------------------------- publication


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
    staged = _stage_tables(lake, tables, snapshot, plan, report, dropped)
    ledger = snapshot.ledger(plan.interval.start, plan.interval.end)
    ledger.put(
        replace(
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
    )
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
    return {o.name: not report.rows(o.table) for o in _outputs_of(lake, plan)}


def _outputs_of(lake: Lake, plan: Plan) -> tuple[PlannedOutput, ...]:
    return outputs_in_spec(plan.spec, where=f"{lake.where(plan.key)}.spec")


def _files_of(lake: Lake, entry: Entry, committed: Committed) -> Mapping[str, tuple[str, ...]]:
    """Return the files that the entry's committed plan added, by table. A replacement drops all of them.

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
    dropped: Mapping[str, tuple[str, ...]],
) -> dict[str, RootTable]:
    properties = {
        "tallystick.plan": plan.key,
        "tallystick.interval": str(plan.interval),
        "tallystick.record": snapshot.record_key,
    }
    staged: dict[str, RootTable] = {}
    for name in sorted({t.name for t in plan.tables} | set(dropped)):
        if len(staged) == 1 and snapshot.root.pending:
            # A publisher that did not pause (`lake.room`) has swapped by now: begin again if the root moved.
            snapshot.check_still_there()
        table = snapshot.root.tables[name]
        state = TableState(
            name=name,
            uuid=table.uuid,
            metadata=table.metadata,
            columns=table.columns,
            partition_by=table.partition_by,
        )
        metadata = tables.stage(
            state,
            add=[f for f in report.files if f.table == name],
            drop=frozenset(dropped.get(name, ())),
            properties=properties,
            now=lake.runtime.now(),
        )
        staged[name] = replace(table, metadata=metadata)
    return staged
