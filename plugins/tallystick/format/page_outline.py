"""The outline of a ledger page: its entries, and only those boundaries at which covered or committed time begins or ends.

Most of a page is boundaries: a position for each partition of each topic. `PageOutline.decode` finds them in the bytes
without reading all of them, which is many times faster for lakes of many topics.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tallystick.format import canonical, keys
from tallystick.format.codec import StoredValue
from tallystick.format.page import Boundary, Entry, Page

# Canonical JSON sorts the fields and escapes quotes in strings, so these bytes are not inside of a boundary or a string:
# positions are lists of lists, after which there is no brace.
START = b'{"boundaries":[{"at":"'
ENTRIES = b'}],"entries":['
_BOUNDARY = re.compile(rb'\{"at":"([^"]{24})","positions":\{')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries(StoredValue):
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOutline:
    """The entries of a page, its first and last boundary, and those at which covered or committed time begins or ends."""

    entries: tuple[Entry, ...]
    edges: Mapping[datetime, Boundary]

    @classmethod
    def of(cls, page: Page) -> Self:
        """Return the outline of a page."""
        wanted = {page.boundaries[0].at, page.boundaries[-1].at, *_edges(page.entries)}
        return cls(entries=page.entries, edges={b.at: b for b in page.boundaries if b.at in wanted})

    @classmethod
    def decode(cls, body: bytes, *, where: str) -> Self:
        """Return the outline of a page's bytes; raises Corrupt as `Page.decode`.

        The positions of other boundaries are not checked: what needs them decodes the page.
        """
        return cls._found(body, where) or cls.of(Page.decode(body, where=where))

    @classmethod
    def _found(cls, body: bytes, where: str) -> Self | None:
        """Return the outline, or None if the bytes are not those of a valid page of this version."""
        end = body.find(ENTRIES)
        if end < 0 or not body.startswith(START):
            return None
        rest = canonical.loads(b"{" + body[end + 3 :], where=where, format_name=Page.FORMAT)
        entries = _Entries.from_json(rest, where).entries
        found = list(_BOUNDARY.finditer(body, 0, end))
        try:
            instants = [keys.parse_instant(one[1].decode("ascii")) for one in found]
        except ValueError:
            return None
        starts = [e.interval.start for e in entries]
        sorted_ = _increase(instants) and _increase(starts)
        if not (instants and sorted_ and set(instants).issuperset(starts)):
            return None
        wanted = {instants[0], instants[-1], *_edges(entries)}
        ends = [*(one.start() - 1 for one in found[1:]), end + 1]
        try:
            edges = {
                at: Boundary.from_json(json.loads(body[one.start() : stop]), where)
                for at, one, stop in zip(instants, found, ends, strict=True)
                if at in wanted
            }
        except ValueError:
            return None
        return cls(entries=entries, edges=edges)


def _increase(instants: Sequence[datetime]) -> bool:
    return all(a < b for a, b in itertools.pairwise(instants))


def _edges(entries: Sequence[Entry]) -> Iterator[datetime]:
    before: Entry | None = None
    for entry in entries:
        adjacent = before is not None and before.interval.end == entry.interval.start
        if before is None or not adjacent or _committed(before) is not _committed(entry):
            yield entry.interval.start
            if before is not None:
                yield before.interval.end
        before = entry
    if before is not None:
        yield before.interval.end


def _committed(entry: Entry) -> bool:
    return entry.committed is not None
