"""The interval of a run without dates."""

from __future__ import annotations

from datetime import datetime

from tallystick.format.interval import Interval, Request
from tallystick.protocol.ledger import Ledger


def open_interval(
    ledger: Ledger, request: Request, *, end: datetime, first: datetime
) -> Interval | None:
    """Return the interval of a run without dates: from the ledger's end (or `first`) to `end`; None if nothing is new.

    If the ledger names the run already, the run keeps the interval that it had, regardless of `end`: the pipeline's
    lateness may have changed since, and the run's grant must not be left without a task. Only a later clear may get more
    than the run had: a retry could be a late copy of a task, and no task would work on what it got (C14).

    The ledger must have loaded its last page and the pages with the run's earlier grants. All pages must be loaded if
    `taken_from` is True for the request, or if a cleared run is not named in the loaded pages.
    """
    own = [(e.interval, r.clear) for e in ledger.entries for r in e.requests if r.same_run(request)]
    if not own:
        start = max((e.interval.end for e in ledger.entries), default=first)
        return Interval(start=start, end=end) if start < end else None
    had = Interval(start=min(i.start for i, _ in own), end=max(i.end for i, _ in own))
    if taken_from(ledger, request):
        had = _between_neighbours(ledger, had, end=end, first=first)
    cleared = request.clear > max(clear for _, clear in own)
    return Interval(start=had.start, end=max(end, had.end)) if cleared else had


def names(ledger: Ledger, request: Request) -> bool:
    """Return True if a loaded entry names a request of this request's run: the run was granted the entry once."""
    return any(r.same_run(request) for e in ledger.entries for r in e.requests)


def taken_from(ledger: Ledger, request: Request) -> bool:
    """Return True if other runs have an entry that the request's run was granted once; gaps may be left of that grant."""
    return any(
        any(r.same_run(request) for r in e.served)
        and not any(s.request.same_run(request) for s in (e.granted, e.committed) if s is not None)
        for e in ledger.entries
    )


def _between_neighbours(
    ledger: Ledger, had: Interval, *, end: datetime, first: datetime
) -> Interval:
    """Return the interval that the run had, extended by the gaps next to it.

    A gap can be left of the run's own grant: after a grant is cancelled, no entry names the run there.
    """
    before = [e.interval.end for e in ledger.entries if e.interval.end <= had.start]
    behind = [e.interval.start for e in ledger.entries if e.interval.start >= had.end]
    return Interval(
        start=max(before, default=min(first, had.start)),
        end=max(had.end, min([*behind, end])),
    )
