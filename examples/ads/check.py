"""Judges the example `ads`: tables by PyIceberg and the topic by librdkafka, against plain Python over what was sent.

`attribution` tells the rules again. The audit at the end knows none of them: it counts.
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
from examples.checks import Finding, Ruling, finding
from examples.checks.lake import Lake
from examples.checks.sent import part
from examples.counts.check import Message

IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
_COUNTS = ("impressions", "clicks", "attributed")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a lake holds: the rows of each table, and by topic what the ledger says became of the offsets."""

    tables: Mapping[str, Sequence[Row]]
    accounts: Mapping[str, Mapping[str, int]]


def read_lake(lake: Lake) -> Found:
    """Read the newest version, and each interval's newest account."""
    accounts: dict[tuple[str, ...], Sequence[Mapping[str, Any]]] = {}
    for record in lake.records():
        for one in record["intervals"]:
            accounts[tuple(one["interval"])] = one["accounts"]
    sums: dict[str, Counter[str]] = {}
    for parts in accounts.values():
        for account in parts:
            counts = {n: account[n] for n in ("records", "dead_letters", "aborted")}
            sums.setdefault(account["topic"], Counter()).update(counts)
    tables = lake.json("root.json")["tables"]
    return Found(
        tables={name: lake.rows_of(t["metadata"]) for name, t in tables.items() if t["metadata"]},
        accounts=sums,
    )


def judge(
    found: Found,
    messages: Sequence[Message],
    sent: Mapping[str, Path],
    *,
    days: Collection[datetime],
    silent: Collection[tuple[datetime, int]],
) -> Ruling:
    """Compare tables and topic with what was sent.

    `sent`: by topic, what its producer wrote down. `days`: those that were played. `silent`: days with generations of
    which nothing may be sent, since nothing in them changed.
    """
    impressions, clicks = (read_log(topic, sent[topic], days) for topic in (IMPRESSIONS, CLICKS))
    truth = true_rows(impressions.events, clicks.events)
    hours = per_hour(truth)
    return Ruling(
        rows=sum(len(rows) for rows in found.tables.values()),
        findings=[
            *_judge_rows(found, truth, {*impressions.broken, *clicks.broken}),
            _judge_hours(found, hours),
            _judge_topic(messages, found.tables["per_hour"], silent),
            _judge_midnight(truth),
            _audit(found, impressions, "audit shown", IMPRESSIONS, ("impressions",)),
            _audit(found, clicks, "audit clicked", CLICKS, ("clicks", "unattributed")),
        ],
    )


def _judge_rows(found: Found, truth: Truth, broken: Collection[Place]) -> list[Finding]:
    """Each table of events, row by row; each place in the log once."""
    attributed = {click: shown for click, shown in truth.clicks.items() if shown is not None}

    def event(one: Event) -> Row:
        return {"id": one.id, "user": one.user, "ad": one.ad, "campaign": one.campaign}

    expected: dict[str, tuple[str, dict[Place, Row]]] = {
        "impressions": ("shown once", {e.place: event(e) for e in truth.impressions}),
        "clicks": (
            "each goes back to the impression that it should",
            {
                click.place: event(click)
                | {"impression": shown.id, "shown_at": instant(shown.log_ms)}
                for click, shown in attributed.items()
            },
        ),
        "unattributed": (
            "nothing of their user and ad came in the half hour before",
            {click.place: event(click) for click, shown in truth.clicks.items() if shown is None},
        ),
        "duplicates": (
            "each repeats one of the six hours before",
            {e.place: {"id": e.id} for e in truth.duplicates},
        ),
        "dead_letters": ("the values that were broken", {place: {} for place in broken}),
    }
    return [
        finding(
            name.replace("_", " "),
            f"{len(rows):,}: {what}",
            _difference(name, rows, found.tables.get(name, ())),
        )
        for name, (what, rows) in expected.items()
    ]


def _judge_hours(found: Found, hours: Mapping[tuple[datetime, str], Counter[str]]) -> Finding:
    rows = found.tables["per_hour"]
    there = {(row["hour"], row["campaign"]): row for row in rows}
    problem = None if len(there) == len(rows) else f"{len(rows)} rows for {len(there)} hours"
    for name in sorted({*there, *hours}):
        have, wanted = (
            [source.get(name, {}).get(c, 0) for c in _COUNTS] for source in (there, hours)
        )
        if have != wanted:
            told = f"{name[0]:%d %B %H:%M}, {name[1]}"
            problem = problem or f"{told}: {_COUNTS} are {have}; sent were {wanted}"
    return finding(
        "per hour", f"{len(rows)} campaigns and hours equal counts of what was sent", problem
    )


