"""The pages of the interval ledger: entries and boundaries.

An entry is one interval with two slots, granted and committed: a pending replacement never hides committed rows; and with
one slot per output that its commits name (tallystick.format.outputs). A boundary splits the log at an instant; it is
set once and never moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from tallystick.format import keys
from tallystick.format.codec import StoredObject, StoredValue
from tallystick.format.interval import Interval, Request
from tallystick.format.lookback import LookbackUsed
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot, check_slots

PAGE_BYTES_MAX = 256 * 1024


SERVED_MAX = 8


TOTALS = ("records", "dead_letters", "aborted", "control", "absent", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(StoredValue):
    """Offsets of a committed interval by class, summed over topics and partitions."""

    AS_LIST: ClassVar[bool] = True

    records: int = 0
    dead_letters: int = 0
    aborted: int = 0
    control: int = 0
    absent: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        if min(getattr(self, name) for name in TOTALS) < 0:
            raise ValueError("a total is negative")

    @property
    def offsets(self) -> int:
        """All offsets of the interval."""
        return sum(getattr(self, name) for name in TOTALS)

    @classmethod
    def sum_of(cls, several: Iterable[Totals]) -> Totals:
        """Add totals by class."""
        added = tuple(several)
        return cls(**{name: sum(getattr(one, name) for one in added) for name in TOTALS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(StoredValue):
    """Who may commit the entry next."""

    plan: keys.PlanKey
    request: Request
    generation: int

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.generation < 1:
            raise ValueError(f"{self.generation} is no generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(StoredValue):
    """Whose rows the tables hold for the entry, by which code, and the record that says so.

    `lookback`: what the code saw of earlier intervals, where its pipeline looks back.
    """

    plan: keys.PlanKey
    request: Request
    generation: int
    fingerprint: str
    record: keys.RecordKey
    totals: Totals
    lookback: LookbackUsed | None = None

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        keys.check_record(self.record)
        if self.generation < 1:
            raise ValueError(f"{self.generation} is no generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(StoredValue):
    """One interval of the ledger. `generation` counts its grants; `served` holds the last requests that got one.

    `outputs`: what each output has of it, by the output's name.
    """

    interval: Interval
    generation: int
    granted: Granted | None
    committed: Committed | None
    served: tuple[Request, ...] = ()
    outputs: Mapping[str, OutputSlot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.granted is None and self.committed is None:
            raise ValueError(f"{self.interval}: an entry is granted, committed or both")
        if self.outputs and self.committed is None:
            raise ValueError(f"{self.interval}: an output has rows of what is not committed")
        check_slots(self.outputs)
        for slot in (self.granted, self.committed):
            if slot is not None and keys.plan_parts(slot.plan)[0] != self.interval.part:
                raise ValueError(f"{self.interval}: {slot.plan} is a plan of another interval")
            if slot is not None and slot.generation > self.generation:
                raise ValueError(
                    f"{self.interval}: generation {slot.generation} of {self.generation}"
                )
        if len(self.served) > SERVED_MAX:
            raise ValueError(f"{self.interval}: more than {SERVED_MAX} served requests")

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests that it names: of its grant, of its commit, and those that were served."""
        slots = (self.granted, self.committed)
        return (*(slot.request for slot in slots if slot is not None), *self.served)

    @property
    def holder(self) -> Request:
        """The request that has the grant, else the one whose rows are committed."""
        slot = self.granted or self.committed
        assert slot is not None  # an entry has one slot at least
        return slot.request

    @property
    def pending(self) -> tuple[str, ...]:
        """The outputs that still lack something of it, by name."""
        return tuple(sorted(name for name, slot in self.outputs.items() if slot.pending))


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary(StoredValue):
    """Where the log is split at an instant: positions per topic and partition (the index is the partition number).

    A topic or partition that is not in it means its origin.
    """

    at: datetime
    positions: Mapping[str, tuple[Position, ...]]

    def __post_init__(self) -> None:
        keys.check_instant(self.at)

    def position(
        self, topic: str, partition: int, origins: Mapping[str, tuple[int, ...]]
    ) -> Position:
        """Position of one partition; the origin where the boundary does not know it."""
        known = self.positions.get(topic, ())
        if partition < len(known):
            return known[partition]
        return Position(offset=origins[topic][partition])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(StoredObject):
    """Entries and boundaries of one stretch of time, each sorted and unique by its start."""

    FORMAT: ClassVar[str] = "tallystick.page/1"

    entries: tuple[Entry, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    def __post_init__(self) -> None:
        for instants in ([e.interval.start for e in self.entries], [b.at for b in self.boundaries]):
            if any(a >= b for a, b in itertools.pairwise(instants)):
                raise ValueError("a page is sorted and holds each instant once")
        known = {b.at for b in self.boundaries}
        if not known or any(e.interval.start not in known for e in self.entries):
            raise ValueError(
                "each entry of a page begins at one of its boundaries, and there is one at least"
            )

    @property
    def since(self) -> datetime:
        """The first instant in the page."""
        return self.boundaries[0].at

    @property
    def until(self) -> datetime:
        """The last end of an entry in the page, or its last boundary: nothing in it reaches further."""
        return max([self.boundaries[-1].at, *(e.interval.end for e in self.entries)])

    @property
    def pending(self) -> bool:
        """Whether an output still lacks something of one of its entries."""
        return any(e.pending for e in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef(StoredValue):
    """One line of the root's index: the page's key, its first instant, and how far anything in it reaches."""

    AS_LIST: ClassVar[bool] = True

    since: datetime
    until: datetime
    key: keys.PageKey

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        keys.check_instant(self.until)
        keys.check_page(self.key)
