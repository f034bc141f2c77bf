"""The pages of the interval ledger: entries and boundaries.

An entry is one interval with two slots, granted and committed: a pending replacement never hides committed rows; and with
one slot per output that its commits name (tallystick.format.outputs). A boundary splits the log at an instant; it is
set once and never moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tallystick.format import keys
from tallystick.format.canonical import (
    Fields,
    built,
    corrupt,
    decode,
    encode,
    fields,
    integers,
    text,
)
from tallystick.format.interval import Interval, Request, parse_interval, parse_request
from tallystick.format.lookback import LookedBack, parse_looked_back
from tallystick.format.offsets import Position
from tallystick.format.outputs import OutputSlot, check_slots, parse_slot

FORMAT = "tallystick.page/1"


# A page with an output's slot or a look back. A library that knows only the first format must not replace what it would
# not publish, nor forget what a job saw.
FORMAT_2 = "tallystick.page/2"


PAGE_BYTES_MAX = 256 * 1024


SERVED_MAX = 8


TOTALS = ("records", "dead", "aborted", "control", "absent", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Offsets of a committed interval by class, summed over topics and partitions."""

    records: int = 0
    dead: int = 0
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

    def to_json(self) -> list[int]:
        """Return the JSON form: the classes in the order of TOTALS."""
        return [getattr(self, name) for name in TOTALS]


