"""The lookback of a commit: the earlier time that its job read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime

from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.format.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedInterval(StoredValue):
    """A span of earlier time that a lookback read: the records behind its partial rows, and the code that made the rows.

    The span is several adjacent committed intervals, or one range that was not committed and was read from Kafka.
    """

    interval: Interval
    fingerprint: str
    records: int

    def __post_init__(self) -> None:
        if self.records < 0:
            raise ValueError(f"{self.interval}: expected a number of records, found {self.records}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookbackUsed(StoredValue):
    """The spans that a job's lookback read, from `since` to its own interval; it read nothing outside `seen`."""

    since: datetime
    seen: tuple[UsedInterval, ...] = ()

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        spans = [s.interval for s in self.seen]
        if any(a.end > b.start for a, b in itertools.pairwise(spans)):
            raise ValueError("expected sorted lookback intervals without overlap")
        if any(span.end <= self.since for span in spans):
            raise ValueError(
                f"expected lookback intervals from {keys.instant(self.since)} on, found an earlier one"
            )
