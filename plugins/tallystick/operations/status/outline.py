"""The outline of a whole ledger: all entries, and only those boundaries that the status of a lake needs.

A large ledger is tens of megabytes, of which most is boundaries: a position for each partition of each topic. Pages never
change, so a process that reads the status often keeps the outlines of pages and reads only new pages (`StatusCache`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from tallystick.format import keys
from tallystick.format.page import Boundary, Entry, Page
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.grants import Fewer, fewer, may_have_fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOutline:
    """The entries of a page, its first and last boundary, and those at which covered or committed time begins or ends."""

    entries: tuple[Entry, ...]
    edges: Mapping[datetime, Boundary]


def page_outline(page: Page) -> PageOutline:
    """Return the outline of a page."""
    wanted = {page.boundaries[0].at, page.boundaries[-1].at, *_edges(page.entries)}
    return PageOutline(
        entries=page.entries, edges={b.at: b for b in page.boundaries if b.at in wanted}
    )


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


class LedgerOutline:
    """The ledger of one snapshot: entries and edges of all its pages. Other boundaries are read when they are needed."""

    def __init__(self, snapshot: Snapshot, pages: Sequence[PageOutline]) -> None:
        self._snapshot = snapshot
        self._pages = pages

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, by start."""
        return tuple(entry for page in self._pages for entry in page.entries)

    @property
    def first(self) -> Boundary | None:
        """The first boundary; None if there is none."""
        return self._pages[0].edges[min(self._pages[0].edges)] if self._pages else None

    @property
    def last(self) -> Boundary | None:
        """The last boundary; None if there is none."""
        return self._pages[-1].edges[max(self._pages[-1].edges)] if self._pages else None

    def boundary(self, at: datetime) -> Boundary | None:
        """Return the boundary at that instant, or None. Reads its page if the outline lacks it."""
        for ref, page in zip(
            reversed(self._snapshot.root.pages), reversed(self._pages), strict=True
        ):
            if ref.since <= at:
                if at in page.edges:
                    return page.edges[at]
                whole = self._snapshot.page_once(ref.key)
                return next((b for b in whole.boundaries if b.at == at), None)
        return None


class StatusCache:
    """What `read_status` has read of a lake and reads no more: outlines of pages, and comparisons of commits.

    All of it is of immutable objects. What the current root no longer needs is dropped. Use one for each lake.
    """

    def __init__(self) -> None:
        self._outlines: dict[keys.PageKey, PageOutline] = {}
        self._fewer: dict[keys.RecordKey, Fewer | None] = {}

    def ledger(self, snapshot: Snapshot) -> LedgerOutline:
        """Return the outline of a snapshot's ledger. Reads only the pages that the last snapshot did not have."""
        known = self._outlines
        found: dict[keys.PageKey, PageOutline] = {}
        for ref in snapshot.root.pages:
            found[ref.key] = known.get(ref.key) or page_outline(snapshot.page_once(ref.key))
        self._outlines = found
        return LedgerOutline(snapshot, tuple(found.values()))

    def fewer(self, lake: Lake, entries: Sequence[Entry]) -> tuple[Fewer, ...]:
        """Return the replacements with fewer records than their interval had before."""
        known = self._fewer
        found: dict[keys.RecordKey, Fewer | None] = {}
        for entry in entries:
            if may_have_fewer(entry):
                assert entry.committed is not None
                record = entry.committed.record
                found[record] = known[record] if record in known else fewer(lake, entry)
        self._fewer = found
        return tuple(one for one in found.values() if one is not None)
