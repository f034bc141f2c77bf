"""Decides the plans that a plan task may be granted: a total function of the ledger, the request and its options.

Decisions are returned as values; tallystick.operations.plan turns refusals into errors for people. The decision is made
again on every root that is read. So a lost race and a lost reply are handled in the same way.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.format.page import Committed, Entry
from tallystick.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of a request for `interval`.

    `replace`: also replace committed entries inside it, regardless of the run that committed them. `force`: replace the
    run's own entries although nothing changed. `take_over`: cancel other runs' grants there. `cuts`: instants at which
    gaps are split. `stale`: the stale committed intervals. `selected`: if it is set, replace these committed intervals
    inside `interval`, regardless of the run that committed them, and nothing else; no gap is filled.
    """

    interval: Interval
    fingerprint: str
    replace: bool = False
    force: bool = False
    take_over: bool = False
    cuts: tuple[datetime, ...] = ()
    stale: frozenset[Interval] = frozenset()
    selected: frozenset[Interval] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPlan:
    """A plan that the request already has."""

    interval: Interval
    plan: keys.PlanKey
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An entry to be granted to the request; `before` is the current entry, None for a gap.

    `generation` is the generation of the new grant: one more than that of any grant of the interval in the ledger,
    including a grant that this same swap cancels.
    """

    interval: Interval
    before: Entry | None
    generation: int
    served: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecision:
    """The plans that a plan task already has, the grants that it gets or cancels, and the entries that stay unchanged.

    `held` are entries that other runs were granted; `covered` are committed entries that stay.
    """

    owned: tuple[OwnedPlan, ...] = ()
    grants: tuple[Grant, ...] = ()
    cancelled: tuple[Entry, ...] = ()
    held: tuple[Entry, ...] = ()
    covered: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSuperseded:
    """The refusal of a request that is not the run's newest, or whose grant was lost: it must not be granted anything.

    `by` is the newest request that has the interval: one of another run; one of the same run with a higher clear
    number; or the request itself, if its committed rows were made by other code, or if `gap` is granted to no run any
    more. `replaces`: the remaining work includes a replacement. `cuts`: the remaining work is not possible as
    requested, because it would cut through this entry.
    """

    by: Request
    replaces: bool = False
    gap: Interval | None = None
    cuts: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialOverlap:
    """The refusal of a replacement that would cut through a committed entry: only whole intervals are replaced.

    `withdrawn` are grants of the run's earlier clears. The new request replaces the old one even if it is refused:
    otherwise these grants would remain, and the run that has them could only fail.
    """

    entry: Entry
    withdrawn: tuple[Entry, ...] = ()


def decide_plan(
    ledger: Ledger, request: Request, options: PlanOptions
) -> PlanDecision | RequestSuperseded | PartialOverlap:
    """Decide which plans `request` may be granted in `options.interval`. The same request always gets the same plans.

    If the ledger has a higher clear number of the same run, the request gets nothing. It is a late copy of an older task,
    or Airflow counts the run's clears from 0 again (the DAG or run was deleted, or the metadata database is new). The two
    cases cannot be distinguished here. If nothing is left to do, the request succeeds in both cases; otherwise the result
    is `RequestSuperseded`.
    """
    overlapping = ledger.overlapping(options.interval)
    newest = max(
        (r for e in overlapping for r in e.requests if r.same_run(request)),
        key=lambda r: r.clear,
        default=request,
    )
    if newest.clear > request.clear:
        return _nothing_left(overlapping, request, options, newest)
    served = [e for e in overlapping if request in e.served]
    if served:
        # C3, C12, C14: this same request was answered before; the answer is what it still has of that.
        own = {e.interval for e in served if _holding(e, request) is not None}
        if not own:
            return _nothing_left(overlapping, request, options, served[0].holder)
        if any(_needs_other_rows(e, request, options) for e in overlapping):
            return RequestSuperseded(by=request, replaces=True)
        # A grant was released or given up. This may be a late copy of the task, and no task would work on a new grant.
        gaps = _fills(options, (e.interval for e in overlapping), ())
        if gaps:
            return RequestSuperseded(by=request, gap=gaps[0].interval)
        return _already_granted(overlapping, request, own)
    decision = _decide_afresh(overlapping, request, options)
    if isinstance(decision, PartialOverlap):
        older = (e for e in overlapping if e.granted and e.granted.request.same_run(request))
        return replace(decision, withdrawn=tuple(older))
    return decision


def _nothing_left(
    overlapping: Sequence[Entry], request: Request, options: PlanOptions, by: Request
) -> PlanDecision | RequestSuperseded:
    """Answer a request that must not be granted anything: a decision without effect, or else RequestSuperseded.

    If the run was not cleared, rows that it committed itself are treated as another run's: without a clear, no
    replacement is requested. So if a DAG was deleted and its run is created again, the run succeeds over committed
    rows, even if the code has changed.
    """
    seen = _decide_afresh(overlapping, request, options, owns_rows=request.clear > 0)
    if isinstance(seen, PlanDecision) and not seen.grants and not seen.cancelled:
        return seen
    if isinstance(seen, PartialOverlap):
        return RequestSuperseded(by=by, replaces=True, cuts=seen.entry)
    replaces = any(g.before is not None and g.before.committed is not None for g in seen.grants)
    return RequestSuperseded(by=by, replaces=replaces)


def _needs_other_rows(entry: Entry, request: Request, options: PlanOptions) -> bool:
    """Return True if an answered request needs other rows than it committed: the code has changed since then.

    True only if a person requests a replacement, by Clear or by a parameter. A retry with changed code must not be
    granted a replacement: it may be the late copy of a task with older code (C14, C15).
    """
    committed = entry.committed
    if committed is None or committed.request != request or entry.granted is not None:
        return False
    is_requested = request.clear > 0 or options.replace or options.force
    return is_requested and committed.fingerprint != options.fingerprint


def _already_granted(
    overlapping: Iterable[Entry], request: Request, own: Collection[Interval]
) -> PlanDecision:
    """Return what a request that was answered before has now; nothing is cancelled and nothing is granted."""
    owned: list[OwnedPlan] = []
    held: list[Entry] = []
    covered: list[Entry] = []
    for entry in overlapping:
        granted, committed = entry.granted, entry.committed
        holding = _holding(entry, request) if entry.interval in own else None
        if holding is not None:
            owned.append(holding)
        elif granted is not None and not granted.request.same_run(request):
            held.append(entry)
        elif committed is not None and committed.request.same_run(request):
            owned.append(OwnedPlan(interval=entry.interval, plan=committed.plan, committed=True))
        elif committed is not None:
            covered.append(entry)
    return PlanDecision(owned=tuple(owned), held=tuple(held), covered=tuple(covered))


def _holding(entry: Entry, request: Request) -> OwnedPlan | None:
    if entry.granted is not None and entry.granted.request == request:
        return OwnedPlan(interval=entry.interval, plan=entry.granted.plan, committed=False)
    if entry.committed is not None and entry.committed.request == request:
        return OwnedPlan(interval=entry.interval, plan=entry.committed.plan, committed=True)
    return None


def _decide_afresh(
    overlapping: Iterable[Entry], request: Request, options: PlanOptions, *, owns_rows: bool = True
) -> PlanDecision | PartialOverlap:
    """Decide for a request that the ledger does not contain. `owns_rows`: it may replace rows that its run committed."""
    owned: list[OwnedPlan] = []
    grants: list[Grant] = []
    cancelled: list[Entry] = []
    held: list[Entry] = []
    covered: list[Entry] = []
    kept: list[Interval] = []
    orphans: list[Entry] = []
    for entry in overlapping:
        granted, committed = entry.granted, entry.committed
        if granted is not None and not granted.request.same_run(request):
            if not options.take_over:
                held.append(entry)
                kept.append(entry.interval)
                continue
            cancelled.append(entry)
            if committed is None:
                orphans.append(entry)  # the part that the request does not cover becomes a gap
                continue
        if committed is None:
            # The run's own grant of an earlier clear: the new request gets a new plan over the same boundaries.
            grants.append(_regrant(entry))
            kept.append(entry.interval)
            continue
        kept.append(entry.interval)
        own_grant = granted is not None and granted.request.same_run(request)
        own_rows = committed.request.same_run(request)
        replaces = _replacement(entry, committed, options, own_rows=own_rows and owns_rows)
        if isinstance(replaces, PartialOverlap):
            return replaces
        if replaces:
            grants.append(_regrant(entry))
        else:
            if own_grant:
                cancelled.append(
                    entry
                )  # an earlier request of this run, no longer requested: no unused grant may remain
            if own_rows:
                owned.append(
                    OwnedPlan(interval=entry.interval, plan=committed.plan, committed=True)
                )
            else:
                covered.append(entry)
    grants += _fills(options, kept, orphans)
    return PlanDecision(
        owned=tuple(owned),
        grants=tuple(sorted(grants, key=lambda g: g.interval)),
        cancelled=tuple(cancelled),
        held=tuple(held),
        covered=tuple(covered),
    )


def _replacement(
    entry: Entry, committed: Committed, options: PlanOptions, *, own_rows: bool
) -> bool | PartialOverlap:
    """Return True if a committed entry is to be replaced; `own_rows`: the request's own run committed it.

    Return PartialOverlap if `replace` is set and the interval contains only a part of the entry.
    """
    if options.selected is not None:
        return entry.interval in options.selected and options.interval.covers(entry.interval)
    is_stale = entry.interval in options.stale
    if own_rows and (committed.fingerprint != options.fingerprint or options.force or is_stale):
        return True
    if not options.replace:
        return False
    # This includes rows that this run committed itself: a backfill that repeats its runs with mode=replace needs that.
    return True if options.interval.covers(entry.interval) else PartialOverlap(entry=entry)


def gaps(wanted: Interval, kept: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the parts of `wanted` that no interval of `kept` covers, in order."""
    found: list[Interval] = []
    start = wanted.start
    for interval in sorted(kept):
        if interval.start > start:
            found.append(Interval(start=start, end=interval.start))
        start = max(start, interval.end)
    if start < wanted.end:
        found.append(Interval(start=start, end=wanted.end))
    return tuple(found)


