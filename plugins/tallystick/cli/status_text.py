"""The answer of `tally status` as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC

from tallystick.cli.lag import Lag
from tallystick.cli.text import (
    INDENT,
    age,
    classes,
    command,
    grid,
    length,
    many,
    paragraph,
    span,
    spell,
)
from tallystick.format.interval import Request
from tallystick.format.page import Totals
from tallystick.operations.status import IntervalStatus, Status, dead_share
from tallystick.operations.status.gaps import Gap
from tallystick.operations.status.grants import GrantStatus

PENDING_SHOWN = 20
STALE_SHOWN = 20
DEAD_SHOWN = 20


def status(
    answer: Status, *, last: int, problems: Mapping[str, int] | None = None, lag: Lag | None = None
) -> str:
    """Return the answer as text: intervals, grants, losses, gaps with commands, and a verdict if `problems` is given."""
    dags = {one.owner.dag for one in answer.intervals}
    dag = next(iter(dags)) if len(dags) == 1 else None
    parts = ["\n".join([*_status_head(answer, dag), *_lag(answer, lag)])]
    shown = answer.intervals[-last:] if last else answer.intervals
    if shown:
        parts.append(_interval_grid(shown, dag))
    left_out = len(answer.intervals) - len(shown)
    if left_out:
        parts.append(f"{many(left_out, 'earlier interval')} not shown: --last 0 shows all.")
    parts.append(paragraph(_sums(answer)))
    parts += _all_dead(answer)
    parts += _grants(answer)
    parts += _pending(answer)
    parts += _stale(answer)
    parts += _cancelled(answer)
    parts += _lost(answer)
    parts += _fewer(answer)
    parts.append(_gaps(answer.gaps))
    if problems is not None:
        counts = ", ".join(f"{count:,} {name}" for name, count in problems.items())
        parts.append(f"NOT OK: {counts}." if problems else "OK.")
    return "\n\n".join(parts)


def _sums(answer: Status) -> str:
    shown = f"{many(len(answer.committed), 'interval')} committed: {classes(answer.totals)}."
    if len(answer.generations) > 1 or max(answer.generations, default=1) > 1:
        counts = (
            f"{many(count, 'interval')} of generation {generation}"
            for generation, count in answer.generations.items()
        )
        shown += f" {', '.join(counts)}."
    return shown


def _lag(answer: Status, lag: Lag | None) -> list[str]:
    """Return lines with the time of the last commit and the lag of each topic after the latest committed interval."""
    lines = []
    if answer.committed_at is not None:
        at = f"{answer.committed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        lines.append(f"last commit at {at} (UTC)")
    if lag is None:
        return [*lines, "lag not requested"] if answer.read_to else lines
    if lag.error is not None:
        shown = f"lag unknown ({lag.error.kind}): {lag.error.message}"
        return [*lines, paragraph(shown)]
    to = "the topic's beginning" if answer.committed_to is None else spell(answer.committed_to)
    for name, one in lag.topics.items():
        gone = f"; the log has lost {one.gone:,} of them" if one.gone else ""
        lines.append(paragraph(f"lag of topic {name}: {many(one.lag, 'offset')} after {to}{gone}"))
    return lines


def _all_dead(answer: Status) -> list[str]:
    if not answer.all_dead:
        return []
    lines = [f"ALL DEAD: {many(len(answer.all_dead), 'interval')} with dead letters and no record:"]
    lines += [
        f"{INDENT}{span(one.interval)}: {many(one.totals.dead_letters, 'dead letter')}"
        for one in answer.all_dead[:DEAD_SHOWN]
        if one.totals is not None
    ]
    if len(answer.all_dead) > DEAD_SHOWN:
        lines.append(f"{INDENT}and {len(answer.all_dead) - DEAD_SHOWN:,} more")
    lines.append("Read the reasons in the table dead_letters with `tally sql`.")
    return ["\n".join(lines)]


def _dead(totals: Totals) -> str:
    """Return the number of dead letters with their share; the share is `all` only if it is exactly 1."""
    share = dead_share(totals)
    if not share:
        return f"{totals.dead_letters:,}"
    percent = "all" if share == 1 else "<1%" if share < 0.01 else f"{int(share * 100)}%"
    return f"{totals.dead_letters:,} ({percent})"


def _status_head(answer: Status, dag: str | None) -> list[str]:
    lines = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    for name, topic in sorted(answer.topics.items()):
        line = f"topic {name}: {many(len(topic.origins), 'partition')}, id {topic.topic_id}, cluster {topic.cluster_id}"
        if topic.closed is not None:
            line += f"; closed at {spell(topic.closed.since)}, when another topic was adopted"
        lines.append(paragraph(line))
    if answer.first is not None and answer.last is not None:
        every = f", a run every {length(answer.every)}" if answer.every else ""
        lines.append(f"ledger from {spell(answer.first)} to {spell(answer.last)} (UTC){every}")
    if dag is not None:
        lines.append(paragraph(f"owned by runs of DAG {dag}"))
    return lines


def _interval_grid(intervals: Sequence[IntervalStatus], dag: str | None) -> str:
    rows = [
        (
            spell(one.interval.start),
            spell(one.interval.end),
            one.state,
            str(one.generation),
            *(
                (f"{one.totals.records:,}", _dead(one.totals), f"{one.totals.offsets:,}")
                if one.totals is not None
                else ("", "", "")
            ),
            _owner(one.owner, dag),
        )
        for one in intervals
    ]
    headings = ("from", "to", "state", "gen", "records", "dead", "offsets", "owner")
    return grid(headings, rows, right=("gen", "records", "dead", "offsets"))


def _grants(answer: Status) -> list[str]:
    if not answer.grants:
        return []
    lines = [f"{many(len(answer.grants), 'grant')} not committed yet:"]
    for grant in answer.grants:
        kind = "replaces committed rows" if grant.replaces else "fills a gap"
        since = (
            f"its plan cannot be read ({grant.plan})"
            if grant.age is None
            else f"granted {age(grant.age)} ago"
        )
        line = f"{span(grant.interval)}: {grant.request}, generation {grant.generation}, {kind}, {since}"
        lines.append(paragraph(line, indent=INDENT))
    lines.append(
        paragraph(
            "If a run has ended and left a grant, clear the run, or start another one with take_over=true."
        )
    )
    parts = ["\n".join(lines)]
    stuck = [grant for grant in answer.grants if grant.stuck]
    if stuck:
        parts.append(_stuck(stuck))
    return parts


def _stuck(grants: Sequence[GrantStatus]) -> str:
    lines = [
        f"STUCK? {many(len(grants), 'grant')} a day old or more, or without a plan. If a run will never commit, cancel:"
    ]
    lines += [command(grant.release) for grant in grants]
    return "\n".join(lines)


def _pending(answer: Status) -> list[str]:
    if not answer.pending:
        return []
    lines = [f"PENDING: {many(len(answer.pending), 'interval')} to publish:"]
    for one in answer.pending[:PENDING_SHOWN]:
        in_progress = ", in progress: some rows may be published" if one.in_progress else ""
        lines.append(
            paragraph(
                f"{one.output}: {span(one.interval)}, generation {one.generation}{in_progress}",
                indent=INDENT,
            )
        )
    if len(answer.pending) > PENDING_SHOWN:
        lines.append(f"{INDENT}and {len(answer.pending) - PENDING_SHOWN:,} more")
    lines.append(
        "The publish task of any run publishes them, or, with the file that declares the pipeline:"
    )
    lines.append(command(("tally", "publish", answer.uri, "--pipeline", "FILE")))
    return ["\n".join(lines)]


def _stale(answer: Status) -> list[str]:
    if not answer.stale:
        return []
    lines = [f"STALE: {many(len(answer.stale), 'interval')} whose lookback has changed since:"]
    lines += [
        paragraph(f"{span(one.interval)}: lookback {span(one.changed)}", indent=INDENT)
        for one in answer.stale[:STALE_SHOWN]
    ]
    if len(answer.stale) > STALE_SHOWN:
        lines.append(f"{INDENT}and {len(answer.stale) - STALE_SHOWN:,} more")
    dags = {one.owner.dag for one in answer.intervals}
    dag = next(iter(dags)) if len(dags) == 1 else "DAG"
    lines.append("One run replaces them:")
    lines.append(command(("airflow", "dags", "trigger", dag, "--conf", '{"mode": "refresh"}')))
    return ["\n".join(lines)]


def _cancelled(answer: Status) -> list[str]:
    if not answer.cancelled:
        return []
    lines = [
        "Grants that ended without a commit (taken over, released, refused, or requested again):"
    ]
    for one in answer.cancelled:
        whose = f", of {', '.join(map(str, one.requests))}" if one.requests else ""
        lines.append(paragraph(f"{span(one.interval)}: {one.count}{whose}", indent=INDENT))
    return ["\n".join(lines)]


def _lost(answer: Status) -> list[str]:
    if not answer.lost:
        return []
    lines = [
        f"LOST: {many(answer.totals.lost, 'offset')}, deleted before they were read; an operator accepted that:"
    ]
    lines += [
        f"{INDENT}{span(one.interval)}: {one.totals.lost:,} of {one.totals.offsets:,} offsets"
        for one in answer.lost
        if one.totals is not None
    ]
    return ["\n".join(lines)]


def _fewer(answer: Status) -> list[str]:
    if not answer.fewer:
        return []
    lines = ["FEWER: replaced by fewer records and dead letters, and an operator accepted that:"]
    for one in answer.fewer:
        line = f"{span(one.interval)}: {one.now:,} of {one.before:,} records and dead letters"
        lines.append(paragraph(line, indent=INDENT))
    return ["\n".join(lines)]


def _gaps(found: Sequence[Gap]) -> str:
    if not found:
        return "No gaps."
    lines = [f"{many(len(found), 'gap')}:"]
    for gap in found:
        whole = (
            f" ({many(gap.intervals, 'interval')})" if gap.intervals else " (no whole intervals)"
        )
        lines.append(f"{INDENT}{span(gap.interval)}{whole}")
        if gap.gone:
            line = f"{many(gap.gone, 'offset')} of it belong to a closed topic; fill the gap as a loss:"
            lines.append(paragraph(line, indent=INDENT))
        if gap.command:
            lines.append(command(gap.command))
    return "\n".join(lines)


def _owner(request: Request, dag: str | None) -> str:
    owner = str(request)
    return owner.removeprefix(f"{dag} / ") if dag is not None else owner
