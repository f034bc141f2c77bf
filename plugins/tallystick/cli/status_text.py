"""The answer of `tally status` as text for people."""

from __future__ import annotations

from collections.abc import Sequence

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
from tallystick.grants import GrantStatus
from tallystick.holes import Hole
from tallystick.protocol.interval import Request
from tallystick.status import IntervalStatus, Status

OWED_SHOWN = 20
STALE_SHOWN = 20


def status(answer: Status, *, last: int) -> str:
    """The ledger: intervals, holes with their commands, grants, those that ended, losses."""
    dags = {one.owner.dag for one in answer.intervals}
    dag = next(iter(dags)) if len(dags) == 1 else None
    parts = ["\n".join(_status_head(answer, dag))]
    kept = answer.intervals[-last:] if last else answer.intervals
    if kept:
        parts.append(_interval_grid(kept, dag))
    left_out = len(answer.intervals) - len(kept)
    if left_out:
        parts.append(f"{many(left_out, 'earlier interval')} not shown: --last 0 shows all.")
    parts.append(
        paragraph(f"{many(len(answer.committed), 'interval')} committed: {classes(answer.totals)}.")
    )
    parts += _grants(answer)
    parts += _owed(answer)
    parts += _stale(answer)
    parts += _cancelled(answer)
    parts += _lost(answer)
    parts += _fewer(answer)
    parts.append(_holes(answer.holes))
    return "\n\n".join(parts)


def _status_head(answer: Status, dag: str | None) -> list[str]:
    lines = [paragraph(f"{answer.pipeline} at {answer.uri}, version {answer.version}")]
    for name, topic in sorted(answer.topics.items()):
        told = f"topic {name}: {many(len(topic.origins), 'partition')}, id {topic.topic_id}, cluster {topic.cluster_id}"
        if topic.closed is not None:
            told += f"; closed at {spell(topic.closed.since)}, another one was adopted"
        lines.append(paragraph(told))
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
                (f"{one.totals.records:,}", f"{one.totals.dead:,}", f"{one.totals.offsets:,}")
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
        kind = "replaces committed rows" if grant.replaces else "fills a hole"
        since = (
            f"its plan cannot be read ({grant.plan})"
            if grant.age is None
            else f"granted {age(grant.age)} ago"
        )
        told = f"{span(grant.interval)}: {grant.request}, generation {grant.generation}, {kind}, {since}"
        lines.append(paragraph(told, indent=INDENT))
    lines.append(
        paragraph(
            "A run that is over and left its grant: clear it, or run another one with take_over=true."
        )
    )
    parts = ["\n".join(lines)]
    stuck = [grant for grant in answer.grants if grant.stuck]
    if stuck:
        parts.append(_stuck(stuck))
    return parts


def _stuck(grants: Sequence[GrantStatus]) -> str:
    lines = [
        f"STUCK? {many(len(grants), 'grant')} a day old or more, or without a plan. End one whose run will never commit:"
    ]
    lines += [command(grant.release) for grant in grants]
    return "\n".join(lines)


def _owed(answer: Status) -> list[str]:
    if not answer.owed:
        return []
    lines = [f"OWED: {many(len(answer.owed), 'interval')} that outputs lack:"]
    for one in answer.owed[:OWED_SHOWN]:
        begun = ", begun: some rows may be there" if one.begun else ""
        lines.append(
            paragraph(
                f"{one.output}: {span(one.interval)}, generation {one.generation}{begun}",
                indent=INDENT,
            )
        )
    if len(answer.owed) > OWED_SHOWN:
        lines.append(f"{INDENT}and {len(answer.owed) - OWED_SHOWN:,} more")
    lines.append(
        "Any run's publish task brings them, or, with the file that declares the pipeline:"
    )
    lines.append(command(("tally", "publish", answer.uri, "--pipeline", "FILE")))
    return ["\n".join(lines)]


def _stale(answer: Status) -> list[str]:
    if not answer.stale:
        return []
    lines = [
        f"STALE: {many(len(answer.stale), 'interval')} whose job looked back at what has changed since:"
    ]
    lines += [
        paragraph(f"{span(one.interval)} looked back at {span(one.changed)}", indent=INDENT)
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
    lines = ["Grants that ended without a commit (taken over, released, refused, or wished anew):"]
    for one in answer.cancelled:
        whose = f", of {', '.join(map(str, one.requests))}" if one.requests else ""
        lines.append(paragraph(f"{span(one.interval)}: {one.count}{whose}", indent=INDENT))
    return ["\n".join(lines)]


def _lost(answer: Status) -> list[str]:
    if not answer.lost:
        return []
    lines = [
        f"LOST: {many(answer.totals.lost, 'offset')}, gone before they were read; an operator accepted that:"
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
    lines = ["FEWER: replaced by less than was there, and an operator accepted that:"]
    for one in answer.fewer:
        told = f"{span(one.interval)}: {one.now:,} of {one.before:,} records and dead letters"
        lines.append(paragraph(told, indent=INDENT))
    return ["\n".join(lines)]


def _holes(found: Sequence[Hole]) -> str:
    if not found:
        return "No holes."
    lines = [f"{many(len(found), 'hole')}:"]
    for hole in found:
        whole = (
            f" ({many(hole.intervals, 'interval')})" if hole.intervals else " (no whole intervals)"
        )
        lines.append(f"{INDENT}{span(hole.interval)}{whole}")
        if hole.gone:
            told = f"{many(hole.gone, 'offset')} of it went with a topic that was closed: filled as a loss, by"
            lines.append(paragraph(told, indent=INDENT))
        if hole.command:
            lines.append(command(hole.command))
    return "\n".join(lines)


def _owner(request: Request, dag: str | None) -> str:
    told = str(request)
    return told.removeprefix(f"{dag} / ") if dag is not None else told
