"""Finds the spans of a ledger whose records no table has yet, with the offsets at which they begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from tallystick.format.interval import Interval
from tallystick.format.page import Boundary, Entry
from tallystick.format.root import RootTopic
from tallystick.operations.status.gaps import BoundedLedger, Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedSpan:
    """A span of time that is not committed: `start <= t < end`; `end` is None for the time after the last boundary.

    `first` and `last`: by open topic that has offsets in it, the offsets of the partitions at its start and at its end.
    Without an end, `first` has all open topics and `last` is empty. `granted`: True if runs may commit it. `command`: the
    command that fills a gap, otherwise empty.
    """

    start: datetime
    end: datetime | None
    first: Mapping[str, tuple[int, ...]]
    last: Mapping[str, tuple[int, ...]]
    granted: bool = False
    command: tuple[str, ...] = ()


def uncommitted_spans(
    ledger: BoundedLedger, topics: Mapping[str, RootTopic], gaps: Sequence[Gap]
) -> tuple[UncommittedSpan, ...]:
    """Return the gaps of a ledger, its granted spans without rows, and the time after its last boundary, by start."""
    found = [
        between(
            topics,
            ledger.boundary(gap.interval.start),
            ledger.boundary(gap.interval.end),
            command=gap.command,
        )
        for gap in gaps
    ]
    for span in _granted(ledger.entries):
        start, end = ledger.boundary(span.start), ledger.boundary(span.end)
        found.append(between(topics, start, end, granted=True))
    if ledger.last is not None:
        first = offsets_at(topics, ledger.last)
        found.append(UncommittedSpan(start=ledger.last.at, end=None, first=first, last={}))
    return tuple(sorted(found, key=lambda span: span.start))


def between(
    topics: Mapping[str, RootTopic],
    start: Boundary | None,
    end: Boundary | None,
    *,
    granted: bool = False,
    command: tuple[str, ...] = (),
) -> UncommittedSpan:
    """Return the span between two boundaries of the ledger."""
    assert start is not None  # gaps and entries lie between boundaries
    assert end is not None
    first, last = offsets_at(topics, start), offsets_at(topics, end)
    filled = [name for name in first if first[name] != last[name]]
    return UncommittedSpan(
        start=start.at,
        end=end.at,
        first={name: first[name] for name in filled},
        last={name: last[name] for name in filled},
        granted=granted,
        command=command,
    )


def offsets_at(
    topics: Mapping[str, RootTopic], boundary: Boundary | None
) -> dict[str, tuple[int, ...]]:
    """Return the offset of each partition of the open topics at a boundary; None: at their origins."""
    origins = {name: topic.origins for name, topic in topics.items() if topic.closed is None}
    if boundary is None:
        return origins
    return {
        name: tuple(boundary.position(name, p, origins).offset for p in range(len(of)))
        for name, of in origins.items()
    }


def _granted(entries: Sequence[Entry]) -> Iterator[Interval]:
    """Yield the spans that are granted and have no rows; entries that are next to each other are one span."""
    open_ = [entry.interval for entry in entries if entry.committed is None]
    starts = {interval.start for interval in open_}
    for _, group in groupby(_numbered(open_, starts), key=lambda pair: pair[0]):
        together = [interval for _, interval in group]
        yield Interval(start=together[0].start, end=together[-1].end)


def _numbered(
    intervals: Sequence[Interval], starts: set[datetime]
) -> Iterator[tuple[int, Interval]]:
    number = 0
    for interval in intervals:
        yield number, interval
        number += interval.end not in starts
