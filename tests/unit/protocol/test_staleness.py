"""An interval is stale exactly where what its job saw of earlier time is not what the ledger holds now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.format.interval import Interval
from tallystick.format.lookback import LookbackUsed, UsedInterval
from tallystick.format.page import Entry
from tallystick.protocol.staleness import lookback_used, stale, to_refresh
from unit.format.samples import at, committed, entry, granted, interval

HOURS = 8
ALL = interval(0, 9)


def held(first: float, last: float, records: int, code: str = "f1") -> Entry:
    """A committed interval."""
    return entry(first, last, commit=committed(first, last, fingerprint=code, records=records))


def gone(one: Entry) -> Entry:
    """That interval, of which an operator accepted a loss."""
    assert one.committed is not None
    totals = replace(one.committed.totals, lost=3)
    return replace(one, committed=replace(one.committed, totals=totals))


def looking(lookback: LookbackUsed, first: float = HOURS, last: float = HOURS + 1) -> Entry:
    """A committed interval whose job looked back."""
    return entry(first, last, commit=replace(committed(first, last), lookback=lookback))


def seen(first: float, last: float, records: int, code: str = "f1") -> UsedInterval:
    """A stretch that was looked at."""
    return UsedInterval(interval=interval(first, last), fingerprint=code, records=records)


def cause(lookback: LookbackUsed, *earlier: Entry) -> str | None:
    """What makes [8, 9) stale, in hours."""
    one = looking(lookback)
    found = stale([*earlier, one])
    assert set(found) <= {one.interval}
    why = found.get(one.interval)
    if why is None:
        return None
    return "-".join(str(round((t - at(0)).total_seconds() / 3600)) for t in (why.start, why.end))


CASES: dict[str, tuple[Sequence[UsedInterval], Sequence[Entry], str | None]] = {
    "nothing there, nothing seen": ((), (), None),
    "nothing of what was read in Kafka is committed": ((seen(3, 4, 5),), (held(0, 1, 0),), None),
    "as it was": ((seen(0, 2, 5),), (held(0, 1, 2), held(1, 2, 3)), None),
    "a gap was committed since": ((seen(0, 1, 2),), (held(0, 1, 2), held(1, 2, 3)), "1-2"),
    "a gap was committed, and has no record": (
        (seen(0, 1, 2),),
        (held(0, 1, 2), held(1, 2, 0)),
        None,
    ),
    "what was read in Kafka is committed": ((seen(0, 8, 5),), (held(3, 4, 5),), None),
    "all of what was read in Kafka is committed": ((seen(3, 4, 5),), (held(3, 4, 5),), None),
    "with fewer records": ((seen(3, 4, 5),), (held(3, 4, 4),), "3-4"),
    "with none": ((seen(3, 4, 5),), (held(3, 4, 0),), "3-4"),
    "with none, and a part is not committed": ((seen(3, 5, 5),), (held(3, 4, 0),), None),
    "by other code": ((seen(3, 4, 5),), (held(3, 4, 5, "f2"),), "3-4"),
    "by other code in part": ((seen(0, 4, 5),), (held(1, 2, 2), held(3, 4, 5, "f2")), "0-4"),
    "by other code, then by this one": (
        (seen(0, 4, 7),),
        (held(0, 2, 2, "f2"), held(2, 4, 5)),
        "0-4",
    ),
    "other code found no record": (
        (seen(0, 4, 5),),
        (held(0, 2, 0, "f2"), held(2, 4, 5)),
        None,
    ),
    "other code found no record, after one that did": (
        (seen(2, 4, 5),),
        (held(0, 2, 3, "f2"), held(2, 3, 0, "f3"), held(3, 4, 5)),
        "0-2",
    ),
    "cut otherwise": ((seen(0, 4, 5),), (held(0, 1, 1), held(1, 4, 4)), None),
    "an interval reaches over the look back's beginning": (
        (seen(0, 4, 5),),
        (held(-2, 1, 9), held(1, 4, 4)),
        None,
    ),
    "it reaches over, and some of it is gone since": (
        (seen(0, 4, 5),),
        (gone(held(-2, 1, 9)), held(1, 4, 4)),
        "0-4",
    ),
    "all of what was read in Kafka went before it was committed": (
        (seen(3, 4, 5),),
        (gone(held(2, 4, 0)),),
        "3-4",
    ),
    "it reaches over and was not seen": ((seen(1, 4, 4),), (held(-2, 1, 9), held(1, 4, 4)), "-2-1"),
    "what is earlier than that does not matter": (
        (seen(0, 4, 4),),
        (held(-3, -1, 9, "f2"), held(0, 4, 4)),
        None,
    ),
    "codes that differ, each as seen": (
        (seen(0, 2, 2, "f2"), seen(2, 4, 4)),
        (held(0, 2, 2, "f2"), held(2, 4, 4)),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_interval_is_stale_where_it_saw_something_else(name: str) -> None:
    parts, earlier, why = CASES[name]
    assert cause(LookbackUsed(since=at(0), seen=tuple(parts)), *earlier) == why


def test_what_is_granted_and_not_committed_makes_nothing_stale() -> None:
    lookback = LookbackUsed(since=at(0))
    assert cause(lookback, entry(0, 1, grant=granted(0, 1))) is None
    assert not stale([held(0, 1, 5), held(1, 2, 5)])


def test_what_comes_later_makes_nothing_stale() -> None:
    one = looking(lookback_used(at(0), [seen(0, 1, 5)]), 1, 2)
    assert not stale([held(0, 1, 5), one, held(2, 3, 9, "f2")])


@pytest.mark.parametrize(
    ("since", "parts", "said"),
    [
        (0, [seen(0, 2, 1), seen(1, 3, 1)], "does not overlap"),
        (2, [seen(0, 2, 1)], "saw earlier time"),
    ],
)
def test_what_contradicts_itself_is_refused(
    since: float, parts: list[UsedInterval], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        LookbackUsed(since=at(since), seen=tuple(parts))


def test_a_stretch_has_no_fewer_than_no_records() -> None:
    with pytest.raises(ValueError, match="-1 records"):
        seen(0, 1, -1)


def test_neighbours_of_one_code_are_one_stretch_but_what_was_read_stands_by_itself() -> None:
    there = [seen(2, 3, 1), seen(0, 1, 2), seen(1, 2, 3), seen(4, 5, 4)]
    lookback = lookback_used(at(0), there, [seen(3, 4, 9)])
    assert lookback.seen == (seen(0, 3, 6), seen(3, 4, 9), seen(4, 5, 4))


# ---------------------------------------------------------------- against a reference that goes hour by hour

ledgers = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from(["f1", "f2"])),
    min_size=HOURS,
    max_size=HOURS,
)


def _entries(hours: Sequence[tuple[bool, int, str]], joined: Sequence[bool]) -> list[Entry]:
    """Committed intervals: those hours that are there, neighbours joined where they say so and are of one code."""
    found: list[list[Any]] = []
    for hour, (there, records, code) in enumerate(hours):
        if not there:
            continue
        last = found[-1] if found else None
        if last and last[1] == hour and last[3] == code and joined[hour]:
            last[1:3] = [hour + 1, last[2] + records]
        else:
            found.append([hour, hour + 1, records, code])
    return [held(*one) for one in found]


def _looked(entries: Sequence[Entry], since: int) -> LookbackUsed:
    """What a job that reads committed rows alone sees of a ledger."""
    parts = []
    for one in entries:
        assert one.committed is not None
        if one.interval.end > at(since):
            records, code = one.committed.totals.records, one.committed.fingerprint
            parts.append(UsedInterval(interval=one.interval, fingerprint=code, records=records))
    return lookback_used(at(since), parts)


@given(ledgers, ledgers, st.integers(0, HOURS - 1))
def test_a_look_back_holds_as_long_as_every_hour_with_a_record_is_as_it_was(
    was: Sequence[tuple[bool, int, str]], now: Sequence[tuple[bool, int, str]], since: int
) -> None:
    """Hours are committed one by one here: then the answer is that of comparing them one by one, as sums allow."""
    alone = [False] * HOURS
    # What was committed stays so.
    later = [(a[0] or b[0], *b[1:]) for a, b in zip(was, now, strict=True)]
    lookback = _looked(_entries(was, alone), since)
    verdict = cause(lookback, *_entries(later, alone))
    pairs = list(zip(was, later, strict=True))
    if any(now[0] and now[1] and not before[0] for before, now in pairs[since:]):
        assert verdict is not None
    elif all(before[1:] == now[1:] for before, now in pairs if before[0]):
        assert verdict is None
    if verdict is None:
        for stretch in lookback.seen:
            # Within a stretch of one code the records are compared as a sum.
            inside = [
                (e.committed.totals.records, e.committed.fingerprint)
                for e in _entries(later, alone)
                if e.committed and stretch.interval.covers(e.interval)
            ]
            assert sum(n for n, _ in inside) == stretch.records
            assert {code for n, code in inside if n} <= {stretch.fingerprint}


@given(ledgers, st.lists(st.booleans(), min_size=HOURS, max_size=HOURS), st.integers(0, HOURS - 1))
def test_how_time_was_cut_does_not_matter(
    hours: Sequence[tuple[bool, int, str]], joined: Sequence[bool], since: int
) -> None:
    lookback = _looked(_entries(hours, [False] * HOURS), since)
    first = [e for e in _entries(hours, joined) if e.interval.start < at(since) < e.interval.end]
    if not first:
        assert cause(lookback, *_entries(hours, joined)) is None


# ---------------------------------------------------------------- what one run has to replace


def test_nothing_is_to_be_refreshed_where_nothing_is_stale() -> None:
    lookback = lookback_used(at(0), [seen(0, 1, 5)])
    there = [held(0, 1, 5), looking(lookback, 1, 2), entry(2, 3, grant=granted(2, 3))]
    assert to_refresh(there, "f2", ALL) == frozenset()


def test_a_refresh_by_the_same_code_replaces_what_is_stale_alone() -> None:
    missed = looking(lookback_used(at(0), []), 1, 2)
    after = looking(lookback_used(at(1), [seen(1, 2, 1)]), 2, 3)
    assert to_refresh([held(0, 1, 5), missed, after], "f1", ALL) == {missed.interval}


def test_a_refresh_by_new_code_replaces_what_it_will_make_stale_too() -> None:
    missed = looking(lookback_used(at(0), []), 1, 2)
    after = looking(lookback_used(at(1), [seen(1, 2, 1)]), 2, 3)
    last = looking(lookback_used(at(2), [seen(2, 3, 1)]), 3, 4)
    alone = looking(lookback_used(at(4), []), 4, 5)
    there = [held(0, 1, 5), missed, after, last, alone]
    assert to_refresh(there, "f2", ALL) == {missed.interval, after.interval, last.interval}
    # What cannot be replaced stays as it is: it makes nothing stale.
    asked: list[Interval] = []

    def can(one: Interval) -> bool:
        asked.append(one)
        return one != after.interval

    assert to_refresh(there, "f2", ALL, can) == {missed.interval}
    assert asked == [missed.interval, after.interval]
    # What is not replaced by this run changes nothing for others.
    assert to_refresh(there, "f2", interval(2, 9)) == frozenset()
    assert to_refresh(there, "f2", interval(0, 3)) == {missed.interval, after.interval}
