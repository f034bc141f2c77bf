"""What the commit of a job with a look back notes of the earlier time that its rows were made of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import Fields, built, fields
from tallystick.format.interval import Interval, parse_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A stretch of earlier time that was looked at: how many records its partial rows stand for, and by what code.

    It may hold several intervals, and stretches that were read in Kafka as they were not committed.
    """

    interval: Interval
    fingerprint: str
    records: int

    def __post_init__(self) -> None:
        if self.records < 0:
            raise ValueError(f"{self.interval}: {self.records} records")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "interval": self.interval.to_json(),
            "fingerprint": self.fingerprint,
            "records": self.records,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedBack:
    """What a job saw of the time from `since` to its own interval; what `seen` leaves out, it did not see."""

    since: datetime
    seen: tuple[Seen, ...] = ()

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        spans = [s.interval for s in self.seen]
        if any(a.end > b.start for a, b in itertools.pairwise(spans)):
            raise ValueError("what was seen is sorted and does not overlap")
        if any(span.end <= self.since for span in spans):
            raise ValueError(f"it looks back to {keys.instant(self.since)} and saw earlier time")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"since": keys.instant(self.since), "seen": [s.to_json() for s in self.seen]}


def parse_looked_back(f: Fields) -> LookedBack:
    """Read the JSON form; raises Corrupt."""
    since, seen = f.take("since", str), f.take_list("seen", _parse_seen)
    f.done()
    return built(f.where, lambda: LookedBack(since=keys.parse_instant(since), seen=seen))


def _parse_seen(value: Any, where: str) -> Seen:
    f = fields(value, where)
    interval = parse_interval(f.take("interval", list), where)
    fingerprint, records = f.take("fingerprint", str), f.take("records", int)
    f.done()
    return built(where, lambda: Seen(interval=interval, fingerprint=fingerprint, records=records))
