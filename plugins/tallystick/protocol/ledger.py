"""The interval ledger: the pages that a decision needs, edited copy-on-write.

Pages are immutable objects; the root's index names them by time. A page contains the entries and boundaries that begin at
or after its own `since` and before the `since` of the next page.

Each plan and commit writes the page of its interval again, and most are in the newest page. So that page is kept small:
from time to time, its complete entries move to the page before it, which grows to the size at which a page is split.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import PAGE_BYTES_MAX, Boundary, Entry, Page, PageRef

NEWEST_SHARE = 8  # of the size of a page: the size of the newest page above which it is divided


def pages_between(index: Iterable[PageRef], start: datetime, end: datetime) -> tuple[PageRef, ...]:
    """Return the pages with all entries and boundaries of [start, end], and with the boundaries next to it."""
    refs = tuple(index)
    wanted: set[int] = set()
    first = max((i for i, r in enumerate(refs) if r.since <= start), default=0)
    last = max((i for i, r in enumerate(refs) if r.since <= end), default=0)
    # A page begins with a boundary, so a neighbouring boundary is at most one page away.
    has_boundary_before = first < len(refs) and refs[first].since < start
    wanted.update(range(first if has_boundary_before else first - 1, last + 2))
    wanted.update(i for i, r in enumerate(refs) if r.since < end and r.until > start)
    return tuple(r for i, r in enumerate(refs) if i in wanted)


def before_newest(
    index: Iterable[PageRef],
    loaded: Mapping[keys.PageKey, Page],
    *,
    bytes_max: int = PAGE_BYTES_MAX,
) -> tuple[PageRef, ...]:
    """Return the page before the newest one, if the newest one is loaded and has to hand over its complete entries."""
    refs = tuple(index)
    if len(refs) < 2 or refs[-1].key not in loaded:
        return ()
    before, newest = refs[-2:]
    is_full = len(loaded[newest.key].encode()) > newest_bytes_max(bytes_max)
    return (before,) if is_full and before.key not in loaded else ()


def newest_bytes_max(bytes_max: int) -> int:
    """Return the size above which the newest page is divided."""
    return bytes_max // NEWEST_SHARE


def split(
    page: Page, touched: Iterable[datetime] = (), *, bytes_max: int = PAGE_BYTES_MAX
) -> tuple[Page, ...]:
    """Split a page of more than `bytes_max` bytes into smaller pages; a page with one boundary stays whole.

    If all edits (`touched`) are near one end of the page, the page is split near that end. Intervals mostly arrive in
    order, forwards or backwards, so the full page without edits is never written again.
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
    left, right = _cut(page, page.boundaries[middle].at)
    return (*split(left, edits, bytes_max=bytes_max), *split(right, edits, bytes_max=bytes_max))


def divide_newest(page: Page, *, bytes_max: int = PAGE_BYTES_MAX) -> tuple[Page, ...]:
    """Divide the newest page into its complete entries and the rest, if it is above its size and half of it is complete.

    The rest begins with the first entry that waits for a commit or an output, and has at least the newest two boundaries.
    """
    if len(page.encode()) <= newest_bytes_max(bytes_max):
        return (page,)
    instants = [b.at for b in page.boundaries]
    waiting = [e.interval.start for e in page.entries if e.granted is not None or e.pending]
    complete = min([len(instants) - 2, *(bisect_left(instants, at) for at in waiting[:1])])
    if complete < 1 or 2 * complete < len(instants):
        return (page,)
    return _cut(page, instants[complete])


def joined(earlier: Page, later: Page) -> Page:
    """Return one page with the entries and boundaries of two, the earlier one first."""
    return Page(
        entries=(*earlier.entries, *later.entries),
        boundaries=(*earlier.boundaries, *later.boundaries),
    )


def _cut(page: Page, at: datetime) -> tuple[Page, Page]:
    """Cut a page at a boundary that is not its first one."""
    left, right = (
        Page(
            entries=tuple(e for e in page.entries if (e.interval.start < at) is first),
            boundaries=tuple(b for b in page.boundaries if (b.at < at) is first),
        )
        for first in (True, False)
    )
    return left, right


