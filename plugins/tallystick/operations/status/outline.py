"""The outline of a whole ledger: all entries, and only those boundaries that the status of a lake needs.

A large ledger is tens of megabytes, of which most is boundaries: a position for each partition of each topic. Pages never
change, so a process that reads the status often keeps the outlines of pages and reads only new pages (`StatusCache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property

from tallystick.format import keys
from tallystick.format.page import Boundary, Entry
from tallystick.format.page_outline import PageOutline
from tallystick.format.page_sums import PageSums
from tallystick.lake import Lake, Snapshot
from tallystick.operations.status.grants import Fewer, fewer, may_have_fewer

READERS = 8


class LedgerOutline:
    """The ledger of one snapshot: entries and edges of its pages. Other boundaries are read when they are needed."""

    def __init__(self, snapshot: Snapshot, pages: Sequence[PageOutline | PageSums]) -> None:
        self._snapshot = snapshot
        self._pages = pages

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all pages, by start, without those of `summed` pages."""
        return tuple(entry for page in self._pages for entry in page.entries)

    @property
    def summed(self) -> Sequence[PageSums]:
        """The pages of which only sums were read."""
        return [page for page in self._pages if isinstance(page, PageSums)]

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

    All of it is of immutable objects. What the current root no longer needs is dropped. Use one for each lake. Several
    threads may use it at the same time; at worst, two read the same pages.
    """

    def __init__(self) -> None:
        self._outlines: dict[keys.PageKey, PageOutline] = {}
        self._fewer: dict[keys.RecordKey, Fewer | None] = {}

    def ledger(self, snapshot: Snapshot) -> LedgerOutline:
        """Return the outline of a snapshot's ledger. Reads only the pages that the last snapshot did not have."""
        new = [ref.key for ref in snapshot.root.pages if ref.key not in self._outlines]
        with ThreadPoolExecutor(READERS) as readers:
            read = dict(zip(new, readers.map(snapshot.page_outline, new), strict=True))
        known = self._outlines | read
        self._outlines = {ref.key: known[ref.key] for ref in snapshot.root.pages}
        return LedgerOutline(snapshot, tuple(self._outlines.values()))

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
