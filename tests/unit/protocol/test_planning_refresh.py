"""Grants of stale intervals: a cleared run gets its own, mode=refresh gets all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.format.interval import Interval
from tallystick.protocol.planning import PartialOverlap, PlanDecision, PlanOptions, decide_plan
from unit.format.samples import committed, entry, granted, interval, request
from unit.protocol.test_planning_and_committing import ledger, spans

MINE = request("mine")
STALE = frozenset({interval(1, 2), interval(3, 4)})


def decided(first: float, last: float, *entries: Any, **more: Any) -> PlanDecision:
    """Return the decision for [first, last) if [1, 2) and [3, 4) are stale."""
    options = PlanOptions(interval=interval(first, last), fingerprint="f1", stale=STALE, **more)
    found = decide_plan(ledger(*entries), MINE, options)
    assert isinstance(found, PlanDecision)
    return found


def theirs(first: float, last: float, run: str = "r1") -> Any:
    return entry(first, last, commit=committed(first, last, run=run))


def test_a_refresh_replaces_stale_intervals_of_every_run_and_fills_no_gap() -> None:
    stored = (theirs(0, 1), theirs(1, 2), theirs(3, 4, "mine"))
    found = decided(0, 6, *stored, selected=STALE)
    assert spans(found.grants) == [interval(1, 2), interval(3, 4)]
    assert [g.before for g in found.grants] == [stored[1], stored[2]]
    assert [g.generation for g in found.grants] == [2, 2]
    assert spans(found.covered) == [interval(0, 1)]
    assert not found.cancelled


@pytest.mark.parametrize("replace", [False, True])
def test_a_refresh_replaces_only_stale_intervals(replace: bool) -> None:
    found = decided(0, 9, theirs(0, 1), theirs(4, 9), selected=STALE, replace=replace, force=True)
    assert not found.grants


@pytest.mark.parametrize(("first", "last"), [(1.5, 9), (0, 1.5)])
def test_a_refresh_leaves_alone_an_interval_that_its_request_cuts(
    first: float, last: float
) -> None:
    found = decided(first, last, theirs(1, 2), selected=STALE)
    assert (found.grants, spans(found.covered)) == ((), [interval(1, 2)])


def test_a_refresh_takes_no_grant_from_a_run_that_already_replaces_the_interval() -> None:
    pending = entry(1, 2, grant=granted(1, 2, run="other", generation=2), commit=committed(1, 2))
    found = decided(0, 9, pending, selected=STALE)
    assert (found.grants, spans(found.held)) == ((), [interval(1, 2)])


def test_a_clear_replaces_the_runs_own_stale_rows_and_no_others() -> None:
    found = decided(0, 4, theirs(0, 1, "mine"), theirs(1, 2, "mine"), theirs(2, 3), theirs(3, 4))
    assert spans(found.grants) == [interval(1, 2)]
    assert spans(found.covered) == [interval(2, 3), interval(3, 4)]


def test_a_replacement_that_cuts_a_stale_interval_is_refused() -> None:
    options = PlanOptions(
        interval=Interval(start=interval(0, 1.5).start, end=interval(0, 1.5).end),
        fingerprint="f1",
        stale=STALE,
        replace=True,
    )
    assert isinstance(decide_plan(ledger(theirs(1, 2)), MINE, options), PartialOverlap)
