"""Checks one committed interval at a time.

Compares its record, plan and report with each other, with the ledger, with the tables and with the data files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.columns import with_parts
from tallystick.format.lookback import LookbackUsed
from tallystick.format.page import TOTALS, Totals
from tallystick.format.plan import Plan
from tallystick.format.record import CommittedInterval
from tallystick.format.report import FileReport, Report, account_totals
from tallystick.operations.verify.evidence import Case, Evidence
from tallystick.operations.verify.places import Places
from tallystick.operations.verify.proof import Ongoing
from tallystick.operations.verify.tables import TableContents
from tallystick.pipeline import DEAD_LETTERS, Pipeline, pipeline_from_spec
from tallystick.protocol import committing
from tallystick.protocol.invariants import account_problem


def check_interval(
    evidence: Evidence, case: Case, held: Mapping[str, TableContents], places: Places
) -> None:
    """Run all checks of one committed interval that need no data file's content."""
    checks = evidence.checks
    if case.record is not None:
        _check_ledger(checks["accounts"], case, case.record)
    if case.plan is not None:
        _check_plan(evidence, case, case.plan)
    if case.record is not None and case.plan is not None:
        problem = account_problem(case.plan, case.record.accounts)
        if problem is not None:
            checks["accounts"].found(
                "I7",
                case.where,
                "the accounts and the plan's ranges",
                expected="covered exactly",
                found=problem,
            )
    if case.record is not None and case.report is not None:
        _check_report(checks["accounts"], case, case.record, case.report)
    if case.record is not None:
        _check_files(evidence, case, case.record, held, places)
    if case.report is not None and case.plan is not None:
        for file in case.report.files:
            _check_lineage(checks["lineage"], case.where, case.plan, file)
            _check_column_ids(checks["columns"], case.plan, file)


def _check_ledger(check: Ongoing, case: Case, record: CommittedInterval) -> None:
    ledger = case.committed
    check.count("interval")
    check.count("range", len(record.accounts))
    check.count("offset", record.totals.offsets)
    if record.report is None and record.totals.offsets:
        check.found(
            "I7",
            case.where,
            "the report of an interval with offsets",
            expected="a report",
            found="none",
        )
    summed = Totals(**account_totals(record.accounts))
    check.differs(
        "I7",
        case.where,
        "the record's totals and its accounts",
        expected=_totals_text(summed),
        found=_totals_text(record.totals),
    )
    check.differs(
        "I7",
        case.where,
        "the ledger's totals and the record's",
        expected=_totals_text(record.totals),
        found=_totals_text(ledger.totals),
    )
    check.differs(
        "I5",
        case.where,
        "fingerprint and owner in the ledger and the record",
        expected=(record.fingerprint, str(record.request)),
        found=(ledger.fingerprint, str(ledger.request)),
    )


def _check_plan(evidence: Evidence, case: Case, plan: Plan) -> None:
    ledger = case.committed
    evidence.checks["accounts"].differs(
        "I5",
        case.where,
        "interval, generation, fingerprint and owner of the committed plan",
        expected=(
            str(case.entry.interval),
            ledger.generation,
            ledger.fingerprint,
            str(ledger.request),
        ),
        found=(str(plan.interval), plan.generation, plan.fingerprint, str(plan.request)),
    )
    check = evidence.checks["columns"]
    match committing.differs_from_root(evidence.root, plan, is_committed=True):
        case committing.IdentityDiffers(what=what, planned=planned, found=found):
            check.found(
                "I11", case.where, f"{what} in the root and the plan", expected=planned, found=found
            )
        case committing.ColumnsDiffer(table=table, planned=planned, found=found):
            check.found(
                "I11", case.where, f"a column of table {table}", expected=planned, found=found
            )
        case _:
            check.count("plan")


def _check_report(check: Ongoing, case: Case, record: CommittedInterval, report: Report) -> None:
    check.differs(
        "I5",
        report.key,
        "the lookback in the report and in the ledger",
        expected=_lookback_text(report.lookback),
        found=_lookback_text(case.committed.lookback),
    )
    if case.plan is not None:
        check.differs(
            "I5",
            report.key,
            "the plan that was staged (key, sha256, fingerprint)",
            expected=(case.plan.key, case.plan.sha256, case.plan.fingerprint),
            found=(report.plan, report.plan_sha256, report.fingerprint),
        )
    check.differ_in(
        "I7",
        report.key,
        "the accounts of the report and the record",
        expected=report.accounts,
        found=record.accounts,
    )
    check.differ_in(
        "I5",
        report.key,
        "the files of the report and the record",
        expected=[f.key for f in report.files],
        found=[key for files in record.added.values() for key in files],
    )


