"""The answer of `tally status` as text for people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta

from tallystick.cli.colour import painted
from tallystick.cli.interval_table import interval_table
from tallystick.cli.retention_text import retention_text
from tallystick.cli.run_link import URL_ENVS, run_url
from tallystick.cli.text import (
    INDENT,
    age,
    classes,
    command,
    length,
    many,
    paragraph,
    span,
    spell,
)
from tallystick.format.interval import Interval
from tallystick.operations.lag import Lag, TopicLag
from tallystick.operations.status import Status
from tallystick.operations.status.gaps import Gap
from tallystick.operations.status.grants import GrantStatus

PENDING_SHOWN = 20
STALE_SHOWN = 20
DEAD_SHOWN = 20
_ABOUT_GRANTS = (
    "The ledger does not show if these runs still work. Look at the run in Airflow: if it failed, clear it; if it is "
    "gone, start another one with take_over=true."
)
_WITHOUT_LINK = f"To see links here, set {URL_ENVS[0]} to Airflow's address."


def status(
    answer: Status, *, limit: int, problems: Mapping[str, int] | None = None, lag: Lag | None = None
) -> str:
    """Return the answer as text: intervals, grants, losses, gaps with commands, and a verdict if `problems` is given."""
    dag = next(iter(answer.dags)) if len(answer.dags) == 1 else None
    parts = ["\n".join([*_status_head(answer, dag), *_lag(answer, lag)])]
    shown = answer.intervals[-limit:] if limit else answer.intervals
    if shown:
        parts.append(interval_table(shown, dag))
    left_out = answer.count - len(shown)
    if left_out:
        parts.append(f"{many(left_out, 'earlier interval')} not shown: --limit 0 shows all.")
    parts.append(paragraph(_sums(answer)))
    parts += _all_dead(answer)
    parts += _grants(answer)
    parts += _pending(answer)
    parts += _unregistered(answer)
    parts += _stale(answer)
    parts += _cancelled(answer)
    parts += _lost(answer)
    parts += _fewer(answer)
    parts += ["\n".join(lines) for lines in (_gaps(answer), _outside(answer, lag)) if lines]
    parts += retention_text(answer, lag)
    if problems is not None:
        counts = ", ".join(f"{count:,} {name}" for name, count in problems.items())
        parts.append(
            f"{painted('NOT OK', 'bad')}: {counts}." if problems else painted("OK.", "good")
        )
    return "\n\n".join(parts)


def _sums(answer: Status) -> str:
    shown = f"{many(answer.committed_count, 'interval')} committed: {classes(answer.totals)}."
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
        oldest = _oldest(one, lag)
        lines.append(
            paragraph(f"lag of topic {name}: {many(one.lag, 'offset')} after {to}{oldest}{gone}")
        )
    return lines


def _oldest(topic: TopicLag, lag: Lag) -> str:
    waiting = topic.age(lag.at)
    return f", the oldest is {age(waiting)} old" if waiting else ""


def _all_dead(answer: Status) -> list[str]:
    if not answer.all_dead:
        return []
    lines = [
        f"{painted('ALL DEAD:', 'bad')} {many(len(answer.all_dead), 'interval')} with dead letters and no record:"
    ]
    lines += [
        f"{INDENT}{span(one.interval)}: {many(one.totals.dead_letters, 'dead letter')}"
        for one in answer.all_dead[:DEAD_SHOWN]
        if one.totals is not None
    ]
    if len(answer.all_dead) > DEAD_SHOWN:
        lines.append(f"{INDENT}and {len(answer.all_dead) - DEAD_SHOWN:,} more")
    lines.append("Read the reasons in the table dead_letters with `tally sql`.")
    return ["\n".join(lines)]


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


def _grants(answer: Status) -> list[str]:
    if not answer.grants:
        return []
    lines = [painted(f"{many(len(answer.grants), 'grant')} not committed yet:", "open")]
    linked = False
    for grant in answer.grants:
        kind = "replaces committed rows" if grant.replaces else "fills a gap"
        since = (
            f"its plan cannot be read ({grant.plan})"
            if grant.age is None
            else f"granted {age(grant.age)} ago"
        )
        line = f"{span(grant.interval)}: {grant.request}, generation {grant.generation}, {kind}, {since}"
        lines.append(paragraph(line, indent=INDENT))
        url = run_url(grant.request, os.environ)
        linked = linked or url is not None
        lines += [f"{INDENT * 2}{url}"] if url is not None else []
    lines.append(paragraph(f"{_ABOUT_GRANTS} {'' if linked else _WITHOUT_LINK}".rstrip()))
    parts = ["\n".join(lines)]
    stuck = [grant for grant in answer.grants if grant.stuck]
    if stuck:
        parts.append(_stuck(stuck))
    return parts


def _stuck(grants: Sequence[GrantStatus]) -> str:
    lines = [
        f"{painted('STUCK?', 'open')} {many(len(grants), 'grant')} a day old or more, or without a plan. "
        "If a run will never commit, cancel:"
    ]
    lines += [command(grant.release) for grant in grants]
    return "\n".join(lines)


def _pending(answer: Status) -> list[str]:
    if not answer.pending:
        return []
    lines = [f"{painted('PENDING:', 'open')} {many(len(answer.pending), 'interval')} to publish:"]
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


def _unregistered(answer: Status) -> list[str]:
    if not answer.unregistered:
        return []
    lines = [
        f"{painted('PENDING:', 'open')} version {answer.unregistered[0].version} to register in "
        f"{many(len(answer.unregistered), 'catalog')}:"
    ]
    for one in answer.unregistered:
        has = "no version yet" if one.registered is None else f"version {one.registered}"
        lines.append(paragraph(f"{one.registration} ({one.target}): {has}", indent=INDENT))
    lines.append(
        "The publish task of any run registers it, or, with the file that declares the pipeline:"
    )
    lines.append(command(("tally", "publish", answer.uri, "--pipeline", "FILE")))
    return ["\n".join(lines)]


def _stale(answer: Status) -> list[str]:
    if not answer.stale:
        return []
    lines = [
        f"{painted('STALE:', 'open')} {many(len(answer.stale), 'interval')} whose lookback has changed since:"
    ]
    lines += [
        paragraph(f"{span(one.interval)}: lookback {span(one.changed)}", indent=INDENT)
        for one in answer.stale[:STALE_SHOWN]
    ]
    if len(answer.stale) > STALE_SHOWN:
        lines.append(f"{INDENT}and {len(answer.stale) - STALE_SHOWN:,} more")
    dag = next(iter(answer.dags)) if len(answer.dags) == 1 else "DAG"
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
        f"{painted('LOST:', 'bad')} {many(answer.totals.lost, 'offset')}, deleted before they were read; "
        "an operator accepted that:"
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
    lines = [
        f"{painted('FEWER:', 'bad')} replaced by fewer records and dead letters, and an operator accepted that:"
    ]
    for one in answer.fewer:
        line = f"{span(one.interval)}: {one.now:,} of {one.before:,} records and dead letters"
        lines.append(paragraph(line, indent=INDENT))
    return ["\n".join(lines)]


def _gaps(answer: Status) -> list[str]:
    if answer.first is None or answer.last is None:
        return ["The ledger has no interval yet."]
    if not answer.gaps:
        whole = span(Interval(start=answer.first, end=answer.last))
        return [painted(f"No gaps from {whole}.", "good")]
    lines = [painted(f"{many(len(answer.gaps), 'gap')}:", "bad")]
    for gap in answer.gaps:
        lines.append(f"{INDENT}{span(gap.interval)} ({_whole(gap, answer.every)})")
        if gap.gone:
            line = f"{many(gap.gone, 'offset')} of it belong to a closed topic; fill the gap as a loss:"
            lines.append(paragraph(line, indent=INDENT))
        if gap.command:
            lines.append(command(gap.command))
    return lines


def _whole(gap: Gap, every: timedelta | None) -> str:
    """Return the offsets of a gap and, if its runs have a schedule, how many intervals of it the gap is."""
    offsets = many(gap.offsets, "offset")
    if gap.intervals:
        return f"{many(gap.intervals, 'interval')}, {offsets}"
    return (
        offsets if every is None else f"{offsets}; not a whole number of the schedule's intervals"
    )


def _outside(answer: Status, lag: Lag | None) -> list[str]:
    """Return lines with the offsets before the first boundary and after the last one, which are in no interval."""
    if answer.first is None or answer.last is None or not answer.read_to:
        return []
    if lag is None or lag.error is not None:
        why = "Kafka was not asked" if lag is None or lag.error is None else lag.error.kind
        return [
            f"Offsets before {spell(answer.first)} and after {spell(answer.last)}: not known ({why})."
        ]
    sides = [
        (
            f"before {spell(answer.first)}",
            [(n, t.before) for n, t in lag.topics.items() if t.before],
        ),
        (f"after {spell(answer.last)}", [(n, t.after) for n, t in lag.topics.items() if t.after]),
    ]
    lines = [
        f"{INDENT}{side}: "
        + ", ".join(f"{many(count or 0, 'offset')} of {n}" for n, count in counts)
        for side, counts in sides
        if counts
    ]
    if not lines:
        return [f"No offsets before {spell(answer.first)} or after {spell(answer.last)}."]
    head = painted("In no interval, because the ledger does not reach that far:", "open")
    tail = (
        "Runs of later intervals read what is after. To read what is before, trigger the DAG with from, and with "
        f"to={spell(answer.first).replace(' ', 'T')}."
    )
    return [head, *lines, *([paragraph(tail)] if sides[0][1] else [])]
