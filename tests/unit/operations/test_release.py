"""A release withdraws one grant, once; a preview returns what a plan would do and writes nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from support.fakes import stage
from support.small_lake import SmallLake, days, good_lake
from tallystick.errors import InvalidRequest, StoreUnavailable, Superseded
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.lake import Lake
from tallystick.operations.commit import commit
from tallystick.operations.preview import preview
from tallystick.operations.release import release
from tallystick.store import ETag, Outcome
from tallystick_devstack.testing.faults import APPLICABLE, Fault, FaultyStore, Killed, script

DAY_6 = days(6, 7)


def entry_of(small: SmallLake, first: int) -> Entry | None:
    requested = days(first, first + 1)
    return small.lake.load_existing().ledger(requested.start, requested.end).entry(requested)


def test_a_released_gap_is_free_for_others_and_its_plan_cannot_be_committed() -> None:
    small = good_lake()
    (planned,) = small.plan(DAY_6).intervals
    report = stage(small.lake, small.log, planned.plan)
    done = release(small.lake, DAY_6)
    assert (done.plan, done.generation, done.committed) == (planned.plan, 1, False)
    assert done.version == small.lake.load_existing().root.version
    assert entry_of(small, 6) is None
    with pytest.raises(Superseded):
        commit(small.lake, small.tables, plan_key=planned.plan, report_key=report)
    (result,) = small.run(DAY_6, run="other")
    assert not result.already


def test_a_released_replacement_leaves_the_rows() -> None:
    small = good_lake()
    small.job = b"version 3"
    small.plan(days(2, 3), clear=2)
    before = entry_of(small, 2)
    assert before is not None
    done = release(small.lake, days(2, 3))
    assert done.committed
    after = entry_of(small, 2)
    assert after is not None
    assert (after.committed, after.granted) == (before.committed, None)
    assert [p.committed for p in small.plan(days(2, 3), run="other").intervals] == []


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (4, 5, "is not granted to any run"),
        (1, 2, "is not granted to any run"),
        (5, 7, "no grant for exactly"),
    ],
)
def test_an_interval_without_a_grant_is_not_released(first: int, last: int, message: str) -> None:
    small = good_lake()
    version = small.lake.load_existing().root.version
    with pytest.raises(InvalidRequest, match=message):
        release(small.lake, days(first, last))
    assert small.lake.load_existing().root.version == version


@pytest.mark.parametrize("fault", sorted(Fault))
def test_a_release_that_meets_a_fault_at_any_call_is_done_once(fault: Fault) -> None:
    """C9: the next read shows whether the swap was applied."""
    clean = FaultyStore(good_lake().store)
    release(Lake(clean, good_lake().runtime, proven=True), DAY_6)
    for index, call in enumerate(clean.calls):
        if fault not in APPLICABLE[call.verb]:
            continue
        small = good_lake()
        version = small.lake.load_existing().root.version
        before = set(small.keys(""))
        faulty = FaultyStore(small.store, script({index: fault}))
        with contextlib.suppress(Killed, StoreUnavailable):
            assert release(Lake(faulty, small.runtime, proven=True), DAY_6).generation == 1
        # The task runs again: it releases the grant, or finds it released.
        with contextlib.suppress(InvalidRequest):
            release(small.lake, DAY_6)
        while faulty.held:
            faulty.release()
        assert entry_of(small, 6) is None, (fault, index)
        assert small.lake.load_existing().root.version == version + 1, (fault, index)
        assert before <= set(small.keys(""))


def test_a_grant_that_is_committed_first_is_not_reported_as_released() -> None:
    """The swap of the release loses to the commit of the same plan, and must not report that plan as released."""
    small = good_lake()
    (planned,) = small.plan(DAY_6).intervals
    report = stage(small.lake, small.log, planned.plan)

    class CommitsFirst:
        left = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(small.store, name)

        def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
            if self.left:
                self.left = 0
                commit(small.lake, small.tables, plan_key=planned.plan, report_key=report)
            return small.store.replace(key, body, expected=expected)

    store: Any = CommitsFirst()
    with pytest.raises(InvalidRequest, match="is not granted to any run"):
        release(Lake(store, small.runtime, proven=True), DAY_6)
    entry = entry_of(small, 6)
    assert entry is not None
    assert entry.committed is not None
    assert entry.committed.plan == planned.plan


def test_a_preview_lists_every_part_and_writes_nothing() -> None:
    small = good_lake()
    before = {listed.key: listed.etag for listed in small.store.list("")}
    found = preview(small.lake, days(1, 8))
    assert [(keys.instant(p.interval.start)[8:10], p.what) for p in found.parts] == [
        ("01", "stays"),
        ("02", "stays"),
        ("03", "stays"),
        ("04", "plan"),
        ("05", "stays"),
        ("06", "held"),
        ("07", "plan"),
    ]
    assert found.boundaries == 1
    assert {listed.key: listed.etag for listed in small.store.list("")} == before


def test_a_preview_of_a_replacement_and_a_take_over() -> None:
    small = good_lake()
    found = preview(small.lake, days(4, 7), replace=True, take_over=True)
    assert [p.what for p in found.parts] == ["plan", "replace", "cancel", "plan"]
    noon = days(1, 2).start.replace(hour=12)
    half = Interval(start=noon, end=days(1, 2).end)
    with pytest.raises(InvalidRequest, match="splits the committed interval"):
        preview(small.lake, half, replace=True)
