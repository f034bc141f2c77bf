"""Offset ranges of one partition, positions, and set operations on offsets.

All ranges are half-open: `start <= offset < end`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tallystick.format.codec import StoredValue

OFFSET_MAX = 2**63 - 1
EPOCH_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OffsetRange(StoredValue):
    """Offsets `start <= offset < end` of one partition."""

    AS_LIST: ClassVar[bool] = True

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= OFFSET_MAX:
            raise ValueError(
                f"expected an offset range with 0 <= start <= end < 2^63, found [{self.start}, {self.end})"
            )

    @property
    def length(self) -> int:
        """Number of offsets in the range."""
        return self.end - self.start

    @property
    def empty(self) -> bool:
        """True if the range contains no offset."""
        return self.start == self.end

    def covers(self, other: OffsetRange) -> bool:
        """Return True if every offset of `other` lies in this range."""
        return other.empty or (self.start <= other.start and other.end <= self.end)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position(StoredValue):
    """A position that splits a log: the next offset, and the leader epoch of the record before it (-1: unknown)."""

    AS_LIST: ClassVar[bool] = True

    offset: int
    leader_epoch: int = EPOCH_UNKNOWN

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= OFFSET_MAX:
            raise ValueError(f"expected an offset, found {self.offset}")
        if self.leader_epoch < EPOCH_UNKNOWN:
            raise ValueError(f"expected a leader epoch, found {self.leader_epoch}")


@dataclass(frozen=True, slots=True)
class Coverage:
    """A set of offsets of one partition, as sorted ranges that neither touch nor overlap."""

    ranges: tuple[OffsetRange, ...] = ()

    def __post_init__(self) -> None:
        if any(r.empty for r in self.ranges):
            raise ValueError("expected a coverage without empty ranges, found one")
        for left, right in zip(self.ranges, self.ranges[1:], strict=False):
            if left.end >= right.start:
                raise ValueError(
                    f"{left} and {right} touch or overlap: build coverages with Coverage.of"
                )

    @classmethod
    def of(cls, ranges: Iterable[OffsetRange]) -> Coverage:
        """Build the set from any ranges, in any order, overlapping or not."""
        merged: list[OffsetRange] = []
        for r in sorted(r for r in ranges if not r.empty):
            if merged and r.start <= merged[-1].end:
                merged[-1] = OffsetRange(start=merged[-1].start, end=max(merged[-1].end, r.end))
            else:
                merged.append(r)
        return cls(tuple(merged))

    @property
    def length(self) -> int:
        """Number of offsets in the set."""
        return sum(r.length for r in self.ranges)

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self.ranges)

    def __contains__(self, offset: int) -> bool:
        return any(r.start <= offset < r.end for r in self.ranges)

    def union(self, other: Coverage) -> Coverage:
        """Return the offsets in either set."""
        return Coverage.of((*self.ranges, *other.ranges))

    def subtract(self, other: Coverage) -> Coverage:
        """Return the offsets in this set and not in `other`."""
        left: list[OffsetRange] = []
        for r in self.ranges:
            start = r.start
            for gap in other.ranges:
                if gap.end <= start or gap.start >= r.end:
                    continue
                if gap.start > start:
                    left.append(OffsetRange(start=start, end=gap.start))
                start = max(start, gap.end)
            if start < r.end:
                left.append(OffsetRange(start=start, end=r.end))
        return Coverage(tuple(left))

    def intersect(self, other: Coverage) -> Coverage:
        """Return the offsets in both sets."""
        return self.subtract(self.subtract(other))

    def tiles(self, whole: OffsetRange) -> bool:
        """Return True if the set is exactly the offsets of `whole`."""
        return self == Coverage.of([whole])


def tile(ranges: Iterable[OffsetRange]) -> OffsetRange:
    """Join ranges that tile one range without gap or overlap, in any order.

    Raises ValueError that names the first two ranges that do not meet.
    """
    ordered = sorted(ranges)
    if not ordered:
        raise ValueError("expected at least one range, found none")
    for left, right in itertools.pairwise(ordered):
        if left.end != right.start:
            what = "a gap" if left.end < right.start else "an overlap"
            raise ValueError(f"{what} between {left} and {right}")
    return OffsetRange(start=ordered[0].start, end=ordered[-1].end)
