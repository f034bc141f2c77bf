"""The producer's record of what it sent, and the interval of the log that each record belongs to."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecord:
    """One record of one partition at its offset; `end`: plain, or how its transaction ended: committed, aborted, open.

    `value_base64`, `key_base64`: the bytes that were sent, if they are not the text; `tombstone`: no value was sent.
    """

    partition: int
    offset: int
    at_ms: int
    end: str
    value: str
    key: str | None = None
    value_base64: str | None = None
    key_base64: str | None = None
    tombstone: bool = False

    @property
    def visible(self) -> bool:
        """True if a consumer that reads committed can read it."""
        return self.end in ("plain", "committed")

    @property
    def sent_value(self) -> bytes | None:
        """The bytes that were sent as the value."""
        if self.tombstone:
            return None
        packed = self.value_base64
        return self.value.encode() if packed is None else base64.b64decode(packed)

    @property
    def document(self) -> dict[str, Any]:
        """The value as JSON."""
        document: dict[str, Any] = json.loads(self.value)
        return document


def read_sent(path: Path) -> list[SentRecord]:
    """Return all records that were sent, in the order of each partition's log."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    sent = [
        SentRecord(
            partition=line["partition"],
            offset=line["offset"],
            at_ms=line["at_ms"],
            end=line["end"],
            value=line["value"],
            key=line.get("key"),
            value_base64=line.get("value_base64"),
            key_base64=line.get("key_base64"),
            tombstone=line.get("tombstone", False),
        )
        for line in lines
    ]
    return sorted(sent, key=lambda record: (record.partition, record.offset))


def timed(sent: Sequence[SentRecord]) -> Iterator[tuple[int, SentRecord]]:
    """Yield each record with its log time in ms: the largest timestamp of its partition's log so far, for any `end`.

    Log time divides the log into intervals: a record that is sent late belongs to the interval in which it arrived.
    """
    latest: dict[int, int] = {}
    for record in sent:
        latest[record.partition] = max(record.at_ms, latest.get(record.partition, 0))
        yield latest[record.partition], record


def by_day(sent: Sequence[SentRecord]) -> dict[datetime, list[SentRecord]]:
    """Return the records of each day's interval, including those that no consumer reads."""
    days: dict[datetime, list[SentRecord]] = {}
    for log_ms, record in timed(sent):
        at = datetime.fromtimestamp(log_ms / 1000, UTC)
        days.setdefault(at.replace(hour=0, minute=0, second=0, microsecond=0), []).append(record)
    return days


def part(day: datetime) -> str:
    """Return a day's interval as it is in file names and headers: `20130101T000000000Z-20130102T000000000Z`."""
    return span(day, day + timedelta(days=1))


def span(start: datetime, end: datetime) -> str:
    """Return any interval of whole seconds in the same form."""
    return f"{start:%Y%m%dT%H%M%S}000Z-{end:%Y%m%dT%H%M%S}000Z"