def _judge_topic(
    messages: Sequence[Message], rows: Sequence[Row], silent: Collection[tuple[datetime, int]]
) -> Finding:
    """Each row of the table is one message, and nothing else was sent."""
    places = Counter((m.plan, m.number) for m in messages)
    spoke = {(m.interval, m.generation) for m in messages}
    told = Counter(_counted(m.value) for m in messages)
    checks: Sequence[tuple[bool, Callable[[], str]]] = (
        (max(places.values(), default=1) == 1, lambda: f"{places.most_common(1)} was sent again"),
        (
            not any((part(d), g) in spoke for d, g in silent),
            lambda: "a replay of what had not changed sent something",
        ),
        (
            all(m.operation == "row" for m in messages),
            lambda: "something was corrected, and nothing had changed",
        ),
        (
            all(json.loads(m.key) == [m.value["hour"], m.value["campaign"]] for m in messages),
            lambda: "a message's key is not its hour and campaign",
        ),
        (
            told == Counter(map(_counted, rows)),
            lambda: f"{len(messages)} messages are not the {len(rows)} rows of the table",
        ),
    )
    return finding(
        "the topic",
        f"{len(messages)} messages, each row of the table once, and nothing of {len(silent)} replay",
        next((says() for holds, says in checks if not holds), None),
    )


def _judge_midnight(truth: Truth) -> Finding:
    """That both kinds of look back were needed: else the days might as well have been alone."""
    pairs = [(click, shown) for click, shown in truth.clicks.items() if shown is not None]
    over = sum(click.day != shown.day for click, shown in pairs)
    again = sum(one.day != repeated.day for one, repeated in truth.duplicates.items())
    return finding(
        "over midnight",
        f"{over} clicks go back to the day before, {again} duplicates repeat an event of it",
        None if over and again else f"{over} clicks and {again} duplicates: nothing is shown",
    )


def _audit(found: Found, log: EventLog, check: str, topic: str, kept_in: Sequence[str]) -> Finding:
    """From the producer's acknowledgements to the rows: by counting alone, whatever the rules say."""
    kept = {name: len(found.tables.get(name, ())) for name in kept_in}
    dropped = {
        words: sum(row["_topic"] == topic for row in found.tables.get(name, ()))
        for name, words in (("duplicates", "duplicates"), ("dead_letters", "dead letters"))
    }
    parts = kept | dropped
    told = " + ".join(f"{count:,} {name}" for name, count in parts.items())
    account = found.accounts.get(topic, {})
    counted = sum(row[kept_in[0]] for row in found.tables["per_hour"])
    problem = None
    if sum(parts.values()) != log.committed:
        problem = f"{log.committed:,} were sent and committed; {told} make {sum(parts.values()):,}"
    elif account.get("aborted") != log.aborted:
        problem = f"{log.aborted:,} were aborted; the ledger says {account.get('aborted')}"
    elif counted != sum(kept.values()):
        problem = f"{counted:,} are counted per hour; kept are {sum(kept.values()):,}"
    return finding(
        check,
        f"{log.committed:,} {kept_in[0]} sent and committed = {told}; {log.aborted:,} aborted apart",
        problem,
    )


def _counted(row: Row) -> tuple[datetime | str | int, ...]:
    hour = row["hour"]
    at = datetime.fromisoformat(hour) if isinstance(hour, str) else hour
    return (at.astimezone(UTC), row["campaign"], *(row[name] for name in _COUNTS))


def _difference(table: str, expected: Mapping[Place, Row], found: Sequence[Row]) -> str | None:
    there = {(row["_topic"], row["_kafka_partition"], row["_offset"]): row for row in found}
    if len(there) != len(found):
        return f"{table}: {len(found)} rows of {len(there)} records"
    for place, row in expected.items():
        have = there.pop(place, None)
        shown = have and {column: have.get(column) for column in row}
        if have is None or shown != row:
            return f"{table}: of {place} there is {shown}; it should be {row}"
    return f"{table}: {next(iter(there))} should not be there" if there else None
