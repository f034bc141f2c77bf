"""What an interval's rows were made of besides its own records: the earlier time that its job looked back at. Pure.

A job that deduplicates, closes windows or keeps running values reads rows of earlier intervals: partial rows, each made
of its own interval's records alone. A commit notes what it saw of them, and by what code they were made. Whether that
still holds is not stored but read from the ledger: an interval is stale where an earlier one, that it should have seen,
holds other records by now, or rows of other code. So no order of runs and no replay leaves silent staleness, and a
replay that changes nothing makes nothing stale.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from tallystick.format.interval import Interval
from tallystick.format.lookback import LookbackUsed, UsedInterval
from tallystick.format.page import Entry


def lookback_used(
    since: datetime, committed: Iterable[UsedInterval], read: Iterable[UsedInterval] = ()
) -> LookbackUsed:
    """What was seen: committed neighbours of one code joined, the same whatever intervals the time was cut into.

    `read`: stretches that were not committed, each by itself: whether it still is what it was can be told only once all
    of it is committed, and that must not keep its neighbours from being compared.
    """
    joined: list[UsedInterval] = []
    for one in sorted(committed, key=lambda s: s.interval):
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.interval.end == one.interval.start
            and last.fingerprint == one.fingerprint
        ):
            joined[-1] = UsedInterval(
                interval=Interval(start=last.interval.start, end=one.interval.end),
                fingerprint=one.fingerprint,
                records=last.records + one.records,
            )
        else:
            joined.append(one)
    seen = sorted([*joined, *read], key=lambda s: s.interval)
    return LookbackUsed(since=since, seen=tuple(seen))


def stale(entries: Iterable[Entry]) -> Mapping[Interval, Interval]:
    """The committed intervals whose look back no longer holds, each with a stretch of earlier time that it saw otherwise.

    `entries` are all from the earliest `since` on. Total: the same ledger always gives the same answer.
    """
    timeline = _Timeline(entries)
    found = {}
    for entry in timeline.entries:
        lookback = entry.committed.lookback if entry.committed is not None else None
        if lookback is not None:
            changed = timeline.changed(lookback, entry.interval.start)
            if changed is not None:
                found[entry.interval] = changed
    return found


def to_refresh(
    entries: Iterable[Entry],
    fingerprint: str,
    within: Interval,
    can: Callable[[Interval], bool] = lambda _: True,
) -> frozenset[Interval]:
    """The intervals in `within` that a run by this code has to replace, so that none of them is stale after it.

    More than are stale now: where the run's code is new, whatever looks back at what it replaces is stale then.
    `can`: whether an interval can be replaced, asked in the order of time; what cannot stays as it is, and makes nothing
    stale.
    """
    timeline = sorted((e for e in entries if e.committed is not None), key=lambda e: e.interval)
    now = stale(timeline)
    found: set[Interval] = set()
    # How far rows of other code than before reach, once the intervals so far are replaced.
    changed: datetime | None = None
    for entry in timeline:
        committed = entry.committed
        assert committed is not None  # they were chosen so
        lookback = committed.lookback
        hit = lookback is not None and changed is not None and lookback.since < changed
        is_wanted = within.covers(entry.interval) and (hit or entry.interval in now)
        if is_wanted and can(entry.interval):
            found.add(entry.interval)
            if committed.fingerprint != fingerprint and committed.totals.records:
                changed = entry.interval.end
    return frozenset(found)


class _Timeline:
    """Committed intervals by time, with sums, so that one look back is checked without walking along it."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = sorted(
            (e for e in entries if e.committed is not None), key=lambda e: e.interval
        )
        self._starts = [e.interval.start for e in self.entries]
        self._ends = [e.interval.end for e in self.entries]
        # Of all entries before an index, their records, and what of their offsets nobody has any more.
        self._sums, self._gone = [0], [0]
        # Where the unbroken stretch, and that of one code, begins that an index ends.
        self._whole_from: list[int] = []
        self._code_from: list[int] = []
        self._code: list[str | None] = []
        for i, entry in enumerate(self.entries):
            committed = entry.committed
            assert committed is not None  # they were chosen so
            totals = committed.totals
            self._sums.append(self._sums[-1] + totals.records)
            self._gone.append(self._gone[-1] + totals.lost + totals.absent)
            joined = i > 0 and self._ends[i - 1] == entry.interval.start
            self._whole_from.append(self._whole_from[-1] if joined else i)
            code = self._code[-1] if i else None
            # Intervals without a record have no partial row, whatever code found none.
            same = not committed.totals.records or code in (None, committed.fingerprint)
            self._code_from.append((self._code_from[-1] if i else 0) if same else i)
            self._code.append(committed.fingerprint if committed.totals.records else code)

    def changed(self, lookback: LookbackUsed, start: datetime) -> Interval | None:
        """The first stretch of [since, start) that was seen otherwise than it is."""
        at = lookback.since
        for seen in lookback.seen:
            if (missed := self._missed(at, seen.interval.start)) is not None:
                return missed
            if self._differs(seen):
                return seen.interval
            at = seen.interval.end
        return self._missed(at, start)

    def _missed(self, start: datetime, end: datetime) -> Interval | None:
        """The first interval with a record in a stretch that was not seen."""
        if start >= end:
            return None
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if self._sums[last] == self._sums[first]:
            return None
        there = next(i for i in range(first, last) if self._sums[i + 1] > self._sums[first])
        return self.entries[there].interval

    def _differs(self, seen: UsedInterval) -> bool:
        span = seen.interval
        first, last = bisect_right(self._ends, span.start), bisect_left(self._starts, span.end)
        if first == last:
            return False  # nothing of it is committed
        records = self._sums[last] - self._sums[first]
        if not self._whole(first, last, span):
            # A part of what was read in Kafka cannot be counted, but what is gone since shows in it.
            counted = self._gone[last] > self._gone[first] and bool(seen.records)
        else:
            counted = records != seen.records
        if counted or not records:
            return counted
        return self._code[last - 1] != seen.fingerprint or not self._one_code(first, last)

    def _one_code(self, first: int, last: int) -> bool:
        begins = self._code_from[last - 1]
        # What came before the stretch's first record does not count.
        return begins <= first or self._sums[begins] == self._sums[first]

    def _whole(self, first: int, last: int, span: Interval) -> bool:
        """Whether entries fill the stretch exactly: a part of one that is read in Kafka cannot be counted."""
        return (
            self._whole_from[last - 1] <= first
            and self._starts[first] == span.start
            and self._ends[last - 1] == span.end
        )
