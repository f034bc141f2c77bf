"""The interval ledger: entries, boundaries, and the copy-on-write pages that hold them.

An entry is one interval with two slots, granted and committed: a pending replacement never hides committed rows; and with
one slot per output that its commits name (tallystick.protocol.outputs). A
boundary splits the log at an instant; it is set once and never moved. Pages are immutable objects; the root's index
names them by time. A page holds what begins at or after its `since` and before the next page's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tallystick.protocol import keys
from tallystick.protocol.canonical import (
    Fields,
    built,
    corrupt,
    decode,
    encode,
    fields,
    integers,
    text,
)
from tallystick.protocol.interval import Interval, Request, parse_interval, parse_request
from tallystick.protocol.lookback import LookedBack, parse_looked_back
from tallystick.protocol.offsets import Position
from tallystick.protocol.outputs import OutputSlot, check_slots, parse_slot

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


def pages_between(index: Iterable[PageRef], start: datetime, end: datetime) -> tuple[PageRef, ...]:
    """Pages needed to know everything about [start, end]: what overlaps it and the boundaries next to it."""
    refs = tuple(index)
    wanted: set[int] = set()
    first = max((i for i, r in enumerate(refs) if r.since <= start), default=0)
    last = max((i for i, r in enumerate(refs) if r.since <= end), default=0)
    # A neighbouring boundary stands at most one page further, as each page holds one at least.
    wanted.update(range(first - 1, last + 2))
    wanted.update(i for i, r in enumerate(refs) if r.since < end and r.until > start)
    return tuple(r for i, r in enumerate(refs) if i in wanted)


def split(
    page: Page, touched: Iterable[datetime] = (), *, bytes_max: int = PAGE_BYTES_MAX
) -> tuple[Page, ...]:
    """Split a page that is too large into pages that are not; a page of one boundary stays whole.

    Cuts where the edits are not: intervals mostly arrive in order, forwards or backwards, and the full page that a cut
    at the other end leaves behind is never written again.
    """
    count = len(page.boundaries)
    if count < 2 or len(page.encode()) <= bytes_max:
        return (page,)
    edits = sorted(touched)
    tenth = max(1, count // 10)
    middle = count // 2
    if edits and edits[0] >= page.boundaries[count - tenth].at:
        middle = count - tenth
    elif edits and edits[-1] <= page.boundaries[tenth].at:
        middle = tenth
    cut = page.boundaries[middle].at
    left, right = (
        Page(
            entries=tuple(e for e in page.entries if (e.interval.start < cut) is first),
            boundaries=tuple(b for b in page.boundaries if (b.at < cut) is first),
        )
        for first in (True, False)
    )
    return (*split(left, edits, bytes_max=bytes_max), *split(right, edits, bytes_max=bytes_max))


class Ledger:
    """A window on the ledger: some loaded pages of one root's index, with edits that stay in memory.

    Pure: it reads no store. `pages_between` says which pages a question needs; the lake loads them. `flush` names the
    pages to write. Asking beyond what is loaded raises KeyError.
    """

    def __init__(self, index: Iterable[PageRef], loaded: Mapping[str, Page]) -> None:
        self.index = tuple(index)
        self._loaded = {ref.key: loaded[ref.key] for ref in self.index if ref.key in loaded}
        self._entries = {e.interval.start: e for p in self._loaded.values() for e in p.entries}
        self._boundaries = {b.at: b for p in self._loaded.values() for b in p.boundaries}
        self._touched: set[datetime] = set()

    def copy(self) -> Ledger:
        """A window with the same pages and edits; edits to one do not show in the other."""
        other = Ledger(self.index, self._loaded)
        other._entries, other._boundaries = dict(self._entries), dict(self._boundaries)
        other._touched = set(self._touched)
        return other

    def original(self) -> Ledger:
        """The same window without any edit."""
        return Ledger(self.index, self._loaded)

    @property
    def loaded(self) -> Mapping[str, Page]:
        """The loaded pages by key, as they were read."""
        return self._loaded

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The loaded entries, by start."""
        return tuple(self._entries[start] for start in sorted(self._entries))

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """The loaded boundaries, by instant."""
        return tuple(self._boundaries[at] for at in sorted(self._boundaries))

    def entry(self, interval: Interval) -> Entry | None:
        """The entry of exactly that interval."""
        found = self._entries.get(interval.start)
        return found if found is not None and found.interval == interval else None

    def overlapping(self, interval: Interval) -> tuple[Entry, ...]:
        """Entries that share an instant with `interval`, by start."""
        self._require(interval.start, interval.end)
        return tuple(e for e in self.entries if e.interval.overlaps(interval))

    def boundary(self, at: datetime) -> Boundary | None:
        """The boundary at that instant."""
        self._require(at, at)
        return self._boundaries.get(at)

    def neighbours(self, at: datetime) -> tuple[Boundary | None, Boundary | None]:
        """The nearest boundaries strictly before and strictly after that instant."""
        self._require(at, at)
        left = max((b for b in self._boundaries if b < at), default=None)
        right = min((b for b in self._boundaries if b > at), default=None)
        return (
            None if left is None else self._boundaries[left],
            None if right is None else self._boundaries[right],
        )

    def put(self, entry: Entry) -> None:
        """Set an entry whose boundaries are there. Raises ValueError where one is missing."""
        for at in (entry.interval.start, entry.interval.end):
            if at not in self._boundaries:
                raise ValueError(f"{entry.interval}: no boundary at {keys.instant(at)}")
        self._entries[entry.interval.start] = entry
        self._touched.add(entry.interval.start)

    def drop(self, interval: Interval) -> None:
        """Remove the entry of that interval; its boundaries stay."""
        del self._entries[interval.start]
        self._touched.add(interval.start)

    def cancel(self, interval: Interval) -> None:
        """Take the grant of that interval's entry away; what is committed stays, and where nothing is, a hole is left."""
        kept = without_grant(self._entries[interval.start])
        if kept is None:
            self.drop(interval)
        else:
            self.put(kept)

    def set_boundary(self, boundary: Boundary) -> None:
        """Set a boundary where none is. Raises ValueError where one is: boundaries never move."""
        if boundary.at in self._boundaries:
            raise ValueError(f"the boundary at {keys.instant(boundary.at)} is set already")
        self._require(boundary.at, boundary.at)
        self._boundaries[boundary.at] = boundary
        self._touched.add(boundary.at)

    def flush(
        self, uuids: Iterable[str], *, bytes_max: int = PAGE_BYTES_MAX
    ) -> tuple[tuple[PageRef, ...], dict[str, Page]]:
        """Return the new index and the new pages by key. Untouched pages keep their keys; `uuids` name new ones."""
        fresh = iter(uuids)
        index: list[PageRef] = []
        written: dict[str, Page] = {}
        slots: list[PageRef | None] = list(self.index) or [None]
        for i, ref in enumerate(slots):
            low = None if i == 0 or ref is None else ref.since
            following = slots[i + 1] if i + 1 < len(slots) else None
            high = following.since if following is not None else None

            def mine(
                at: datetime, low: datetime | None = low, high: datetime | None = high
            ) -> bool:
                return (low is None or at >= low) and (high is None or at < high)

            edits = [at for at in self._touched if mine(at)]
            if not edits:
                index.extend([ref] if ref is not None else [])
                continue
            page = Page(
                entries=tuple(e for e in self.entries if mine(e.interval.start)),
                boundaries=tuple(b for b in self.boundaries if mine(b.at)),
            )
            for part in split(page, edits, bytes_max=bytes_max):
                key = keys.page(next(fresh))
                index.append(PageRef(since=part.since, until=part.until, key=key))
                written[key] = part
        return tuple(index), written

    def _require(self, start: datetime, end: datetime) -> None:
        for ref in pages_between(self.index, start, end):
            if ref.key not in self._loaded:
                raise KeyError(f"ledger page {ref.key} is needed and not loaded")


def without_grant(entry: Entry) -> Entry | None:
    """The entry once its grant is cancelled; None where nothing is committed, so that it becomes a hole."""
    return None if entry.committed is None else replace(entry, granted=None)
