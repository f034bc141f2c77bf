"""One root as it was read, and the ledger pages that a query on it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Page, PageRef
from tallystick.format.page_outline import PageOutline
from tallystick.format.root import Root
from tallystick.protocol.ledger import Ledger, before_newest, pages_between
from tallystick.protocol.staleness import stale
from tallystick.store import ETag

if TYPE_CHECKING:
    from tallystick.lake.lake import Lake

MOMENT = timedelta(milliseconds=1)


class ObjectGoneError(Exception):
    """The error if an object that this root needs is gone: a newer root must exist, or the lake is damaged."""


class RootMovedError(Exception):
    """The error if the root has moved during a step: a swap from the root that the step decided on can only be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One root as it was read, the ETag of exactly that body, and the key of the record of the next version."""

    root: Root
    etag: ETag
    record_key: keys.RecordKey
    lake: Lake = field(repr=False)

    def ledger(self, start: datetime, end: datetime) -> Ledger:
        """Load the entries and boundaries of [start, end], the boundaries next to it, and both ends of each entry."""
        ledger = self._load(pages_between(self.root.pages, start, end))
        inside = [
            e.interval for e in ledger.entries if e.interval.start < end and e.interval.end > start
        ]
        low = min([start, *(i.start for i in inside)])
        high = max([end, *(i.end for i in inside)])
        if (low, high) == (start, end):
            return ledger
        return self._load(pages_between(self.root.pages, low, high))

    def tail(self, since: datetime) -> Ledger:
        """Load the pages that reach furthest in time, and all entries that end at `since` or later."""
        refs = self.root.pages
        latest = max((ref.until for ref in refs), default=since)
        wanted = {ref.key for ref in pages_between(refs, since - MOMENT, max(since, latest))}
        wanted |= {ref.key for ref in refs if ref.until == latest}
        return self._load([ref for ref in refs if ref.key in wanted])

    def around(self, intervals: Iterable[Interval]) -> Ledger:
        """Load the entries and boundaries of each of these intervals, and no pages between them."""
        refs = self.root.pages
        wanted = {ref.key for i in intervals for ref in pages_between(refs, i.start, i.end)}
        return self._load([ref for ref in refs if ref.key in wanted])

    def stale_among(self, intervals: Iterable[Interval]) -> Mapping[Interval, Interval]:
        """Return the stale intervals among these, each with a span of earlier time that has changed since it was read.

        Loads only the pages of these intervals and of their lookbacks.
        """
        requested = set(intervals)
        lookbacks = {
            e.interval: e.committed.lookback.since
            for e in self.around(requested).entries
            if e.interval in requested
            and e.committed is not None
            and e.committed.lookback is not None
        }
        if not lookbacks:
            return {}
        reached = self.ledger(min(lookbacks.values()), max(i.end for i in lookbacks))
        return {i: seen for i, seen in stale(reached.entries).items() if i in lookbacks}

    def page(self, key: keys.PageKey) -> Page:
        """Return one page of this root, by its key."""
        return self.lake._page(key)

    def page_once(self, key: keys.PageKey) -> Page:
        """Return one page of this root without keeping it in memory."""
        return self.lake._read_page(key)

    def page_outline(self, key: keys.PageKey) -> PageOutline:
        """Return the outline of one page of this root. Several threads may call it at the same time."""
        return self.lake._page_outline(key)

    def page_body(self, key: keys.PageKey) -> bytes:
        """Return the bytes of one page of this root. Several threads may call it at the same time."""
        return self.lake._page_body(key)

    def check_still_there(self) -> None:
        """Raise RootMovedError if the root has moved, so that the swap begins again early. It only reads."""
        if self.lake._moved(self):
            raise RootMovedError

    def whole_ledger(self) -> Ledger:
        """Load every page. The cost grows with the ledger, so the commit task never does this."""
        return self._load(self.root.pages)

    def _load(self, refs: tuple[PageRef, ...] | list[PageRef]) -> Ledger:
        index, page = self.root.pages, self.lake._page
        pages = {ref.key: page(ref.key) for ref in refs}
        also = before_newest(index, pages, bytes_max=self.lake.page_bytes_max)
        return Ledger(index, {**pages, **{ref.key: page(ref.key) for ref in also}})
