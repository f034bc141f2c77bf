"""The coverage algebra, compared with plain sets of integers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.format.offsets import Coverage, OffsetRange, Position, tile

ranges = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(
    lambda ends: OffsetRange(start=min(ends), end=max(ends))
)
coverages = st.lists(ranges, max_size=6).map(Coverage.of)


def as_set(coverage: Coverage) -> set[int]:
    return {offset for r in coverage for offset in range(r.start, r.end)}


@given(st.lists(ranges, max_size=6), st.randoms(use_true_random=False))
def test_coverage_is_the_same_in_any_order(rs: list[OffsetRange], rnd: object) -> None:
    shuffled = list(rs)
    rnd.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Coverage.of(rs) == Coverage.of(shuffled)
    assert as_set(Coverage.of(rs)) == {o for r in rs for o in range(r.start, r.end)}
    assert Coverage.of(rs).length == len(as_set(Coverage.of(rs)))


@given(coverages, coverages)
def test_union_subtract_and_intersect_are_those_of_sets(a: Coverage, b: Coverage) -> None:
    assert as_set(a.union(b)) == as_set(a) | as_set(b)
    assert as_set(a.subtract(b)) == as_set(a) - as_set(b)
    assert as_set(a.intersect(b)) == as_set(a) & as_set(b)
    assert a.union(b) == b.union(a)
    assert a.subtract(b).union(a.intersect(b)) == a


@given(coverages, st.integers(0, 31))
def test_membership_is_that_of_the_set(coverage: Coverage, offset: int) -> None:
    assert (offset in coverage) == (offset in as_set(coverage))


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=9, unique=True),
    st.randoms(use_true_random=False),
)
def test_the_pieces_of_a_range_tile_it_in_any_order(cuts: list[int], rnd: object) -> None:
    cuts.sort()
    pieces = [OffsetRange(start=a, end=b) for a, b in itertools.pairwise(cuts)]
    whole = OffsetRange(start=cuts[0], end=cuts[-1])
    rnd.shuffle(pieces)  # type: ignore[attr-defined]
    assert tile(pieces) == whole
    assert Coverage.of(pieces).tiles(whole)
    if len(pieces) > 2:
        inner = sorted(pieces)[1]
        with pytest.raises(ValueError, match="a gap"):
            tile([p for p in pieces if p != inner])
        with pytest.raises(ValueError, match="an overlap"):
            tile([*pieces, inner])
        assert not Coverage.of(p for p in pieces if p != inner).tiles(whole)


def test_tiling_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least one range"):
        tile([])


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (2, 1), (0, 2**63)])
def test_an_inverted_or_oversized_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="expected an offset range"):
        OffsetRange(start=start, end=end)


@pytest.mark.parametrize(("offset", "epoch"), [(-1, 0), (2**63, 0), (0, -2)])
def test_an_impossible_position_is_refused(offset: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Position(offset=offset, leader_epoch=epoch)


def test_a_coverage_built_by_hand_checks_itself() -> None:
    first, second = OffsetRange(start=0, end=2), OffsetRange(start=2, end=3)
    with pytest.raises(ValueError, match="touch or overlap"):
        Coverage((first, second))
    with pytest.raises(ValueError, match="without empty ranges"):
        Coverage((OffsetRange(start=1, end=1),))


def test_a_range_covers_the_ranges_inside_it_and_empty_ones() -> None:
    whole = OffsetRange(start=2, end=6)
    assert whole.covers(OffsetRange(start=2, end=6))
    assert whole.covers(OffsetRange(start=9, end=9))
    assert not whole.covers(OffsetRange(start=1, end=3))
    assert not whole.covers(OffsetRange(start=5, end=7))
    assert str(whole) == "[2, 6)"
    assert whole.length == 4
