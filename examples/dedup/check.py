"""Judges the example `dedup`: the table of alarms and the mail server's log, against one pass over what was sent.

The pass asks of each record whether an earlier one of its device, in log order, is less than an hour older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import Finding, Ruling, finding
from examples.checks.sent import Sent, read_sent, timed

HORIZON_MS = 3_600_000
SUBJECT = "Alarms of "
_COLUMNS = ("device", "owner", "what")
Place = tuple[int, int]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One e-mail that the mail server has taken."""

    message_id: str
    to: str
    subject: str

    @property
    def device(self) -> str:
        """What it is about."""
        return self.subject.removeprefix(SUBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one pass leaves: records by (partition, offset), and how many went for one of another interval."""

    records: Mapping[Place, Sent]
    dropped: int
    dropped_across: int


def judge(
    alarms: Rows,
    mails: Sequence[Mail],
    sent: Path,
    *,
    edges: Sequence[datetime],
    silent: Sequence[tuple[str, int]],
) -> Ruling:
    """Compare rows and e-mails with what was sent.

    `edges`: where the log was cut, from the beginning to the end of what was played. `silent`: what was replayed, and how
    many e-mails the server took meanwhile.
    """
    kept = keep(read_sent(sent), [round(edge.timestamp() * 1000) for edge in edges])
    places = [(row["_kafka_partition"], row["_offset"]) for row in alarms]
    return Ruling(
        rows=len(alarms) + len(mails),
        findings=[
            finding(
                "once",
                f"{len(places):,} alarms, each (partition, offset) once",
                next(
                    (f"{p} stands there {n} times" for p, n in Counter(places).items() if n > 1),
                    None,
                ),
            ),
            finding(
                "first ones",
                f"{len(kept.records):,} alarms equal one pass over what was sent; {kept.dropped:,} others were dropped",
                _difference(kept.records, dict(zip(places, alarms, strict=True))),
            ),
            finding(
                "across edges",
                f"{kept.dropped_across:,} of these went for an alarm of another interval",
                None if kept.dropped_across else "no alarm has its earlier one in another interval",
            ),
            *_judge_mails(mails, kept),
            finding(
                "silence",
                ", ".join(f"{what}: {count} e-mails" for what, count in silent),
                next(
                    (f"{what}: {count} e-mails were sent" for what, count in silent if count), None
                )
                if silent
                else "nothing was replayed",
            ),
        ],
    )


def keep(sent: Sequence[Sent], edges_ms: Sequence[int]) -> Kept:
    """One pass in log order: log time, partition, offset. What was dropped counts as seen, too."""
    played = [(ms, one) for ms, one in timed(sent) if edges_ms[0] <= ms < edges_ms[-1]]
    records: dict[Place, Sent] = {}
    seen: dict[str, int] = {}
    dropped = across = 0
    for ms, one in sorted(played, key=lambda p: (p[0], p[1].partition, p[1].offset)):
        if not one.counts:
            continue
        device = one.document["device"]
        before = seen.get(device)
        seen[device] = ms
        if before is None or ms - before >= HORIZON_MS:
            records[one.partition, one.offset] = one
        else:
            dropped += 1
            across += any(before < edge <= ms for edge in edges_ms)
    return Kept(records=records, dropped=dropped, dropped_across=across)


def _difference(kept: Mapping[Place, Sent], found: Mapping[Place, Mapping[str, Any]]) -> str | None:
    for place, one in kept.items():
        row = found.get(place)
        shown = row and {name: row[name] for name in _COLUMNS}
        if shown != one.document:
            return f"partition, offset {place}: {shown}; the first of its hour was {one.document}"
    more = sorted(set(found) - set(kept))
    if more:
        shown = {name: found[more[0]][name] for name in _COLUMNS}
        return f"partition, offset {more[0]} stayed, and is not the first of its hour: {shown}"
    return None


def _judge_mails(mails: Sequence[Mail], kept: Kept) -> list[Finding]:
    """Each device of which an alarm ever stayed has one e-mail: one that the server took, not one of several."""
    owners = {one.document["device"]: one.document["owner"] for one in kept.records.values()}
    counts = Counter(mail.device for mail in mails)
    named = Counter(mail.message_id for mail in mails)
    wrong: str | None = None
    for device in sorted({*owners, *counts}):
        if counts[device] != int(device in owners):
            wrong = (
                f"{device}: {counts[device]} e-mails were taken, {int(device in owners)} is right"
            )
            break
    return [
        finding(
            "one e-mail",
            f"{len(mails):,} e-mails were taken, one for each of {len(owners):,} devices over all intervals",
            wrong,
        ),
        finding(
            "to whom",
            "each to its device's owner, each with a Message-ID of its own",
            next(
                (f"{m.subject!r} went to {m.to}" for m in mails if owners.get(m.device) != m.to),
                None,
            )
            or next((f"{n} e-mails share {i}" for i, n in named.items() if n > 1), None),
        ),
    ]
