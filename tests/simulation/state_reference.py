"""The expected results of jobs with state, computed in another way: one pass over the log in plain Python, no partials.

It uses the definitions only. Of intervals it uses when a window or session is closed: at the first multiple of the
interval's length that its due time does not exceed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MINUTE = 60_000
HOUR = 60 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A record of the log: its offset, log time in milliseconds, key, amount, event time in milliseconds."""

    partition: int
    offset: int
    log_ms: int
    key: str
    amount: int
    event_ms: int | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Its position in log order."""
        return self.log_ms, self.partition, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Horizon, windows and sessions, in milliseconds."""

    horizon: int = 90 * MINUTE
    size: int = 60 * MINUTE
    slide: int = 30 * MINUTE
    lateness: int = 20 * MINUTE
    ahead: int = 10 * MINUTE
    gap: int = 25 * MINUTE
    longest: int = 2 * HOUR


Rows = list[tuple[Any, ...]]


def closing(due: int, first: int, last: int) -> bool:
    """Return whether an interval of [first, last) closes what is due then. The start of an interval is excluded."""
    return first < due <= last


def kept(events: Sequence[Event], rules: Rules) -> Rows:
    """Deduplicate: return partition and offset of the records that remain."""
    latest: dict[str, int] = {}
    rows: Rows = []
    for event in sorted(events, key=lambda e: e.order):
        before = latest.get(event.key)
        if before is None or event.log_ms - before >= rules.horizon:
            rows.append((event.partition, event.offset))
        latest[event.key] = event.log_ms
    return rows


def windows(events: Sequence[Event], rules: Rules, first: int, last: int) -> tuple[Rows, Rows]:
    """Return closed hopping windows (start, key, count, sum), and corrections, one row per late record and window."""
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    late: Rows = []
    for event in events:
        if event.event_ms is None or event.event_ms - event.log_ms > rules.ahead:
            continue
        start = event.event_ms - event.event_ms % rules.slide
        while start + rules.size > event.event_ms:
            if start + rules.size + rules.lateness <= event.log_ms:
                late.append((start, event.key, event.amount))
            else:
                counts = sums[start, event.key]
                counts[0], counts[1] = counts[0] + 1, counts[1] + event.amount
            start -= rules.slide
    closed = [
        (start, key, *counts)
        for (start, key), counts in sums.items()
        if closing(start + rules.size + rules.lateness, first, last)
    ]
    return closed, late


def sessions(events: Sequence[Event], rules: Rules, first: int, last: int) -> Rows:
    """Return closed sessions: key, start, end, count, sum."""
    by_cell: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event.event_ms is None or event.event_ms - event.log_ms > rules.ahead:
            continue
        if event.event_ms + rules.lateness >= event.log_ms:
            by_cell[event.key, event.event_ms // rules.longest].append(event)
    rows: Rows = []
    for (key, _), mine in by_cell.items():
        run: list[Event] = []
        for after in [*sorted(mine, key=lambda e: e.event_ms or 0), None]:
            if run and (
                after is None or (after.event_ms or 0) - (run[-1].event_ms or 0) >= rules.gap
            ):
                begin, end = run[0].event_ms or 0, run[-1].event_ms or 0
                if closing(end + rules.gap + rules.lateness, first, last):
                    rows.append((key, begin, end, len(run), sum(e.amount for e in run)))
                run = []
            if after is not None:
                run.append(after)
    return rows


def running(events: Sequence[Event], ends: Sequence[int]) -> Rows:
    """Return count, sum and largest amount since the beginning, by end of an interval and key."""
    rows: Rows = []
    for end in ends:
        sums: dict[str, list[int]] = {}
        for event in events:
            if event.log_ms < end:
                counts = sums.setdefault(event.key, [0, 0, event.amount])
                counts[0], counts[1] = counts[0] + 1, counts[1] + event.amount
                counts[2] = max(counts[2], event.amount)
        rows += [(end, key, *counts) for key, counts in sums.items()]
    return rows
