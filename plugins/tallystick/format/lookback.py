"""What the commit of a job with a look back notes of the earlier time that its rows were made of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedInterval(StoredValue):
    """A stretch of earlier time that was looked at: how many records its partial rows stand for, and by what code.

    It may hold several intervals, and stretches that were read in Kafka as they were not committed.
    """

    interval: Interval
    fingerprint: str
    records: int

    def __post_init__(self) -> None:
        if self.records < 0:
            raise ValueError(f"{self.interval}: {self.records} records")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookbackUsed(StoredValue):
    """What a job saw of the time from `since` to its own interval; what `seen` leaves out, it did not see."""

    since: datetime
    seen: tuple[UsedInterval, ...] = ()

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        spans = [s.interval for s in self.seen]
        if any(a.end > b.start for a, b in itertools.pairwise(spans)):
            raise ValueError("what was seen is sorted and does not overlap")
        if any(span.end <= self.since for span in spans):
            raise ValueError(f"it looks back to {keys.instant(self.since)} and saw earlier time")
