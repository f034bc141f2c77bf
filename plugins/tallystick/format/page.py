"""The pages of the interval ledger: entries and boundaries.

An entry is one interval with two slots, granted and committed, so a pending replacement never hides committed rows. It
also has one slot per output that its commits name (tallystick.format.outputs). A boundary splits the log at an instant;
it is set once and never moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Self

from tallystick.format import canonical, keys
from tallystick.format.codec import NOT_STORED, StoredObject, StoredValue
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
            raise ValueError("expected totals of at least 0, found a negative total")

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
    """The grant of an entry: the plan that may commit next, and its request."""

    plan: keys.PlanKey
    request: Request
    generation: int

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.generation < 1:
            raise ValueError(f"expected a generation, found {self.generation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(StoredValue):
    """The committed plan of an entry, whose rows the tables contain: its request, its code, and the commit record.

    `lookback`: the earlier time that the code read, if its pipeline has a lookback. `compactions`: by table, the
    compaction that has moved files of the plan; a table without one has all files where the plan's report lists them.
    """

    plan: keys.PlanKey
    request: Request
    generation: int
    fingerprint: str
    record: keys.RecordKey
    totals: Totals
    lookback: LookbackUsed | None = None
    compactions: Mapping[str, keys.CompactionId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        keys.check_record(self.record)
        for table, compaction in self.compactions.items():
            keys.check_name(table, "table")
            keys.check_uuid(compaction)
        if self.generation < 1:
            raise ValueError(f"expected a generation, found {self.generation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(StoredValue):
    """One interval of the ledger. `generation` counts its grants; `served` contains the last requests that got one.

    `outputs`: the slot of each output, by the output's name.
    """

    interval: Interval
    generation: int
    granted: Granted | None
    committed: Committed | None
    served: tuple[Request, ...] = ()
    outputs: Mapping[str, OutputSlot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.granted is None and self.committed is None:
            raise ValueError(
                f"{self.interval}: expected an entry that is granted, committed or both, found neither"
            )
        if self.outputs and self.committed is None:
            raise ValueError(
                f"{self.interval}: an output has rows, but the interval is not committed"
            )
        check_slots(self.outputs)
        part = self.interval.part
        for slot in (self.granted, self.committed):
            if slot is not None and keys.plan_parts(slot.plan)[0] != part:
                raise ValueError(
                    f"{self.interval}: expected a plan of this interval, found {slot.plan}"
                )
            if slot is not None and slot.generation > self.generation:
                raise ValueError(
                    f"{self.interval}: expected at most generation {self.generation}, found {slot.generation}"
                )
        if len(self.served) > SERVED_MAX:
            raise ValueError(
                f"{self.interval}: expected at most {SERVED_MAX} served requests, found {len(self.served)}"
            )

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests that the entry names: of its grant, of its commit, and those that were served."""
        slots = (self.granted, self.committed)
        return (*(slot.request for slot in slots if slot is not None), *self.served)

    @property
    def holder(self) -> Request:
        """The request that has the grant; if there is no grant, the request whose rows are committed."""
        slot = self.granted or self.committed
        assert slot is not None  # an entry has at least one slot
        return slot.request

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of the outputs that are pending for the entry, sorted."""
        return tuple(sorted(name for name, slot in self.outputs.items() if slot.pending))


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary(StoredValue):
    """The split of the log at an instant: positions per topic and partition (the index is the partition number).

    If a topic or partition is missing, its position is its origin.
    """

    at: datetime
    positions: Mapping[str, tuple[Position, ...]]

    def __post_init__(self) -> None:
        keys.check_instant(self.at)

    def position(
        self, topic: str, partition: int, origins: Mapping[str, tuple[int, ...]]
    ) -> Position:
        """Return the position of one partition; its origin if the boundary has no position for it."""
        known = self.positions.get(topic, ())
        if partition < len(known):
            return known[partition]
        return Position(offset=origins[topic][partition])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(StoredObject):
    """Entries and boundaries of one span of time, each sorted and unique by its start."""

    FORMAT: ClassVar[str] = "tallystick.page/1"

    entries: tuple[Entry, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    # The size decides if a page is split, and the same bytes are read or written: they are computed once.
    _encoded: bytes = field(default=b"", init=False, repr=False, compare=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        for instants in ([e.interval.start for e in self.entries], [b.at for b in self.boundaries]):
            if any(a >= b for a, b in itertools.pairwise(instants)):
                raise ValueError("expected a sorted page with each instant once")
        known = {b.at for b in self.boundaries}
        if not known or any(e.interval.start not in known for e in self.entries):
            raise ValueError(
                "expected a page with at least one boundary, each entry beginning at one"
            )

    def encode(self) -> bytes:
        """Return the canonical bytes, which are those that were decoded, or are computed at the first call."""
        if not self._encoded:
            object.__setattr__(self, "_encoded", StoredObject.encode(self))
        return self._encoded

    @classmethod
    def decode(cls, body: bytes, *, where: str) -> Self:
        """Read a page's bytes; raises Corrupt with the object's name and the path of the field."""
        page = cls.from_json(canonical.loads(body, where=where, format_name=cls.FORMAT), where)
        object.__setattr__(page, "_encoded", body)  # canonical, or it would have been refused
        return page

    @property
    def since(self) -> datetime:
        """The first instant in the page."""
        return self.boundaries[0].at

    @property
    def until(self) -> datetime:
        """The latest instant in the page: the end of an entry, or the last boundary."""
        return max([self.boundaries[-1].at, *(e.interval.end for e in self.entries)])

    @property
    def pending(self) -> bool:
        """True if an output is pending for one of the page's entries."""
        return any(e.pending for e in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef(StoredValue):
    """One entry of the root's index of pages: the page's key, its first instant and its latest instant."""

    AS_LIST: ClassVar[bool] = True

    since: datetime
    until: datetime
    key: keys.PageKey

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        keys.check_instant(self.until)
        keys.check_page(self.key)
