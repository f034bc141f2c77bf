"""When a report may replace the committed generation of its interval."""

from __future__ import annotations

from tallystick.errors import ReportRejected
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Committed, Entry, Totals
from tallystick.format.plan import Plan
from tallystick.format.report import Report, account_totals
from tallystick.lake import Lake
from tallystick.operations.published_rows import has_published_rows
from tallystick.pipeline import PlannedOutput, outputs_in_spec


def refused(lake: Lake, plan: Plan, report: Report, before: Entry) -> ReportRejected | None:
    """Return the error if the report must not replace the committed generation of the entry, else None.

    It must not if it lacks records of that generation, or has them as dead letters, unless the plan accepts that; nor if
    an output that takes no second publication has received the interval. If nothing is committed, it may always.
    """
    return _has_fewer(lake, plan, report, before) or _sent_for_good(lake, plan, before)


def _has_fewer(lake: Lake, plan: Plan, report: Report, entry: Entry) -> ReportRejected | None:
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
    # Without a record, the files to drop are unknown too: `attempt._files_of` raises Corrupt for that.
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
    for output in outputs_of(lake, plan):
        if output.replaced == "refuse" and has_published_rows(lake, before, output.name):
            return ReportRejected(
                f"{plan.interval} is published to output {output.name}, which does not allow a replacement. The old "
                "commit remains, and the grant is withdrawn.",
                hint="leave the interval as it is; or declare how the output handles a replacement: "
                "replaced='correct', 'compensate' or 'once'.",
            )
    return None


def outputs_of(lake: Lake, plan: Plan) -> tuple[PlannedOutput, ...]:
    """Return the outputs that the plan names."""
    return outputs_in_spec(plan.spec, where=f"{lake.where(plan.key)}.spec")
