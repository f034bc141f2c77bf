"""The check of the example `ads`: tables by PyIceberg and the topic by librdkafka, against plain Python over the input.

`attribution` applies the rules again. The audit at the end uses none of them: it only counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.ads.attribution import (
    Event,
    EventLog,
    Place,
    Truth,
    instant,
    per_hour,
    read_log,
    true_rows,
)
from examples.checks import CheckResult, Finding, finding
from examples.checks.lake import Lake
from examples.checks.sent import part
from examples.counts.check import Message

IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
_COUNTS = ("impressions", "clicks", "attributed")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContents:
    """The rows of each table of a lake, and by topic the account of its offsets in the ledger."""

    tables: Mapping[str, Sequence[Row]]
    accounts: Mapping[str, Mapping[str, int]]


def read_lake(lake: Lake) -> LakeContents:
    """Read the newest version, and the newest account of each interval."""
    accounts: dict[tuple[str, ...], Sequence[Mapping[str, Any]]] = {}
    for record in lake.records():
        for committed in record["intervals"]:
            accounts[tuple(committed["interval"])] = committed["accounts"]
    sums: dict[str, Counter[str]] = {}
    for parts in accounts.values():
        for account in parts:
            counts = {n: account[n] for n in ("records", "dead_letters", "aborted")}
            sums.setdefault(account["topic"], Counter()).update(counts)
    tables = lake.json("root.json")["tables"]
    return LakeContents(
        tables={name: lake.rows_of(t["metadata"]) for name, t in tables.items() if t["metadata"]},
        accounts=sums,
    )


def compare(
    found: LakeContents,
    messages: Sequence[Message],
    sent: Mapping[str, Path],
    *,
    days: Collection[datetime],
    unchanged: Collection[tuple[datetime, int]],
) -> CheckResult:
    """Compare tables and topic with what was sent.

    `sent`: by topic, the record of its producer. `days`: the days that were run. `unchanged`: days and generations for
    which no message may exist, because nothing changed.
    """
    impressions, clicks = (read_log(topic, sent[topic], days) for topic in (IMPRESSIONS, CLICKS))
    truth = true_rows(impressions.events, clicks.events)
    hours = per_hour(truth)
    return CheckResult(
        rows=sum(len(rows) for rows in found.tables.values()),
        findings=[
            *_check_rows(found, truth, {*impressions.broken, *clicks.broken}),
            _check_hours(found, hours),
            _check_topic(messages, found.tables["per_hour"], unchanged),
            _check_midnight(truth),
            _audit(found, impressions, "audit shown", IMPRESSIONS, ("impressions",)),
            _audit(found, clicks, "audit clicked", CLICKS, ("clicks", "unattributed")),
        ],
    )


def _check_rows(found: LakeContents, truth: Truth, broken: Collection[Place]) -> list[Finding]:
    """Check each table of events, row by row; each place in the log once."""
    attributed = {click: shown for click, shown in truth.clicks.items() if shown is not None}

    def row(event: Event) -> Row:
        return {"id": event.id, "user": event.user, "ad": event.ad, "campaign": event.campaign}

    expected: dict[str, tuple[str, dict[Place, Row]]] = {
        "impressions": ("shown once", {e.place: row(e) for e in truth.impressions}),
        "clicks": (
            "each attributed to the right impression",
            {
                click.place: row(click)
                | {"impression": shown.id, "shown_at": instant(shown.log_ms)}
                for click, shown in attributed.items()
            },
        ),
        "unattributed": (
            "no impression of their user and ad in the half hour before",
            {click.place: row(click) for click, shown in truth.clicks.items() if shown is None},
        ),
        "duplicates": (
            "each repeats an event of the six hours before",
            {e.place: {"id": e.id} for e in truth.duplicates},
        ),
        "dead_letters": ("the broken values", {place: {} for place in broken}),
    }
    return [
        finding(
            name.replace("_", " "),
            f"{len(rows):,}: {what}",
            _difference(name, rows, found.tables.get(name, ())),
        )
        for name, (what, rows) in expected.items()
    ]


def _check_hours(
    found: LakeContents, hours: Mapping[tuple[datetime, str], Counter[str]]
) -> Finding:
    rows = found.tables["per_hour"]
    by_key = {(row["hour"], row["campaign"]): row for row in rows}
    problem = None if len(by_key) == len(rows) else f"{len(rows)} rows for {len(by_key)} hours"
    for name in sorted({*by_key, *hours}):
        actual, expected = (
            [source.get(name, {}).get(c, 0) for c in _COUNTS] for source in (by_key, hours)
        )
        if actual != expected:
            key = f"{name[0]:%d %B %H:%M}, {name[1]}"
            problem = problem or f"{key}: {_COUNTS}: expected {expected}, found {actual}"
    return finding(
        "per hour", f"{len(rows)} campaigns and hours equal counts of what was sent", problem
    )


def _check_topic(
    messages: Sequence[Message], rows: Sequence[Row], unchanged: Collection[tuple[datetime, int]]
) -> Finding:
    """Check that each row of the table is one message, and nothing else was sent."""
    places = Counter((m.plan, m.number) for m in messages)
    published = {(m.interval, m.generation) for m in messages}
    values = Counter(_counted(m.value) for m in messages)
    checks: Sequence[tuple[bool, Callable[[], str]]] = (
        (max(places.values(), default=1) == 1, lambda: f"{places.most_common(1)} was sent again"),
        (
            not any((part(d), g) in published for d, g in unchanged),
            lambda: "a replay without a change sent something",
        ),
        (
            all(m.operation == "row" for m in messages),
            lambda: "found a correction although nothing changed",
        ),
        (
            all(json.loads(m.key) == [m.value["hour"], m.value["campaign"]] for m in messages),
            lambda: "a message's key is not its hour and campaign",
        ),
        (
            values == Counter(map(_counted, rows)),
            lambda: f"the {len(messages)} messages are not the {len(rows)} rows of the table",
        ),
    )
    return finding(
        "the topic",
        f"{len(messages)} messages, each row of the table once, and none for {len(unchanged)} replay",
        next((problem() for holds, problem in checks if not holds), None),
    )


def _check_midnight(truth: Truth) -> Finding:
    """Check that both lookbacks were needed; otherwise the days could have been run independently."""
    pairs = [(click, shown) for click, shown in truth.clicks.items() if shown is not None]
    across = sum(click.day != shown.day for click, shown in pairs)
    repeats = sum(event.day != repeated.day for event, repeated in truth.duplicates.items())
    return finding(
        "over midnight",
        f"{across} clicks belong to an impression of the day before, {repeats} duplicates repeat an event of it",
        None
        if across and repeats
        else f"{across} clicks and {repeats} duplicates: the run shows nothing",
    )


def _audit(
    found: LakeContents, log: EventLog, check: str, topic: str, kept_in: Sequence[str]
) -> Finding:
    """Compare the counts of acknowledged records and of rows, independently of the rules."""
    kept = {name: len(found.tables.get(name, ())) for name in kept_in}
    dropped = {
        text: sum(row["_topic"] == topic for row in found.tables.get(name, ()))
        for name, text in (("duplicates", "duplicates"), ("dead_letters", "dead letters"))
    }
    parts = kept | dropped
    figures = " + ".join(f"{count:,} {name}" for name, count in parts.items())
    account = found.accounts.get(topic, {})
    counted = sum(row[kept_in[0]] for row in found.tables["per_hour"])
    problem = None
    if sum(parts.values()) != log.committed:
        problem = f"expected {log.committed:,} sent and committed; found {figures} = {sum(parts.values()):,}"
    elif account.get("aborted") != log.aborted:
        problem = f"aborted: expected {log.aborted:,}, found {account.get('aborted')} in the ledger"
    elif counted != sum(kept.values()):
        problem = f"per hour: expected {sum(kept.values()):,}, found {counted:,}"
    return finding(
        check,
        f"{log.committed:,} {kept_in[0]} sent and committed = {figures}; and {log.aborted:,} aborted",
        problem,
    )


def _counted(row: Row) -> tuple[datetime | str | int, ...]:
    hour = row["hour"]
    at = datetime.fromisoformat(hour) if isinstance(hour, str) else hour
    return (at.astimezone(UTC), row["campaign"], *(row[name] for name in _COUNTS))


def _difference(table: str, expected: Mapping[Place, Row], found: Sequence[Row]) -> str | None:
    remaining = {(row["_topic"], row["_kafka_partition"], row["_offset"]): row for row in found}
    if len(remaining) != len(found):
        return f"{table}: {len(found)} rows of {len(remaining)} records"
    for place, row in expected.items():
        actual = remaining.pop(place, None)
        shown = actual and {column: actual.get(column) for column in row}
        if actual is None or shown != row:
            return f"{table}: {place}: expected {row}, found {shown}"
    return f"{table}: unexpected {next(iter(remaining))}" if remaining else None
