"""The messages that tasks log, as pure functions from values to text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tallystick.format.interval import Interval
from tallystick.format.page import Totals
from tallystick.format.plan import Plan
from tallystick.format.report import mostly_dead
from tallystick.operations.commit import CommitResult
from tallystick.operations.plan import PlanResult
from tallystick.operations.publish import NotPublished, Published
from tallystick.operations.register import Registered

_SHOWN_MAX = 5


def planned_lines(planned: PlanResult, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield the log lines of a plan task: what it found and was granted. `plans` are those left to stage."""
    if planned.interval is None:
        yield f"nothing is new at version {planned.version}: the ledger reaches the end of this run"
        return
    yield f"interval {planned.interval} at version {planned.version}"
    if planned.covered:
        yield f"committed by other runs, and unchanged: {some(planned.covered)}"
    for interval, holder in planned.held:
        yield f"held by {holder}: {interval}; left out (take_over=true would cancel it)"
    for interval, holder in planned.cancelled:
        yield f"cancelled: the grant of {holder} for {interval}"
    if planned.left:
        yield f"left as it is, because the log no longer has its records: {some(planned.left)}"
    done = [p for p in planned.intervals if p.committed]
    if done:
        yield f"committed already, nothing to stage: {some(p.interval for p in done)}"
    for plan in plans:
        what = f"replaces {plan.replaces}" if plan.replaces else "fills a gap"
        yield f"plan {plan.key}:"
        yield f"  {plan.interval}, generation {plan.generation}, {what}"
        for topic in plan.topics:
            spans = [r.span.length for r in topic.ranges]
            lost = sum(r.lost for r in topic.ranges)
            gone = f", {lost:,} of them lost" if lost else ""
            yield f"  topic {topic.name}: {sum(spans):,} offsets in {len(spans)} partitions{gone}"
    if not plans:
        yield "nothing is left to stage: no Spark will be started"


def committed_lines(result: CommitResult) -> Iterator[str]:
    """Yield the log lines of one plan's commit: the result, then its counts on a separate line."""
    if result.replaced_by is not None:
        yield f"{result.interval} was committed, and replaced since by generation {result.replaced_by}"
        return
    if result.already:
        yield f"{result.interval} was committed already, as generation {result.generation}:"
    else:
        yield f"committed {result.interval} as version {result.version}, generation {result.generation}:"
    yield f"  {totals_text(result.totals)}"


def dead_line(result: CommitResult) -> str | None:
    """Return a warning with the next step if half of an interval's records or more are dead letters, otherwise None."""
    records, dead = result.totals.records, result.totals.dead_letters
    if result.replaced_by is not None or not mostly_dead(records, dead):
        return None
    return (
        f"{dead:,} of {records + dead:,} records of {result.interval} are dead letters. The log of `stage` has the most "
        "frequent reasons; `tally dead-letters` has all of them. If the declaration is wrong, correct it, deploy it and "
        "clear `plan`."
    )


def stale_line(left: Mapping[Interval, Interval]) -> str:
    """Return the warning that lists the stale intervals and the run that replaces them."""
    intervals = some(sorted(left))
    return f"stale, because their lookback has changed since: {intervals}; one run with mode=refresh replaces them"


def published_line(published: Published) -> str:
    """Return the log line for rows that an output received."""
    resumed = ", which an earlier try had begun" if published.resumed else ""
    return (
        f"published {published.interval} to output {published.output}: {published.rows:,} rows of generation "
        f"{published.generation}{resumed}"
    )


def not_published_line(failed: NotPublished) -> str:
    """Return the log line for an interval that was not published, with its error."""
    place = f"output {failed.output}"
    what = f"{failed.interval} to {place}" if failed.interval else f"to {place}"
    return f"not published: {what}: {failed.error.kind}: {failed.error}"


def registered_line(registered: Registered) -> str:
    """Return the log line for a registration that has a version now."""
    return f"registered version {registered.version} in {registered.registration}: {registered.tables:,} tables"


def totals_text(totals: Totals) -> str:
    """Return the account as text. A class that is zero is left out, unless it is records or dead letters."""
    counts = {
        "records": totals.records,
        "dead letters": totals.dead_letters,
        "aborted": totals.aborted,
        "control": totals.control,
        "compacted away": totals.absent,
        "lost": totals.lost,
    }
    always = ("records", "dead letters")
    return ", ".join(f"{n:,} {what}" for what, n in counts.items() if n or what in always)


def some(intervals: Iterable[Interval]) -> str:
    """Return the first intervals as text, and the number of the others if there are more."""
    listed = list(intervals)
    shown = ", ".join(str(i) for i in listed[:_SHOWN_MAX])
    more = len(listed) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
