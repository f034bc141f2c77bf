"""What jobs with state must give, computed otherwise: one pass over the whole log in plain Python, no Arrow, no partials.

It knows the definitions and nothing of intervals but where a window or session is closed: at the first multiple of the
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
    """A record as the log has it: place, milliseconds of its log time, key, amount, milliseconds of its event time."""

    partition: int
    offset: int
    log_ms: int
    key: str
    amount: int
    event_ms: int | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place in log order."""
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
    """Whether some interval of [first, last) closes what is due then; what is due at an interval's start was before."""
    return first < due <= last


def kept(events: Sequence[Event], rules: Rules) -> Rows:
    """Deduplication: the places of the records that stay."""
    latest: dict[str, int] = {}
    rows: Rows = []
    for one in sorted(events, key=lambda e: e.order):
        before = latest.get(one.key)
        if before is None or one.log_ms - before >= rules.horizon:
            rows.append((one.partition, one.offset))
        latest[one.key] = one.log_ms
    return rows


def windows(events: Sequence[Event], rules: Rules, first: int, last: int) -> tuple[Rows, Rows]:
    """Closed hopping windows (start, key, count, sum), and corrections, one row per late record and window."""
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    late: Rows = []
    for one in events:
        if one.event_ms is None or one.event_ms - one.log_ms > rules.ahead:
            continue
        start = one.event_ms - one.event_ms % rules.slide
        while start + rules.size > one.event_ms:
            if start + rules.size + rules.lateness <= one.log_ms:
                late.append((start, one.key, one.amount))
            else:
                found = sums[start, one.key]
                found[0], found[1] = found[0] + 1, found[1] + one.amount
            start -= rules.slide
    closed = [
        (start, key, *found)
        for (start, key), found in sums.items()
        if closing(start + rules.size + rules.lateness, first, last)
    ]
    return closed, late


def sessions(events: Sequence[Event], rules: Rules, first: int, last: int) -> Rows:
    """Closed sessions: key, start, end, count, sum."""
    by_cell: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for one in events:
        if one.event_ms is None or one.event_ms - one.log_ms > rules.ahead:
            continue
        if one.event_ms + rules.lateness >= one.log_ms:
            by_cell[one.key, one.event_ms // rules.longest].append(one)
    rows: Rows = []
    for (key, _), mine in by_cell.items():
        run: list[Event] = []
        for one in [*sorted(mine, key=lambda e: e.event_ms or 0), None]:
            if run and (one is None or (one.event_ms or 0) - (run[-1].event_ms or 0) >= rules.gap):
                begin, end = run[0].event_ms or 0, run[-1].event_ms or 0
                if closing(end + rules.gap + rules.lateness, first, last):
                    rows.append((key, begin, end, len(run), sum(e.amount for e in run)))
                run = []
            if one is not None:
                run.append(one)
    return rows


def running(events: Sequence[Event], ends: Sequence[int]) -> Rows:
    """Per interval's end and key seen so far: count, sum and largest amount since the beginning."""
    rows: Rows = []
    for end in ends:
        sums: dict[str, list[int]] = {}
        for one in events:
            if one.log_ms < end:
                found = sums.setdefault(one.key, [0, 0, one.amount])
                found[0], found[1] = found[0] + 1, found[1] + one.amount
                found[2] = max(found[2], one.amount)
        rows += [(end, key, *found) for key, found in sums.items()]
    return rows
