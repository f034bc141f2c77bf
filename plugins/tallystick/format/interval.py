"""Intervals of time, and the requests for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredValue

TEXT_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Interval(StoredValue):
    """A span of time `start <= t < end`, UTC, whole milliseconds."""

    AS_LIST: ClassVar[bool] = True

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        keys.check_instant(self.start)
        keys.check_instant(self.end)
        if not self.start < self.end:
            raise ValueError(
                f"expected an interval, found [{keys.instant(self.start)}, {keys.instant(self.end)})"
            )

    def overlaps(self, other: Interval) -> bool:
        """Return True if the two intervals share an instant."""
        return self.start < other.end and other.start < self.end

    def covers(self, other: Interval) -> bool:
        """Return True if every instant of `other` lies in this interval."""
        return self.start <= other.start and other.end <= self.end

    @property
    def part(self) -> str:
        """The interval as one part of a key."""
        return keys.interval_part(self.start, self.end)

    def __str__(self) -> str:
        return f"[{keys.instant(self.start)}, {keys.instant(self.end)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(StoredValue):
    """The request for an interval: an Airflow run and how often it was cleared.

    The same request always gets the same plan. A higher clear number is a new request of the same run.
    """

    AS_LIST: ClassVar[bool] = True

    dag: str
    run: str
    clear: int

    def __post_init__(self) -> None:
        for name, value in (("dag", self.dag), ("run", self.run)):
            if not 0 < len(value) <= TEXT_MAX or not value.isprintable():
                raise ValueError(f"expected a {name} id, found {value!r}")
        if self.clear < 0:
            raise ValueError(f"expected a clear number, found {self.clear}")

    def same_run(self, other: Request) -> bool:
        """Return True if both are requests of one run."""
        return (self.dag, self.run) == (other.dag, other.run)

    def __str__(self) -> str:
        return f"{self.dag} / {self.run}" + (f" (clear {self.clear})" if self.clear else "")
