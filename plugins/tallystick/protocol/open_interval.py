"""The interval of a run without dates."""

from __future__ import annotations

from datetime import datetime

from tallystick.format.interval import Interval, Request
from tallystick.protocol.ledger import Ledger


def open_interval(
    ledger: Ledger, request: Request, *, end: datetime, first: datetime
) -> Interval | None:
    """The interval of a run without dates: from where the ledger ends (or `first`) to `end`; None if nothing is new.

    A run that was here before keeps what it had, whatever `end` is now: the pipeline's lateness may have changed since,
    and its grant must not dangle. Only a later clear may get more than the run had: a retry could be a late copy of a
    task, and nobody would work on what it got (C14). The ledger must have its last page loaded, and those of what the
    run may have got; it must be whole if `taken_from` the run, or if a cleared run is not named there.
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
    """Whether a loaded entry has a request of this request's run: it was granted something there once."""
    return any(r.same_run(request) for e in ledger.entries for r in e.requests)


def taken_from(ledger: Ledger, request: Request) -> bool:
    """Whether others have something that the request's run was granted once: of that grant, gaps may be left."""
    return any(
        any(r.same_run(request) for r in e.served)
        and not any(s.request.same_run(request) for s in (e.granted, e.committed) if s is not None)
        for e in ledger.entries
    )


def _between_neighbours(
    ledger: Ledger, had: Interval, *, end: datetime, first: datetime
) -> Interval:
    """What the run had, with the gaps beside it: no entry names the run there once its grant is cancelled."""
    before = [e.interval.end for e in ledger.entries if e.interval.end <= had.start]
    behind = [e.interval.start for e in ledger.entries if e.interval.start >= had.end]
    return Interval(
        start=max(before, default=min(first, had.start)),
        end=max(had.end, min([*behind, end])),
    )
