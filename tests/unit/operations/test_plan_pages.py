"""Planning over a ledger with one boundary per page: entries that overlap the request are read completely."""

from __future__ import annotations

from support.small_lake import SmallLake, days
from tallystick.lake import Lake


def test_a_take_over_cancels_a_grant_that_reaches_far_beyond_its_request() -> None:
    small = SmallLake()
    small.lake = Lake(small.store, small.runtime, proven=True, page_bytes_max=1)
    small.plan(days(2, 3), run="first")
    small.run(days(1, 6), run="second", take_over=True)
    small.plan(days(1, 6), run="third", mode="replace")
    assert len(small.root()["pages"]) == 4
    planned = small.plan(days(1, 2), run="fourth", take_over=True)
    assert [interval for interval, _ in planned.cancelled] == [days(1, 6)]
    (entry,) = small.lake.load_existing().whole_ledger().entries
    assert entry.granted is None
    assert entry.committed is not None
    assert entry.committed.request.run == "second"
