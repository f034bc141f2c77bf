"""Intervals of time and who asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import built, corrupt, integer, text

TEXT_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Interval:
    """A span of time `start <= t < end`, UTC, whole milliseconds."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        keys.check_instant(self.start)
        keys.check_instant(self.end)
        if not self.start < self.end:
            raise ValueError(
                f"[{keys.instant(self.start)}, {keys.instant(self.end)}) is no interval"
            )

    def overlaps(self, other: Interval) -> bool:
        """True where some instant lies in both."""
        return self.start < other.end and other.start < self.end

    def covers(self, other: Interval) -> bool:
        """True where every instant of `other` lies in this interval."""
        return self.start <= other.start and other.end <= self.end

    @property
    def part(self) -> str:
        """The interval as one part of a key."""
        return keys.interval_part(self.start, self.end)

    def __str__(self) -> str:
        return f"[{keys.instant(self.start)}, {keys.instant(self.end)})"

    def to_json(self) -> list[str]:
        """Return the JSON form."""
        return [keys.instant(self.start), keys.instant(self.end)]


def parse_interval(value: Any, where: str) -> Interval:
    """Read the JSON form; raises Corrupt."""
    if not isinstance(value, list) or len(value) != 2:
        raise corrupt(where, "an interval is a list of two instants")
    start, end = (text(item, where) for item in value)
    return built(
        where, lambda: Interval(start=keys.parse_instant(start), end=keys.parse_instant(end))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Who wants an interval: an Airflow run and how often it was cleared.

    The same request always gets the same plan; a higher clear number is a new wish of the same run.
    """

    dag: str
    run: str
    clear: int

    def __post_init__(self) -> None:
        for name, value in (("dag", self.dag), ("run", self.run)):
            if not 0 < len(value) <= TEXT_MAX or not value.isprintable():
                raise ValueError(f"{value!r} is no {name} id")
        if self.clear < 0:
            raise ValueError(f"{self.clear} is no clear number")

    def same_run(self, other: Request) -> bool:
        """True where both are wishes of one run."""
        return (self.dag, self.run) == (other.dag, other.run)

    def __str__(self) -> str:
        return f"{self.dag} / {self.run}" + (f" (clear {self.clear})" if self.clear else "")

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.dag, self.run, self.clear]


def parse_request(value: Any, where: str) -> Request:
    """Read the JSON form; raises Corrupt."""
    if not isinstance(value, list) or len(value) != 3:
        raise corrupt(where, "a request is a list of dag, run and clear number")
    dag, run = (text(item, where) for item in value[:2])
    clear = integer(value[2], where)
    return built(where, lambda: Request(dag=dag, run=run, clear=clear))
