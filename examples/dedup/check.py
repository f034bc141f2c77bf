"""The check of the example `dedup`: the table of alarms and the mail server's log, against one pass over what was sent.

The pass drops each record with an earlier record of its device, in log order, that is less than an hour older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.checks import CheckResult, Finding, finding
from examples.checks.sent import SentRecord, read_sent, timed

HORIZON_MS = 3_600_000
SUBJECT = "Alarms of "
_COLUMNS = ("device", "owner", "what")
Place = tuple[int, int]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One e-mail that the mail server accepted."""

    message_id: str
    to: str
    subject: str

    @property
    def device(self) -> str:
        """The device in its subject."""
        return self.subject.removeprefix(SUBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The result of one pass: records by (partition, offset), and how many were dropped for one of another interval."""

    records: Mapping[Place, SentRecord]
    dropped: int
    dropped_for_other_interval: int


def compare(
    alarms: Rows,
    mails: Sequence[Mail],
    sent: Path,
    *,
    boundaries: Sequence[datetime],
    replays: Sequence[tuple[str, int]],
) -> CheckResult:
    """Compare rows and e-mails with what was sent.

    `boundaries`: those of the intervals that were run, from the first to the last. `replays`: each replay, and how many
    e-mails the server accepted meanwhile.
    """
    kept = keep(read_sent(sent), [round(at.timestamp() * 1000) for at in boundaries])
    places = [(row["_kafka_partition"], row["_offset"]) for row in alarms]
    return CheckResult(
        rows=len(alarms) + len(mails),
        findings=[
            finding(
                "once",
                f"{len(places):,} alarms, each (partition, offset) once",
                next(
                    (f"{p} occurs {n} times" for p, n in Counter(places).items() if n > 1),
                    None,
                ),
            ),
            finding(
                "first alarms",
                f"{len(kept.records):,} alarms equal one pass over what was sent; {kept.dropped:,} others were dropped",
                _difference(kept.records, dict(zip(places, alarms, strict=True))),
            ),
            finding(
                "lookback",
                f"{kept.dropped_for_other_interval:,} of these were dropped for an alarm of another interval",
                None
                if kept.dropped_for_other_interval
                else "no alarm was dropped for an alarm of another interval",
            ),
            *_check_mails(mails, kept),
            finding(
                "replays",
                ", ".join(f"{what}: {count} e-mails" for what, count in replays),
                next(
                    (f"{what}: {count} e-mails were sent" for what, count in replays if count), None
                )
                if replays
                else "nothing was replayed",
            ),
        ],
    )


def keep(sent: Sequence[SentRecord], boundaries_ms: Sequence[int]) -> Kept:
    """Make one pass in log order: log time, partition, offset. Dropped records also count as seen."""
    first, last = boundaries_ms[0], boundaries_ms[-1]
    read = [(ms, record) for ms, record in timed(sent) if first <= ms < last]
    records: dict[Place, SentRecord] = {}
    seen: dict[str, int] = {}
    dropped = dropped_for_other = 0
    for ms, record in sorted(read, key=lambda r: (r[0], r[1].partition, r[1].offset)):
        if not record.visible:
            continue
        device = record.document["device"]
        before = seen.get(device)
        seen[device] = ms
        if before is None or ms - before >= HORIZON_MS:
            records[record.partition, record.offset] = record
        else:
            dropped += 1
            dropped_for_other += any(before < at <= ms for at in boundaries_ms)
    return Kept(records=records, dropped=dropped, dropped_for_other_interval=dropped_for_other)


def _difference(
    kept: Mapping[Place, SentRecord], found: Mapping[Place, Mapping[str, Any]]
) -> str | None:
    for place, record in kept.items():
        row = found.get(place)
        shown = row and {name: row[name] for name in _COLUMNS}
        if shown != record.document:
            return f"partition, offset {place}: expected {record.document}, found {shown}"
    unexpected = sorted(set(found) - set(kept))
    if unexpected:
        shown = {name: found[unexpected[0]][name] for name in _COLUMNS}
        return f"partition, offset {unexpected[0]}: not the first within an hour: {shown}"
    return None


def _check_mails(mails: Sequence[Mail], kept: Kept) -> list[Finding]:
    """Check that the server accepted one e-mail for each device with an alarm that is kept."""
    owners = {r.document["device"]: r.document["owner"] for r in kept.records.values()}
    counts = Counter(mail.device for mail in mails)
    ids = Counter(mail.message_id for mail in mails)
    wrong: str | None = None
    for device in sorted({*owners, *counts}):
        if counts[device] != int(device in owners):
            wrong = f"{device}: expected {int(device in owners)} e-mails, found {counts[device]}"
            break
    return [
        finding(
            "one e-mail",
            f"{len(mails):,} e-mails were accepted, one for each of {len(owners):,} devices over all intervals",
            wrong,
        ),
        finding(
            "addresses",
            "each to the owner of its device, each with its own Message-ID",
            next(
                (f"{m.subject!r} went to {m.to}" for m in mails if owners.get(m.device) != m.to),
                None,
            )
            or next(
                (f"{n} e-mails have the Message-ID {i}" for i, n in ids.items() if n > 1), None
            ),
        ),
    ]
