"""Reads a ledger of which only the newest intervals are shown: of older pages only sums, if that is enough."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tallystick.format.interval import Interval
from tallystick.format.page import Entry, Totals
from tallystick.format.page_outline import PageOutline
from tallystick.format.page_sums import PageSums
from tallystick.lake import Snapshot
from tallystick.operations.status.gaps import LATEST, is_scheduled, uncovered
from tallystick.operations.status.outline import READERS, LedgerOutline


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderIntervals:
    """The sums of committed intervals that are not in a status one by one, because nothing about them is reported.

    `count`: their number, by the generation of the commit in `generations`. `dags`: those of the commits.
    """

    count: int = 0
    totals: Totals = field(default_factory=Totals)
    generations: Mapping[int, int] = field(default_factory=dict)
    dags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pages: Sequence[PageSums]) -> OlderIntervals:
        """Add the sums of pages."""
        generations: Counter[int] = Counter()
        for page in pages:
            generations.update(page.generations)
        return cls(
            count=sum(page.intervals for page in pages),
            totals=Totals.sum_of(page.totals for page in pages),
            generations=generations,
            dags=frozenset().union(*(page.dags for page in pages)),
        )


def newest_ledger(snapshot: Snapshot, count: int) -> LedgerOutline:
    """Return a ledger with its newest `count` intervals and all that must be reported, and the sums of the other pages.

    It has every interval if a status needs them: if there is a gap, whose command depends on the intervals around it, or
    a lookback. Raises Corrupt if a page is damaged.
    """
    refs, where = snapshot.root.pages, snapshot.lake.where
    with ThreadPoolExecutor(READERS) as readers:
        bodies = list(readers.map(snapshot.page_body, (ref.key for ref in refs)))
    pages: list[PageOutline | PageSums] = []
    newest = scheduled = 0
    for ref, body in zip(reversed(refs), reversed(bodies), strict=True):
        # The schedule is derived from the latest scheduled intervals, so these are needed, too.
        is_older = newest >= count and scheduled >= LATEST
        page = (is_older and PageSums.found(body, where=where(ref.key))) or PageOutline.decode(
            body, where=where(ref.key)
        )
        newest += len(page.entries)
        scheduled += sum(map(is_scheduled, page.entries))
        pages.append(page)
    pages.reverse()
    ledger = LedgerOutline(snapshot, pages)
    if not ledger.summed or (_is_whole(ledger, pages) and not _has_lookback(ledger.entries)):
        return ledger
    return LedgerOutline(
        snapshot,
        [
            PageOutline.decode(body, where=where(ref.key)) if isinstance(page, PageSums) else page
            for ref, body, page in zip(refs, bodies, pages, strict=True)
        ],
    )


def _has_lookback(entries: Iterable[Entry]) -> bool:
    return any(e.committed is not None and e.committed.lookback is not None for e in entries)


def _is_whole(ledger: LedgerOutline, pages: Iterable[PageOutline | PageSums]) -> bool:
    """Return True if intervals fill the time from the first boundary to the last one."""
    first, last = ledger.first, ledger.last
    assert first is not None  # there is a page with sums
    assert last is not None
    covered = itertools.chain.from_iterable(
        [Interval(start=page.since, end=page.until)]
        if isinstance(page, PageSums)
        else [entry.interval for entry in page.entries]
        for page in pages
    )
    return not uncovered(first.at, last.at, covered)
