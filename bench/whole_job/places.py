"""Where the benchmark's records go: partition and offset of each record of a topic, by its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlaces:
    """Record n goes to partition `cycle[n % len(cycle)]`, at the next offset of that partition.

    Raises ValueError if the cycle is empty or names a partition that the topic does not have.
    """

    partitions: int
    cycle: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.cycle or not set(self.cycle) <= set(range(self.partitions)):
            raise ValueError(f"expected partitions below {self.partitions}, found {self.cycle}")

    def of(
        self, first: int, count: int
    ) -> tuple[np.ndarray[Any, np.dtype[np.int32]], np.ndarray[Any, np.dtype[np.int64]]]:
        """Return the partitions and the offsets of the records [`first`, `first + count`)."""
        cycle = np.array(self.cycle, np.int32)
        each = np.bincount(cycle, minlength=self.partitions)
        before = np.array([self.cycle[:at].count(p) for at, p in enumerate(self.cycle)])
        rounds, at = np.divmod(np.arange(first, first + count, dtype=np.int64), len(cycle))
        return cycle[at], rounds * each[cycle[at]] + before[at]

    def ends(self, records: int) -> tuple[int, ...]:
        """Return the number of records of each partition."""
        rounds, rest = divmod(records, len(self.cycle))
        return tuple(
            rounds * self.cycle.count(p) + self.cycle[:rest].count(p)
            for p in range(self.partitions)
        )


def even(partitions: int = PARTITIONS) -> RecordPlaces:
    """Return places that give each partition the same number of records, give or take one."""
    return RecordPlaces(partitions=partitions, cycle=tuple(range(partitions)))


def skewed(times: int, partitions: int = PARTITIONS) -> RecordPlaces:
    """Return places that give the first partition `times` as many records as each other one."""
    return RecordPlaces(partitions=partitions, cycle=(0,) * times + tuple(range(1, partitions)))


def only_first(partitions: int = PARTITIONS) -> RecordPlaces:
    """Return places that give the first partition all records, and leave the others empty."""
    return RecordPlaces(partitions=partitions, cycle=(0,))