class Ledger:
    """A window on the ledger: some loaded pages of one root's index, with edits that stay in memory.

    Pure: it reads no store. `pages_between` returns the pages that a query needs; the lake loads them. `flush` returns
    the pages to write. A query outside of the loaded pages raises KeyError.
    """

    def __init__(self, index: Iterable[PageRef], loaded: Mapping[keys.PageKey, Page]) -> None:
        self.index = tuple(index)
        self._loaded = {ref.key: loaded[ref.key] for ref in self.index if ref.key in loaded}
        self._entries = {e.interval.start: e for p in self._loaded.values() for e in p.entries}
        self._boundaries = {b.at: b for p in self._loaded.values() for b in p.boundaries}
        self._touched: set[datetime] = set()

    def copy(self) -> Ledger:
        """Return a window with the same pages and edits; later edits to one do not change the other."""
        other = Ledger(self.index, self._loaded)
        other._entries, other._boundaries = dict(self._entries), dict(self._boundaries)
        other._touched = set(self._touched)
        return other

    def original(self) -> Ledger:
        """Return a window with the same pages and no edits."""
        return Ledger(self.index, self._loaded)

    @property
    def loaded(self) -> Mapping[keys.PageKey, Page]:
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
        """Return the entry of exactly that interval, or None."""
        found = self._entries.get(interval.start)
        return found if found is not None and found.interval == interval else None

    def overlapping(self, interval: Interval) -> tuple[Entry, ...]:
        """Return the entries that share an instant with `interval`, by start."""
        self._require(interval.start, interval.end)
        return tuple(e for e in self.entries if e.interval.overlaps(interval))

    def boundary(self, at: datetime) -> Boundary | None:
        """Return the boundary at that instant, or None."""
        self._require(at, at)
        return self._boundaries.get(at)

    def neighbours(self, at: datetime) -> tuple[Boundary | None, Boundary | None]:
        """Return the nearest boundaries strictly before and strictly after that instant; None on a side without one."""
        self._require(at, at)
        left = max((b for b in self._boundaries if b < at), default=None)
        right = min((b for b in self._boundaries if b > at), default=None)
        return (
            None if left is None else self._boundaries[left],
            None if right is None else self._boundaries[right],
        )

    def put(self, entry: Entry) -> None:
        """Set an entry. Raises ValueError if the boundary at its start or end is missing."""
        for at in (entry.interval.start, entry.interval.end):
            if at not in self._boundaries:
                raise ValueError(
                    f"{entry.interval}: expected a boundary at {keys.instant(at)}, found none"
                )
        self._entries[entry.interval.start] = entry
        self._touched.add(entry.interval.start)

    def drop(self, interval: Interval) -> None:
        """Remove the entry of that interval; its boundaries stay."""
        del self._entries[interval.start]
        self._touched.add(interval.start)

    def cancel(self, interval: Interval) -> None:
        """Remove the grant of that interval's entry. Committed rows stay; if nothing is committed, a gap is left."""
        kept = without_grant(self._entries[interval.start])
        if kept is None:
            self.drop(interval)
        else:
            self.put(kept)

    def set_boundary(self, boundary: Boundary) -> None:
        """Set a new boundary. Raises ValueError if that instant has one already: boundaries never move."""
        if boundary.at in self._boundaries:
            raise ValueError(f"the boundary at {keys.instant(boundary.at)} is already set")
        self._require(boundary.at, boundary.at)
        self._boundaries[boundary.at] = boundary
        self._touched.add(boundary.at)

    def flush(
        self, uuids: Iterable[str], *, bytes_max: int = PAGE_BYTES_MAX
    ) -> tuple[tuple[PageRef, ...], dict[keys.PageKey, Page]]:
        """Return the new index and the new pages by key. Pages without edits keep their keys; `uuids` name new pages."""
        fresh = iter(uuids)
        index: list[PageRef] = []
        written: dict[keys.PageKey, Page] = {}
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
            parts = split(page, edits, bytes_max=bytes_max)
            if following is None and len(parts) == 1:
                parts = self._newest_parts(page, index, written, bytes_max)
            for part in parts:
                key = keys.page(next(fresh))
                index.append(PageRef(since=part.since, until=part.until, key=key))
                written[key] = part
        return tuple(index), written

    def _newest_parts(
        self,
        page: Page,
        index: list[PageRef],
        written: dict[keys.PageKey, Page],
        bytes_max: int,
    ) -> tuple[Page, ...]:
        """Return the pages that take the place of the newest one; the last page of `index` is removed if it is one."""
        divided = divide_newest(page, bytes_max=bytes_max)
        if len(divided) == 1 or not index:
            return divided
        complete, rest = divided
        earlier = written.get(index[-1].key) or self._loaded.get(index[-1].key)
        if earlier is None:
            return (page,)  # a later flush divides it: the lake then loads the page before it
        one = joined(earlier, complete)
        if len(one.encode()) > bytes_max:
            return divided
        written.pop(index.pop().key, None)
        return one, rest

    def _require(self, start: datetime, end: datetime) -> None:
        for ref in pages_between(self.index, start, end):
            if ref.key not in self._loaded:
                raise KeyError(f"ledger page {ref.key} is needed but not loaded")


def without_grant(entry: Entry) -> Entry | None:
    """Return the entry without its grant; None if nothing is committed: then the interval becomes a gap."""
    return None if entry.committed is None else replace(entry, granted=None)