def _check_files(
    evidence: Evidence,
    case: Case,
    record: CommittedInterval,
    held: Mapping[str, TableContents],
    places: Places,
) -> None:
    """Check that each file is stored as reported (I3), and that row counts match accounts and reports (I7).

    The files that a compaction has moved are not needed any more; their rows are those of its runs.
    """
    objects, accounts = evidence.checks["objects"], evidence.checks["accounts"]
    reported = {f.key: f for f in case.report.files} if case.report is not None else {}
    for table, files in record.added.items():
        for key in files:
            if key in places.moved:
                continue
            objects.count("data file")
            listed = evidence.listed.get(key)
            if listed is None:
                objects.found(
                    "I3", key, f"a data file of {case.where}", expected="an object", found="none"
                )
                continue
            file = reported.get(key)
            if file is None:
                continue  # there is nothing to compare it with; the missing report is a finding of its own
            objects.count("data byte", listed.size_bytes)
            objects.differs(
                "I3",
                key,
                "the data file's size and ETag",
                expected=f"{file.size_bytes} bytes, ETag {file.etag}",
                found=f"{listed.size_bytes} bytes, ETag {listed.etag}",
            )
        there = held.get(table)
        if there is None or not there.readable:
            continue
        rows = _rows(files, there, places)
        if case.report is not None:
            accounts.differs(
                "I7",
                f"{case.where} table {table}",
                "rows in the table's metadata",
                expected=case.report.rows(table),
                found=rows,
            )
    _check_dead(accounts, case, record, held.get(DEAD_LETTERS), places)


def _rows(files: Sequence[str], there: TableContents, places: Places) -> int:
    """Return the number of rows that the table has of these reported files."""
    in_place = sum(there.files[key].rows for key in files if key in there.files)
    moved = (places.moved[key] for key in files if key in places.moved)
    return in_place + sum(m.placed.run.rows for m in moved if m.shared.file.key in there.files)


def _check_dead(
    check: Ongoing,
    case: Case,
    record: CommittedInterval,
    dead_letters: TableContents | None,
    places: Places,
) -> None:
    if dead_letters is None or not dead_letters.readable:
        return
    rows = _rows(record.added.get(DEAD_LETTERS, ()), dead_letters, places)
    check.count("dead letter", rows)
    check.differs(
        "I7",
        case.where,
        "dead letters accounted and in the table",
        expected=record.totals.dead_letters,
        found=rows,
    )


def _check_lineage(check: Ongoing, where: str, plan: Plan, file: FileReport) -> None:
    check.count("file")
    record_level = holds_lineage(plan, file.table)
    if record_level is None:
        check.found(
            "I1",
            file.key,
            "the table's declaration in the plan",
            expected="readable",
            found="not readable",
        )
        return
    check.count("row with lineage", file.rows if record_level else 0)
    if bool(file.lineage) != record_level:
        check.found(
            "I1",
            file.key,
            "reported lineage",
            expected="some" if record_level else "none, since the table aggregates",
            found=f"{len(file.lineage)} ranges",
        )
    readable = {(t.name, p): r.readable for t in plan.topics for p, r in enumerate(t.ranges)}
    for line in file.lineage:
        span = readable.get((line.topic, line.partition))
        if span is None or not span.start <= line.first <= line.last < span.end:
            check.found(
                "I1",
                file.key,
                f"offsets of {line.topic}[{line.partition}] in a file of {where}",
                expected=f"inside {span}",
                found=f"{line.first}..{line.last}",
            )


def _check_column_ids(check: Ongoing, plan: Plan, file: FileReport) -> None:
    planned = plan.table(file.table)
    known = {c.id for c in with_parts(planned.columns)} if planned else set()
    unknown = sorted({c.id for c in file.columns} - known)
    if unknown:
        check.found(
            "I11", file.key, "column ids of the file", expected=sorted(known), found=unknown
        )


def holds_lineage(plan: Plan, table: str) -> bool | None:
    """Return True if each row of the table comes from one record; None if the plan's declaration cannot be read."""
    if table == DEAD_LETTERS:
        return True
    try:
        declared = _declared(plan).table(table)
    except TallystickError:
        return None
    return None if declared is None else not declared.aggregates


def _declared(plan: Plan) -> Pipeline:
    return pipeline_from_spec(plan.spec, where=f"{plan.key}.spec")


def _lookback_text(lookback: LookbackUsed | None) -> str:
    if lookback is None:
        return "nothing"
    seen = (f"{s.interval} {s.fingerprint[:12]} {s.records}" for s in lookback.seen)
    return f"from {keys.instant(lookback.since)}: {', '.join(seen) or 'nothing'}"


def _totals_text(totals: Totals) -> str:
    return ", ".join(
        f"{name} {count}" for name, count in zip(TOTALS, totals.to_json(), strict=True)
    )
