"""`tally dead-letters`: shows dead letters by kind, with samples, and the command that replaces their intervals."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tallystick.cli import text
from tallystick.cli.json_output import cell
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.operations.dead_letters import (
    DeadLetter,
    DeadLetters,
    KindOfDeadLetter,
    WantedLetters,
)

COLUMNS = ("kind", "field", "count", "intervals", "from", "to", "reason", "key", "value")
VALUE_CHARS_MAX = 400
INTERVALS_SHOWN_MAX = 8


def wanted(
    kind: str | None, field: str | None, since: str | None, until: str | None, samples: int
) -> WantedLetters:
    """Return the parsed options; raises InvalidRequest if a date is not one, or if only one of them is set."""
    from tallystick.operations.run_request import parse_params

    params = parse_params({"from": since, "to": until})
    within = None
    if params.start is not None and params.end is not None:
        within = Interval(start=params.start, end=params.end)
    return WantedLetters(kind=kind, field=field, within=within, samples=samples)


def as_text(found: DeadLetters, asked: WantedLetters) -> str:
    """Return the answer for people: a table of kinds, samples, and how to replace the intervals."""
    intervals = f"{len(found.found_in):,} of {text.many(found.intervals, 'committed interval')}"
    chosen = "".join(
        f" of {name} {text.shown(value)}"
        for name, value in (("kind", asked.kind), ("field", asked.field))
        if value is not None
    )
    head = (
        f"{text.many(found.count, 'dead letter')}{chosen} among {text.many(found.records, 'record')}, "
        f"in {intervals}."
    )
    parts = [f"{found.pipeline} at {found.uri}, version {found.version}\n\n{text.paragraph(head)}"]
    if not found.count:
        return parts[0]
    parts.append(_table(found))
    parts += [_samples(one) for one in found.kinds if one.samples]
    if asked.kind is not None or asked.field is not None:
        parts.append(_intervals(found))
    parts.append(_next(found, asked))
    return "\n\n".join(parts)


def _table(found: DeadLetters) -> str:
    rows = [
        (
            text.shown(one.kind),
            text.shown(one.field or "-"),
            f"{one.count:,}",
            f"{len(one.intervals):,}",
            text.spell(min(one.intervals).start),
            text.spell(max(one.intervals).end),
        )
        for one in found.kinds
    ]
    headings = ("kind", "field", "count", "intervals", "from", "to")
    return text.grid(headings, rows, right=("count", "intervals"))


def _samples(one: KindOfDeadLetter) -> str:
    return "\n\n".join(_sample(letter) for letter in one.samples)


def _sample(letter: DeadLetter) -> str:
    lines = [f"{letter.topic}[{letter.partition}] offset {letter.offset}, {text.spell(letter.at)}"]
    for name, value in (
        ("reason", letter.reason),
        ("key", letter.key),
        ("value", letter.value),
        ("headers", letter.headers),
    ):
        if value is not None or name != "headers":
            lines += _folded(name, "null" if value is None else text.cell(value))
    return "\n".join(lines)


def _folded(name: str, value: str) -> list[str]:
    """Return a value in lines that fit, in the middle of a word if there is no other place; a long one is cut."""
    left = (
        f"... ({len(value):,} characters; --json has all)" if len(value) > VALUE_CHARS_MAX else ""
    )
    head = f"{text.INDENT}{name:8}"
    return textwrap.wrap(
        value[:VALUE_CHARS_MAX] + left,
        text.width(),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        drop_whitespace=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _intervals(found: DeadLetters) -> str:
    counts: dict[Interval, int] = {}
    for one in found.kinds:
        for interval, count in one.intervals.items():
            counts[interval] = counts.get(interval, 0) + count
    shown = sorted(counts)[:INTERVALS_SHOWN_MAX]
    lines = ["Intervals with them:"]
    lines += [f"{text.INDENT}{text.span(i)}: {counts[i]:,}" for i in shown]
    if len(counts) > len(shown):
        lines.append(f"{text.INDENT}and {len(counts) - len(shown):,} more; --json has all")
    return "\n".join(lines)


def _next(found: DeadLetters, asked: WantedLetters) -> str:
    lines = [
        "After the declaration is corrected and deployed, this replaces each of these intervals whole:"
    ]
    return "\n".join([*lines, text.command(replacing(found, asked))])


def replacing(found: DeadLetters, asked: WantedLetters) -> tuple[str, ...]:
    """Return the command that replaces the intervals with the counted dead letters; empty if there are none."""
    if found.dag is None or not found.count:
        return ()
    conf = {"mode": "dead_letters"}
    if asked != WantedLetters(samples=asked.samples):
        first, last = found.found_in[0].start, found.found_in[-1].end
        conf |= {"from": _short(first), "to": _short(last)}
    return ("airflow", "dags", "trigger", found.dag, "--conf", json.dumps(conf))


def _short(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def as_rows(found: DeadLetters) -> Iterator[dict[str, Any]]:
    """Yield a row per kind and field, with the reason, key and value of its first sample; null without samples."""
    for one in found.kinds:
        first = one.samples[0] if one.samples else None
        yield {
            "kind": one.kind,
            "field": one.field,
            "count": one.count,
            "intervals": len(one.intervals),
            "from": keys.instant(min(one.intervals).start),
            "to": keys.instant(max(one.intervals).end),
            "reason": first.reason if first else None,
            "key": first.key if first else None,
            "value": first.value if first else None,
        }


def as_json(found: DeadLetters, asked: WantedLetters) -> dict[str, Any]:
    """Return the answer for programs; keys and values are in base64."""
    return {
        "lake": found.uri,
        "pipeline": found.pipeline,
        "version": found.version,
        "count": found.count,
        "records": found.records,
        "intervals": found.intervals,
        "kinds": [
            {
                "kind": one.kind,
                "field": one.field,
                "count": one.count,
                "intervals": [
                    {**_interval(i), "count": count} for i, count in sorted(one.intervals.items())
                ],
                "samples": [_letter(letter) for letter in one.samples],
            }
            for one in found.kinds
        ],
        "command": list(replacing(found, asked)),
    }


def _interval(interval: Interval) -> dict[str, str]:
    return {"from": keys.instant(interval.start), "to": keys.instant(interval.end)}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        **_interval(letter.interval),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": keys.instant(letter.at),
        "key": cell(letter.key),
        "value": cell(letter.value),
        "headers": letter.headers,
        "reason": letter.reason,
    }