def parse_totals(value: Any, where: str) -> Totals:
    """Read the JSON form; raises Corrupt."""
    numbers = integers(value, where, count=len(TOTALS))
    return built(where, lambda: Totals(**dict(zip(TOTALS, numbers, strict=True))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Who may commit the entry next."""

    plan: str
    request: Request
    generation: int

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        if self.generation < 1:
            raise ValueError(f"{self.generation} is no generation")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"plan": self.plan, "request": self.request.to_json(), "generation": self.generation}


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Whose rows the tables hold for the entry, by which code, and the record that says so.

    `looked`: what the code saw of earlier intervals, where its pipeline looks back.
    """

    plan: str
    request: Request
    generation: int
    fingerprint: str
    record: str
    totals: Totals
    looked: LookedBack | None = None

    def __post_init__(self) -> None:
        keys.check_plan(self.plan)
        keys.check_record(self.record)
        if self.generation < 1:
            raise ValueError(f"{self.generation} is no generation")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "plan": self.plan,
            "request": self.request.to_json(),
            "generation": self.generation,
            "fingerprint": self.fingerprint,
            "record": self.record,
            "totals": self.totals.to_json(),
        }

    def to_json_2(self) -> dict[str, Any]:
        """Return the JSON form of a page of the second format."""
        return {**self.to_json(), "looked": self.looked.to_json() if self.looked else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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
    def owed(self) -> tuple[str, ...]:
        """The outputs that still lack something of it, by name."""
        return tuple(sorted(name for name, slot in self.outputs.items() if slot.owed))

    @property
    def plain(self) -> bool:
        """Whether the first format holds all of it."""
        return not self.outputs and (self.committed is None or self.committed.looked is None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the first format."""
        return {
            "interval": self.interval.to_json(),
            "generation": self.generation,
            "granted": self.granted.to_json() if self.granted else None,
            "committed": self.committed.to_json() if self.committed else None,
            "served": [r.to_json() for r in self.served],
        }

    def to_json_2(self) -> dict[str, Any]:
        """Return the JSON form of the second format: with outputs, and with what a commit looked back at."""
        return {
            **self.to_json(),
            "committed": self.committed.to_json_2() if self.committed else None,
            "outputs": {name: slot.to_json() for name, slot in self.outputs.items()},
        }


def _parse_entry(value: Any, where: str) -> Entry:
    return _entry_of(fields(value, where), second=False)


def _parse_entry_2(value: Any, where: str) -> Entry:
    return _entry_of(fields(value, where), second=True)


def _entry_of(f: Fields, *, second: bool) -> Entry:
    where = f.where
    outputs = f.take_map("outputs", parse_slot) if second else {}
    interval = parse_interval(f.take("interval", list), where)
    generation = f.take("generation", int)
    granted, committed = None, None
    if (g := f.take_fields_or_none("granted")) is not None:
        plan, number = g.take("plan", str), g.take("generation", int)
        request = parse_request(g.take("request", list), g.where)
        g.done()
        granted = built(where, lambda: Granted(plan=plan, request=request, generation=number))
    if (c := f.take_fields_or_none("committed")) is not None:
        names = {name: c.take(name, str) for name in ("plan", "fingerprint", "record")}
        count, owner = c.take("generation", int), parse_request(c.take("request", list), c.where)
        totals = parse_totals(c.take("totals", list), c.where)
        seen = c.take_fields_or_none("looked") if second else None
        looked = parse_looked_back(seen) if seen is not None else None
        c.done()
        committed = built(
            where,
            lambda: Committed(
                generation=count, request=owner, totals=totals, looked=looked, **names
            ),
        )
    served = f.take_list("served", parse_request)
    f.done()
    return built(
        where,
        lambda: Entry(
            interval=interval,
            generation=generation,
            granted=granted,
            committed=committed,
            served=served,
            outputs=outputs,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        topics = {t: [[p.offset, p.leader_epoch] for p in ps] for t, ps in self.positions.items()}
        return {"at": keys.instant(self.at), "topics": topics}


def _parse_boundary(value: Any, where: str) -> Boundary:
    f = fields(value, where)
    at = f.take("at", str)
    positions = f.take_map("topics", _parse_positions)
    f.done()
    return built(where, lambda: Boundary(at=keys.parse_instant(at), positions=positions))


def _parse_positions(value: Any, where: str) -> tuple[Position, ...]:
    if not isinstance(value, list):
        raise corrupt(where, "a list of positions belongs here")
    pairs = [integers(item, where, count=2) for item in value]
    return built(where, lambda: tuple(Position(offset=o, leader_epoch=e) for o, e in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Entries and boundaries of one stretch of time, each sorted and unique by its start."""

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
    def owed(self) -> bool:
        """Whether an output still lacks something of one of its entries."""
        return any(e.owed for e in self.entries)

    def _entries_to_json(self) -> tuple[str, list[dict[str, Any]]]:
        if all(e.plain for e in self.entries):
            return FORMAT, [e.to_json() for e in self.entries]
        return FORMAT_2, [e.to_json_2() for e in self.entries]

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        format_name, entries = self._entries_to_json()
        return encode(
            {
                "format": format_name,
                "entries": entries,
                "boundaries": [b.to_json() for b in self.boundaries],
            }
        )


def parse_page(body: bytes, *, where: str) -> Page:
    """Read a page's bytes; raises Corrupt naming `where`."""
    f = decode(body, where=where, format_name=FORMAT, later=(FORMAT_2,))
    second = f.format_name == FORMAT_2
    entries, boundaries = (
        f.take_list("entries", _parse_entry_2 if second else _parse_entry),
        f.take_list("boundaries", _parse_boundary),
    )
    f.done()
    if second and all(e.plain for e in entries):
        raise corrupt(where, f"{FORMAT_2} without an output or a look back")
    return built(where, lambda: Page(entries=entries, boundaries=boundaries))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef:
    """One line of the root's index: the page's key, its first instant, and how far anything in it reaches."""

    since: datetime
    until: datetime
    key: str

    def __post_init__(self) -> None:
        keys.check_instant(self.since)
        keys.check_instant(self.until)
        keys.check_page(self.key)

    def to_json(self) -> list[str]:
        """Return the JSON form."""
        return [keys.instant(self.since), keys.instant(self.until), self.key]


def parse_page_ref(value: Any, where: str) -> PageRef:
    """Read the JSON form; raises Corrupt."""
    if not isinstance(value, list) or len(value) != 3:
        raise corrupt(where, "a page's line is two instants and a key")
    since, until, key = (text(item, where) for item in value)
    return built(
        where,
        lambda: PageRef(since=keys.parse_instant(since), until=keys.parse_instant(until), key=key),
    )