def _regrant(entry: Entry) -> Grant:
    return Grant(
        interval=entry.interval,
        before=entry,
        generation=entry.generation + 1,
        served=entry.served,
    )


def parts(gap: Interval, cuts: Iterable[datetime]) -> list[Interval]:
    """Split an interval at the instants that lie inside it."""
    edges = [gap.start, *sorted(at for at in cuts if gap.start < at < gap.end), gap.end]
    return [Interval(start=start, end=end) for start, end in itertools.pairwise(edges)]


def _fills(
    options: PlanOptions, kept: Iterable[Interval], orphans: Collection[Entry]
) -> tuple[Grant, ...]:
    """Build grants for the requested time that `kept` does not cover; a selection fills no gap."""
    if options.selected is not None:
        return ()
    return tuple(
        _fill(part, orphans)
        for gap in gaps(options.interval, kept)
        for part in parts(gap, options.cuts)
    )


def _fill(gap: Interval, orphans: Iterable[Entry]) -> Grant:
    # Requests whose grants are cancelled here must not be served again: otherwise a late copy of their plan task would
    # take the interval back and leave a grant on which no task works.
    taken = [e for e in orphans if e.interval.overlaps(gap)]
    return Grant(
        interval=gap,
        before=None,
        generation=max((e.generation for e in taken), default=0) + 1,
        served=tuple(r for e in taken for r in e.served),
    )
