"""What the producer wrote down, and which interval of the log each of its records belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record of one partition at its offset; `end`: plain, committed, aborted or open, as its transaction ended."""

    partition: int
    offset: int
    at_ms: int
    end: str
    value: str

    @property
    def counts(self) -> bool:
        """Whether a reader of committed records may ever see it."""
        return self.end in ("plain", "committed")

    @property
    def document(self) -> dict[str, Any]:
        """The value as JSON."""
        found: dict[str, Any] = json.loads(self.value)
        return found


def read_sent(path: Path) -> list[Sent]:
    """All records that were sent, in the order of each partition's log."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    sent = [
        Sent(
            partition=line["partition"],
            offset=line["offset"],
            at_ms=line["at_ms"],
            end=line["end"],
            value=line["value"],
        )
        for line in lines
    ]
    return sorted(sent, key=lambda one: (one.partition, one.offset))


def timed(sent: Sequence[Sent]) -> Iterator[tuple[int, Sent]]:
    """Each record with its log time in ms: the largest timestamp of its partition's log up to it, of whatever end.

    The log is cut into intervals by it: one that is sent late belongs to the interval in which it arrived.
    """
    latest: dict[int, int] = {}
    for one in sent:
        latest[one.partition] = max(one.at_ms, latest.get(one.partition, 0))
        yield latest[one.partition], one


def by_day(sent: Sequence[Sent]) -> dict[datetime, list[Sent]]:
    """The records of each day's interval, those that do not count too."""
    days: dict[datetime, list[Sent]] = {}
    for log_ms, one in timed(sent):
        at = datetime.fromtimestamp(log_ms / 1000, UTC)
        days.setdefault(at.replace(hour=0, minute=0, second=0, microsecond=0), []).append(one)
    return days


def part(day: datetime) -> str:
    """How a day's interval is spelt in names of files and in headers: `20130101T000000000Z-20130102T000000000Z`."""
    return span(day, day + timedelta(days=1))


def span(start: datetime, end: datetime) -> str:
    """How any interval of whole seconds is spelt there."""
    return f"{start:%Y%m%dT%H%M%S}000Z-{end:%Y%m%dT%H%M%S}000Z"
