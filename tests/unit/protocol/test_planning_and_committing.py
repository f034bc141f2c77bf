"""Decisions as tables and as properties: what a request is granted, and what a commit may publish."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.format.columns import FormerName, TableColumn
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary, Entry
from tallystick.format.root import RootTable, RootTopic
from tallystick.protocol.boundaries import clamped, floors, missing_boundaries
from tallystick.protocol.committing import (
    AlreadyCommitted,
    ColumnsDiffer,
    GrantLost,
    IdentityDiffers,
    PartitioningDiffers,
    Publish,
    decide_commit,
    differs_from_root,
)
from tallystick.protocol.ledger import Ledger
from tallystick.protocol.open_interval import names, open_interval
from tallystick.protocol.planning import (
    Grant,
    PartialOverlap,
    PlanDecision,
    PlanOptions,
    RequestSuperseded,
    decide_plan,
)
from unit.format.samples import (
    COLUMNS,
    SAMPLE_PLAN,
    SAMPLE_ROOT,
    at,
    boundary,
    committed,
    entry,
    granted,
    interval,
    plan_key,
    request,
    uuid,
)


def ledger(*entries: Entry) -> Ledger:
    """Return a ledger of these entries, with the boundaries that they need."""
    out = Ledger((), {})
    for hour in sorted(
        {
            (at_ - at(0)) / (at(1) - at(0))
            for e in entries
            for at_ in (e.interval.start, e.interval.end)
        }
    ):
        out.set_boundary(boundary(hour, int(hour * 10)))
    for e in entries:
        out.put(e)
    return out


def options(first: float, last: float, **more: Any) -> PlanOptions:
    return PlanOptions(
        interval=interval(first, last), fingerprint=more.pop("fingerprint", "f1"), **more
    )


def spans(items: Any) -> list[Any]:
    return [item.interval for item in items]


MINE = request("mine")
AGAIN = request("mine", 1)


def plan_decision(decision: Any) -> PlanDecision:
    assert isinstance(decision, PlanDecision)
    return decision


def test_an_empty_ledger_grants_the_whole_request() -> None:
    decision = plan_decision(decide_plan(ledger(), MINE, options(0, 3)))
    assert decision.grants == (Grant(interval=interval(0, 3), before=None, generation=1),)


def test_only_the_remainder_is_granted() -> None:
    stored = ledger(entry(1, 2, commit=committed(1, 2)), entry(3, 4, commit=committed(3, 4)))
    decision = plan_decision(decide_plan(stored, MINE, options(0, 5)))
    assert spans(decision.grants) == [interval(0, 1), interval(2, 3), interval(4, 5)]
    assert spans(decision.covered) == [interval(1, 2), interval(3, 4)]


def test_intervals_committed_by_others_are_left_alone_for_every_fingerprint() -> None:
    stored = ledger(entry(0, 2, commit=committed(0, 2, fingerprint="old")))
    decision = plan_decision(decide_plan(stored, MINE, options(0, 2, force=True)))
    assert decision == PlanDecision(covered=stored.entries)


def test_a_grant_of_another_run_is_left_alone() -> None:
    stored = ledger(entry(1, 2, grant=granted(1, 2)))
    decision = plan_decision(decide_plan(stored, MINE, options(0, 3)))
    assert spans(decision.grants) == [interval(0, 1), interval(2, 3)]
    assert spans(decision.held) == [interval(1, 2)]


@pytest.mark.parametrize(
    ("slot", "fingerprint"), [("grant", "f1"), ("grant", "other"), ("commit", "f1")]
)
def test_the_same_request_gets_the_same_plan(slot: str, fingerprint: str) -> None:
    make = granted if slot == "grant" else committed
    stored = ledger(entry(0, 1, **{slot: make(0, 1, run="mine")}, served=(MINE,)))
    decision = plan_decision(
        decide_plan(stored, MINE, options(0, 1, fingerprint=fingerprint, replace=True, force=True))
    )
    assert decision.grants == ()
    assert [(h.plan, h.committed) for h in decision.owned] == [(plan_key(0, 1), slot == "commit")]


def test_a_repeated_request_gets_the_same_answer_for_its_whole_interval() -> None:
    """The first answer was lost. The gap has stayed since, and a repeated request is granted nothing."""
    others = {
        "covered": entry(0, 1, commit=committed(0, 1, run="x")),
        "held": entry(1, 2, grant=granted(1, 2, run="y")),
        "mine of a lower clear": entry(2, 3, commit=committed(2, 3, run="mine")),
        "mine": entry(3, 4, grant=granted(3, 4, run="mine", clear=1), served=(MINE, AGAIN)),
        "an older grant of mine": entry(4, 5, grant=granted(4, 5, run="mine")),
        "replaced by z": entry(
            5,
            6,
            grant=granted(5, 6, run="z", generation=2),
            commit=committed(5, 6, run="mine"),
        ),
    }
    decision = plan_decision(decide_plan(ledger(*others.values()), AGAIN, options(0, 6)))
    assert decision.grants == decision.cancelled == ()
    assert spans(decision.covered) == [interval(0, 1)]
    assert spans(decision.held) == [interval(1, 2), interval(5, 6)]
    assert [(h.interval, h.committed) for h in decision.owned] == [
        (interval(2, 3), True),
        (interval(3, 4), False),
    ]


def test_a_served_request_that_was_superseded_is_granted_nothing() -> None:
    stored = ledger(entry(0, 1, commit=committed(0, 1, run="other"), served=(MINE,)))
    expected = RequestSuperseded(by=request("other"), replaces=True)
    assert decide_plan(stored, MINE, options(0, 1, replace=True)) == expected
    # Without `replace` nothing is left to do: the rows that others committed are accepted.
    assert plan_decision(decide_plan(stored, MINE, options(0, 1))) == PlanDecision(
        covered=stored.entries
    )


NEWER = request("mine", 2)
LOWER = {
    "granted": entry(0, 1, grant=granted(0, 1, run="mine", clear=2)),
    "committed": entry(0, 1, commit=committed(0, 1, run="mine", clear=2)),
    "committed, a replacement granted": entry(
        0,
        1,
        grant=granted(0, 1, run="mine", clear=2, generation=2),
        commit=committed(0, 1, run="mine", clear=1),
    ),
    "served, committed by others": entry(0, 1, commit=committed(0, 1), served=(NEWER,)),
    "served, granted to others": entry(0, 1, grant=granted(0, 1), served=(NEWER,)),
}


@pytest.mark.parametrize("clear", [0, 1])
@pytest.mark.parametrize("state", sorted(LOWER))
def test_a_lower_clear_number_is_granted_nothing_and_succeeds_if_nothing_is_left(
    state: str, clear: int
) -> None:
    """A late copy of an older task, or a database that counts from 0 again: the ledger cannot distinguish the two."""
    stored = ledger(LOWER[state])
    decision = decide_plan(stored, request("mine", clear), options(0, 1))
    if state in ("granted", "committed, a replacement granted"):
        assert decision == RequestSuperseded(by=NEWER)
    elif state == "committed":
        assert [(h.interval, h.committed) for h in plan_decision(decision).owned] == [
            (interval(0, 1), True)
        ]
    else:
        assert spans((*plan_decision(decision).covered, *plan_decision(decision).held)) == [
            interval(0, 1)
        ]
    if isinstance(decision, PlanDecision):
        assert decision.grants == decision.cancelled == ()


@pytest.mark.parametrize(
    ("clear", "more", "succeeds"),
    [
        (0, {"fingerprint": "other"}, True),  # a run created again, without a request to replace
        (1, {"fingerprint": "other"}, False),  # a Clear requests the rows of the new code
        (0, {"replace": True}, False),
        (1, {"force": True}, False),
        (1, {}, True),
    ],
)
def test_a_lower_clear_number_that_requests_a_replacement_is_refused(
    clear: int, more: dict[str, Any], succeeds: bool
) -> None:
    stored = ledger(entry(0, 1, commit=committed(0, 1, run="mine", clear=2)))
    decision = decide_plan(stored, request("mine", clear), options(0, 1, **more))
    if succeeds:
        assert spans(plan_decision(decision).owned) == [interval(0, 1)]
    else:
        assert decision == RequestSuperseded(by=NEWER, replaces=True)


def test_a_lower_clear_number_with_a_gap_or_a_cut_is_refused() -> None:
    stored = ledger(entry(0, 2, commit=committed(0, 2, run="mine", clear=2)))
    assert decide_plan(stored, AGAIN, options(0, 3)) == RequestSuperseded(by=NEWER)
    cut = decide_plan(stored, AGAIN, options(1, 2, replace=True))
    assert cut == RequestSuperseded(by=NEWER, replaces=True, cuts=stored.entries[0])


@pytest.mark.parametrize(
    ("clear", "more", "succeeds"),
    [
        (0, {}, True),  # a retry, or a run created again, without a request to replace
        (0, {"replace": True}, False),
        (0, {"force": True}, False),
        (1, {}, False),  # a Clear, in a database that counts from 0 again
    ],
)
def test_a_served_request_that_would_replace_by_changed_code_is_refused(
    clear: int, more: dict[str, Any], succeeds: bool
) -> None:
    me = request("mine", clear)
    stored = ledger(entry(0, 1, commit=committed(0, 1, run="mine", clear=clear), served=(me,)))
    decision = decide_plan(stored, me, options(0, 1, fingerprint="other", **more))
    if succeeds:
        assert spans(plan_decision(decision).owned) == [interval(0, 1)]
    else:
        assert decision == RequestSuperseded(by=me, replaces=True)
    # The same code: the same answer as before.
    assert spans(plan_decision(decide_plan(stored, me, options(0, 1, **more))).owned) == [
        interval(0, 1)
    ]


def test_a_replacement_in_progress_is_returned_although_the_code_changed_again() -> None:
    """A deploy between two tries of plan: `stage` compares the code and raises with a hint."""
    pending = granted(0, 1, run="mine", clear=1, generation=2)
    stored = ledger(
        entry(0, 1, grant=pending, commit=committed(0, 1, run="mine", clear=1), served=(AGAIN,))
    )
    decision = plan_decision(decide_plan(stored, AGAIN, options(0, 1, fingerprint="other")))
    assert [h.plan for h in decision.owned] == [pending.plan]


def test_a_retry_is_refused_if_a_released_grant_left_a_gap() -> None:
    """One of two grants was released. Success would hide the gap; a late copy that got a grant would never commit it."""
    stored = ledger(
        entry(0, 1, grant=granted(0, 1, run="mine"), served=(MINE,)),
        entry(1, 2, commit=committed(1, 2)),
    )
    decision = decide_plan(stored, MINE, options(0, 4, cuts=(at(3),)))
    assert decision == RequestSuperseded(by=MINE, gap=interval(2, 3))
    cleared = plan_decision(decide_plan(stored, AGAIN, options(0, 4, cuts=(at(3),))))
    assert spans(cleared.grants) == [interval(0, 1), interval(2, 3), interval(3, 4)]
    refresh = plan_decision(decide_plan(stored, MINE, options(0, 4, selected=frozenset())))
    assert (spans(refresh.owned), refresh.grants) == ([interval(0, 1)], ())


@pytest.mark.parametrize(
    ("fingerprint", "force", "granted_again"),
    [("f1", False, False), ("f2", False, True), ("f1", True, True)],
)
def test_a_clear_replaces_its_own_rows_only_if_something_changed(
    fingerprint: str, force: bool, granted_again: bool
) -> None:
    stored = ledger(entry(0, 1, commit=committed(0, 1, run="mine"), served=(MINE,)))
    decision = plan_decision(
        decide_plan(stored, AGAIN, options(0, 1, fingerprint=fingerprint, force=force))
    )
    assert bool(decision.grants) is granted_again
    assert bool(decision.owned) is not granted_again
    if granted_again:
        assert decision.grants[0].generation == 2
        assert decision.grants[0].before == stored.entries[0]


def test_a_clear_before_the_commit_plans_the_same_interval_again() -> None:
    stored = ledger(entry(0, 1, grant=granted(0, 1, run="mine"), served=(MINE,)))
    decision = plan_decision(decide_plan(stored, AGAIN, options(0, 1)))
    assert spans(decision.grants) == [interval(0, 1)]
    assert decision.grants[0].generation == 2
    assert decision.cancelled == ()


def test_a_pending_replacement_that_is_no_longer_requested_is_cancelled() -> None:
    pending = entry(
        0,
        1,
        grant=granted(0, 1, run="mine", generation=2),
        commit=committed(0, 1, run="mine"),
        served=(MINE,),
    )
    decision = plan_decision(decide_plan(ledger(pending), AGAIN, options(0, 1)))
    assert decision.cancelled == (pending,)
    assert spans(decision.owned) == [interval(0, 1)]
    foreign = replace(pending, committed=committed(0, 1, run="other"))
    decision = plan_decision(decide_plan(ledger(foreign), AGAIN, options(0, 1)))
    assert decision.cancelled == (foreign,)
    assert decision.covered == (foreign,)


def test_replace_takes_every_committed_entry_inside_and_fills_the_gaps() -> None:
    stored = ledger(entry(0, 1, commit=committed(0, 1)), entry(2, 3, commit=committed(2, 3)))
    decision = plan_decision(decide_plan(stored, MINE, options(0, 3, replace=True)))
    assert [(g.interval, g.generation) for g in decision.grants] == [
        (interval(0, 1), 2),
        (interval(1, 2), 1),
        (interval(2, 3), 2),
    ]


def test_replace_also_takes_the_runs_own_commits_although_nothing_changed() -> None:
    """A backfill with mode=replace repeats its runs by a clear: success without a replacement would be false."""
    stored = ledger(entry(0, 1, commit=committed(0, 1, run="mine"), served=(MINE,)))
    decision = plan_decision(decide_plan(stored, AGAIN, options(0, 1, replace=True)))
    assert [(g.interval, g.generation) for g in decision.grants] == [(interval(0, 1), 2)]
    # A retry of the same request gets the same answer.
    pending = granted(0, 1, run="mine", clear=1, generation=2)
    rows = committed(0, 1, run="mine")
    stored = ledger(entry(0, 1, grant=pending, commit=rows, served=(MINE, AGAIN)))
    answer = plan_decision(decide_plan(stored, AGAIN, options(0, 1, replace=True)))
    assert (answer.grants, [h.plan for h in answer.owned]) == ((), [pending.plan])


@pytest.mark.parametrize("run", ["other", "mine"])
def test_a_request_that_cuts_a_committed_entry_is_refused_for_every_run(run: str) -> None:
    stored = ledger(entry(0, 2, commit=committed(0, 2, run=run)))
    assert decide_plan(stored, AGAIN, options(1, 3, replace=True)) == PartialOverlap(
        entry=stored.entries[0]
    )


def test_a_refused_request_withdraws_the_runs_older_grants() -> None:
    stored = ledger(
        entry(0, 2, commit=committed(0, 2)), entry(2, 3, grant=granted(2, 3, run="mine"))
    )
    decision = decide_plan(stored, AGAIN, options(1, 3, replace=True))
    assert decision == PartialOverlap(entry=stored.entries[0], withdrawn=stored.entries[1:])


def test_take_over_cancels_the_whole_foreign_plan() -> None:
    foreign = entry(0, 3, grant=granted(0, 3, generation=4), served=(request("r1"),))
    decision = plan_decision(decide_plan(ledger(foreign), MINE, options(1, 2, take_over=True)))
    assert decision.cancelled == (foreign,)
    assert decision.grants == (
        Grant(interval=interval(1, 2), before=None, generation=5, served=(request("r1"),)),
    )


@pytest.mark.parametrize(("with_replace", "granted_again"), [(False, False), (True, True)])
def test_take_over_of_a_pending_replacement_leaves_the_rows_unless_it_replaces(
    with_replace: bool, granted_again: bool
) -> None:
    pending = entry(0, 1, grant=granted(0, 1, generation=2), commit=committed(0, 1))
    decision = plan_decision(
        decide_plan(ledger(pending), MINE, options(0, 1, take_over=True, replace=with_replace))
    )
    assert decision.cancelled == (pending,)
    assert bool(decision.grants) is granted_again
    assert bool(decision.covered) is not granted_again


# ---------------------------------------------------------------- properties of plan decisions

shapes = st.lists(
    st.tuples(
        st.sampled_from(["gap", "granted", "committed", "both"]),
        st.sampled_from(["mine", "other"]),
        st.sampled_from(["f1", "f2"]),
    ),
    min_size=1,
    max_size=6,
)


def _from_shapes(rows: list[tuple[str, str, str]]) -> Ledger:
    entries = []
    for hour, (shape, run, fingerprint) in enumerate(rows):
        grant = (
            granted(hour, hour + 1, run=run, generation=2) if shape in ("granted", "both") else None
        )
        commit = committed(hour, hour + 1, run=run, fingerprint=fingerprint)
        if shape != "gap":
            entries.append(
                entry(hour, hour + 1, grant=grant, commit=commit if shape != "granted" else None)
            )
    return ledger(*entries)


@given(
    shapes,
    st.tuples(st.integers(0, 5), st.integers(1, 6)).filter(lambda ends: ends[0] < ends[1]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_instant_of_a_request_is_accounted_for_once(
    rows: list[tuple[str, str, str]],
    ends: tuple[int, int],
    replacing: bool,
    force: bool,
    take_over: bool,
) -> None:
    stored = _from_shapes(rows)
    requested = options(*ends, replace=replacing, force=force, take_over=take_over)
    decision = plan_decision(decide_plan(stored, AGAIN, requested))
    intervals = sorted(
        spans(decision.grants)
        + spans(decision.owned)
        + spans(decision.held)
        + spans(decision.covered)
    )
    for left, right in itertools.pairwise(intervals):
        assert left.end == right.start
    assert (intervals[0].start, intervals[-1].end) == (
        requested.interval.start,
        requested.interval.end,
    )
    for grant in decision.grants:
        before = stored.entry(grant.interval)
        assert grant.generation > (before.generation if before else 0)
        assert grant.before == (
            before if before not in decision.cancelled or grant.before else None
        )
    if not take_over:
        foreign = [e for e in stored.entries if e.granted and e.granted.request.run == "other"]
        assert not [e for e in decision.cancelled if e in foreign]
        assert not {g.interval for g in decision.grants} & {e.interval for e in foreign}
    if not replacing:
        others = {
            e.interval for e in stored.entries if e.committed and e.committed.request.run == "other"
        }
        assert not {g.interval for g in decision.grants} & others


# ---------------------------------------------------------------- runs without dates


@pytest.mark.parametrize(
    ("entries", "end", "expected"),
    [
        ((), 5, interval(0, 5)),
        ((entry(0, 2, commit=committed(0, 2)),), 5, interval(2, 5)),
        ((entry(0, 2, grant=granted(0, 2)),), 2, None),
        ((entry(0, 2, grant=granted(0, 2)),), 1, None),
        ((entry(1, 5, commit=committed(1, 5, run="mine")),), 5, interval(1, 5)),
        ((entry(1, 5, grant=granted(1, 5, run="mine")),), 5, interval(1, 5)),
        ((entry(1, 5, grant=granted(1, 5, run="mine")),), 4, interval(1, 5)),
        # A retry gets no more than the run has: no task would stage the rest.
        ((entry(1, 5, grant=granted(1, 5, run="mine")),), 6, interval(1, 5)),
        (
            (entry(1, 5, grant=granted(1, 5, run="mine")), entry(5, 7, commit=committed(5, 7))),
            4,
            interval(1, 5),
        ),
        # Others took a part: the gaps next to it were the run's, and no entry there names the run.
        ((entry(1, 5, commit=committed(1, 5), served=(MINE,)),), 5, interval(0, 5)),
        ((entry(3, 4, commit=committed(3, 4), served=(MINE,)),), 5, interval(0, 5)),
        (
            (
                entry(0, 1, commit=committed(0, 1)),
                entry(3, 4, grant=granted(3, 4), served=(MINE,)),
                entry(7, 8, commit=committed(7, 8)),
            ),
            5,
            interval(1, 5),
        ),
        (
            (
                entry(3, 4, commit=committed(3, 4), served=(MINE,)),
                entry(4, 8, commit=committed(4, 8)),
            ),
            5,
            interval(0, 4),
        ),
    ],
)
def test_a_run_without_dates_starts_at_the_end_of_the_ledger(
    entries: Any, end: int, expected: Any
) -> None:
    assert open_interval(ledger(*entries), MINE, end=at(end), first=at(0)) == expected


@pytest.mark.parametrize(("end", "expected"), [(4, interval(1, 5)), (6, interval(1, 6))])
def test_a_cleared_run_without_dates_may_get_more_than_it_had(end: int, expected: Any) -> None:
    stored = ledger(entry(1, 5, grant=granted(1, 5, run="mine")))
    assert open_interval(stored, AGAIN, end=at(end), first=at(0)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (entry(1, 2, commit=committed(1, 2)), False),
        (entry(1, 2, commit=committed(1, 2), served=(MINE,)), True),
        (entry(1, 2, commit=committed(1, 2, run="mine")), True),
        (entry(1, 2, grant=granted(1, 2, run="mine")), True),
    ],
)
def test_an_entry_names_a_run_that_was_ever_granted_it(found: Entry, expected: bool) -> None:
    assert names(ledger(found), AGAIN) is expected


# ---------------------------------------------------------------- boundaries

ORIGINS = {"t": (3, 0)}


def test_only_boundaries_outside_the_ledger_are_missing() -> None:
    stored = ledger(entry(0, 1, commit=committed(0, 1)))
    grants = [Grant(interval=interval(1, 2), before=None, generation=1)]
    assert missing_boundaries(stored, [*grants, *grants]) == (at(2),)


def test_the_search_begins_at_the_left_neighbour_or_the_origin() -> None:
    stored = Ledger((), {})
    assert floors(stored, at(1), ORIGINS) == {"t": (3, 0)}
    stored.set_boundary(boundary(0, 7))
    assert floors(stored, at(1), ORIGINS) == {"t": (7, 0)}


@pytest.mark.parametrize(
    ("left", "right", "found", "expected"),
    [
        (None, None, (5, 5), (5, 5)),
        (None, None, (1, 5), (3, 5)),
        ((6, 6), None, (5, 9), (6, 9)),
        (None, (4, 4), (9, 2), (4, 2)),
        ((4, 4), (8, 8), (1, 9), (4, 8)),
        ((4,), (8,), (6, 5), (6, 0)),
    ],
)
def test_a_boundary_is_kept_between_its_neighbours(
    left: Any, right: Any, found: Any, expected: Any
) -> None:
    stored = Ledger((), {})
    for hour, offsets in ((0, left), (2, right)):
        if offsets is not None:
            stored.set_boundary(boundary(hour, *offsets))
    looked_up = {"t": tuple(Position(offset=o) for o in found)}
    boundary_set = clamped(stored, at(1), looked_up, ORIGINS)
    assert tuple(p.offset for p in boundary_set.positions["t"]) == expected


@given(st.permutations(range(6)), st.lists(st.integers(0, 20), min_size=6, max_size=6))
def test_boundaries_are_monotone_in_every_order_of_setting_them(
    order: list[int], found: list[int]
) -> None:
    stored = Ledger((), {})
    for hour in order:
        boundary_set = clamped(
            stored, at(hour), {"t": (Position(offset=found[hour]),)}, {"t": (2,)}
        )
        stored.set_boundary(boundary_set)
    offsets = [b.position("t", 0, {"t": (2,)}).offset for b in stored.boundaries]
    assert offsets == sorted(offsets)
    assert offsets[0] >= 2


# ---------------------------------------------------------------- commits


def _root(**changes: Any) -> Any:
    tables = {
        "flights": RootTable(uuid=uuid(7), metadata=None, columns=COLUMNS, partition_by=()),
    }
    return replace(SAMPLE_ROOT, tables=tables, **changes)


def _granted_entry() -> Entry:
    slot = replace(granted(0, 1, generation=2), plan=SAMPLE_PLAN.key)
    return entry(0, 1, grant=slot)


def test_the_granted_plan_is_published() -> None:
    assert decide_commit(_root(), _granted_entry(), SAMPLE_PLAN) == Publish(before=_granted_entry())


def test_the_committed_plan_is_already_committed() -> None:
    stored = entry(0, 1, commit=replace(committed(0, 1, generation=2), plan=SAMPLE_PLAN.key))
    assert decide_commit(_root(), stored, SAMPLE_PLAN) == AlreadyCommitted(generation=2)


def test_a_plan_that_was_replaced_since_is_already_committed() -> None:
    stored = entry(0, 1, commit=committed(0, 1, generation=3))
    decision = decide_commit(
        _root(), stored, SAMPLE_PLAN, earlier_plans=frozenset([SAMPLE_PLAN.key])
    )
    assert decision == AlreadyCommitted(generation=2, replaced_by=3)


@pytest.mark.parametrize(
    ("stored", "holder"),
    [
        (None, None),
        (entry(0, 1, grant=granted(0, 1, run="other", generation=3)), request("other")),
        (entry(0, 1, commit=committed(0, 1, run="other", generation=3)), request("other")),
    ],
)
def test_a_plan_without_its_grant_is_refused(stored: Any, holder: Any) -> None:
    assert decide_commit(_root(), stored, SAMPLE_PLAN) == GrantLost(holder=holder)


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        ({}, "nothing"),
        ({"flights": RootTopic(topic_id="topic-2", cluster_id="cluster-1", origins=())}, "topic-2"),
        ({"flights": RootTopic(topic_id="topic-1", cluster_id="other", origins=())}, "other"),
    ],
)
def test_another_topic_or_cluster_is_an_identity_error(topics: Any, found: str) -> None:
    decision = decide_commit(_root(topics=topics), _granted_entry(), SAMPLE_PLAN)
    assert isinstance(decision, IdentityDiffers)
    assert decision.what == "topic flights"
    assert found in decision.found


@pytest.mark.parametrize("number", [None, 8])
def test_another_table_is_an_identity_error(number: int | None) -> None:
    root = _root()
    tables = (
        {} if number is None else {"flights": replace(root.tables["flights"], uuid=uuid(number))}
    )
    decision = decide_commit(replace(root, tables=tables), _granted_entry(), SAMPLE_PLAN)
    assert isinstance(decision, IdentityDiffers)
    assert decision.what == "table flights"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ((COLUMNS[0],), "no column with that id"),
        ((COLUMNS[0], TableColumn(id=2, name="delay", type="long", required=False)), "delay long"),
        ((COLUMNS[0], TableColumn(id=2, name="other", type="int", required=False)), "other int"),
    ],
)
def test_an_id_with_another_meaning_is_a_schema_error(columns: Any, found: str) -> None:
    root = _root()
    tables = {"flights": replace(root.tables["flights"], columns=columns)}
    decision = decide_commit(replace(root, tables=tables), _granted_entry(), SAMPLE_PLAN)
    assert decision == ColumnsDiffer(table="flights", planned="delay int (id 2)", found=found)


def test_another_partitioning_is_a_schema_error() -> None:
    """Day and hour are both whole numbers: no check of the files themselves would see the difference."""
    root = _root()
    tables = {"flights": replace(root.tables["flights"], partition_by=("day(at)",))}
    decision = decide_commit(replace(root, tables=tables), _granted_entry(), SAMPLE_PLAN)
    assert decision == PartitioningDiffers(table="flights", planned=(), found=("day(at)",))


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        ({"columns": (COLUMNS[0], replace(COLUMNS[1], type="long"))}, True),
        ({"columns": COLUMNS[:1], "dropped": COLUMNS[1:]}, True),
        ({"partition_by": ("day(at)",)}, True),
        ({"columns": (COLUMNS[0], replace(COLUMNS[1], name="wait"))}, False),
        (
            {
                "columns": (COLUMNS[0], replace(COLUMNS[1], name="wait")),
                "former_names": (FormerName(id=2, name="delay"),),
            },
            True,
        ),
    ],
)
def test_a_committed_plan_agrees_with_what_its_columns_became(changed: Any, is_same: bool) -> None:
    root = _root()
    tables = {"flights": replace(root.tables["flights"], **changed)}
    now = replace(root, tables=tables)
    assert (differs_from_root(now, SAMPLE_PLAN, is_committed=True) is None) is is_same
    assert differs_from_root(now, SAMPLE_PLAN) is not None


def test_a_boundary_may_have_no_topics() -> None:
    assert isinstance(clamped(Ledger((), {}), at(0), {}, {}), Boundary)
