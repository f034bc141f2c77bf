"""The lookbacks of committed intervals, and the intervals that are stale because earlier time has changed. Pure.

A job that deduplicates, closes windows or keeps running values reads rows of earlier intervals: partial rows, each made
only of its own interval's records. A commit records which of them its lookback read, and which code made them. Staleness
is not stored: it is computed from the ledger. An interval is stale if an earlier interval within its lookback now has
other records, or rows of other code. So staleness is always detected, regardless of the order of runs and of replays. A
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
    """Build the lookback of a commit from the committed intervals and the uncommitted ranges that it read.

    Adjacent committed intervals of the same code are joined, so the result does not depend on how the time was split into
    intervals. `read`: uncommitted ranges. They are kept separate: each can be validated only after it is fully committed,
    and until then its neighbours must still be compared.
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
    """Return the stale committed intervals, each with a span of earlier time that has changed since its lookback read it.

    `entries` are all entries from the earliest `since` on. Total: the same ledger always gives the same answer.
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
    """Return the intervals in `within` that a run of this code must replace, so that none of them is stale afterwards.

    These can be more than the intervals that are stale now: if the run's code is new, each interval whose lookback reads
    a replaced interval becomes stale. `can`: returns True if an interval can be replaced; it is called in the order of
    time. An interval that cannot be replaced stays unchanged and makes nothing stale.
    """
    timeline = sorted((e for e in entries if e.committed is not None), key=lambda e: e.interval)
    now = stale(timeline)
    found: set[Interval] = set()
    # The end of the last interval so far whose rows, after its replacement, come from other code than before.
    changed: datetime | None = None
    for entry in timeline:
        committed = entry.committed
        assert committed is not None  # the timeline contains only committed entries
        lookback = committed.lookback
        hit = lookback is not None and changed is not None and lookback.since < changed
        is_wanted = within.covers(entry.interval) and (hit or entry.interval in now)
        if is_wanted and can(entry.interval):
            found.add(entry.interval)
            if committed.fingerprint != fingerprint and committed.totals.records:
                changed = entry.interval.end
    return frozenset(found)


class _Timeline:
    """Committed intervals by time, with cumulative sums, so that a lookback is checked without a scan of its entries."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = sorted(
            (e for e in entries if e.committed is not None), key=lambda e: e.interval
        )
        self._starts = [e.interval.start for e in self.entries]
        self._ends = [e.interval.end for e in self.entries]
        # Per index: the records of all entries before it, and their offsets that no longer exist (lost or absent).
        self._sums, self._gone = [0], [0]
        # Per index: the first index of the span without gaps that ends there, and of the span of one code.
        self._whole_from: list[int] = []
        self._code_from: list[int] = []
        self._code: list[str | None] = []
        for i, entry in enumerate(self.entries):
            committed = entry.committed
            assert committed is not None  # only committed entries were selected
            totals = committed.totals
            self._sums.append(self._sums[-1] + totals.records)
            self._gone.append(self._gone[-1] + totals.lost + totals.absent)
            joined = i > 0 and self._ends[i - 1] == entry.interval.start
            self._whole_from.append(self._whole_from[-1] if joined else i)
            code = self._code[-1] if i else None
            # An interval without records has no partial rows, so its code does not matter.
            same = not committed.totals.records or code in (None, committed.fingerprint)
            self._code_from.append((self._code_from[-1] if i else 0) if same else i)
            self._code.append(committed.fingerprint if committed.totals.records else code)

    def changed(self, lookback: LookbackUsed, start: datetime) -> Interval | None:
        """Return the first span of [since, start) that has changed since the lookback read it, or None."""
        at = lookback.since
        for seen in lookback.seen:
            if (missed := self._missed(at, seen.interval.start)) is not None:
                return missed
            if self._differs(seen):
                return seen.interval
            at = seen.interval.end
        return self._missed(at, start)

    def _missed(self, start: datetime, end: datetime) -> Interval | None:
        """Return the first interval with a record in a span that the lookback did not read, or None."""
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
            # The entries cover only a part of a range that was read from Kafka, so records cannot be compared. But
            # offsets that are gone since then show in the totals.
            counted = self._gone[last] > self._gone[first] and bool(seen.records)
        else:
            counted = records != seen.records
        if counted or not records:
            return counted
        return self._code[last - 1] != seen.fingerprint or not self._one_code(first, last)

    def _one_code(self, first: int, last: int) -> bool:
        begins = self._code_from[last - 1]
        # Entries before the span's first record do not count.
        return begins <= first or self._sums[begins] == self._sums[first]

    def _whole(self, first: int, last: int, span: Interval) -> bool:
        """Return True if entries fill the span exactly: a part of a range that is read from Kafka cannot be counted."""
        return (
            self._whole_from[last - 1] <= first
            and self._starts[first] == span.start
            and self._ends[last - 1] == span.end
        )
