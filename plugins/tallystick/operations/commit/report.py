"""The check of a report: it is of this plan, adds up, and its files exist as it lists them."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import ReportRejected
from tallystick.format import keys
from tallystick.format.columns import with_parts
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.pipeline import DEAD_LETTERS
from tallystick.protocol.invariants import account_problem


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
        unknown = {c.id for c in file.columns} - {c.id for c in with_parts(planned.columns)}
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
