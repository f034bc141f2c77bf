"""An interval is stale exactly if its lookback differs from what the ledger records now."""

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


def commit(first: float, last: float, records: int, code: str = "f1") -> Entry:
    """Return a committed interval."""
    return entry(first, last, commit=committed(first, last, fingerprint=code, records=records))


def with_loss(before: Entry) -> Entry:
    """Return the interval with a loss that an operator accepted."""
    assert before.committed is not None
    totals = replace(before.committed.totals, lost=3)
    return replace(before, committed=replace(before.committed, totals=totals))


def with_lookback(lookback: LookbackUsed, first: float = HOURS, last: float = HOURS + 1) -> Entry:
    """Return a committed interval with this lookback."""
    return entry(first, last, commit=replace(committed(first, last), lookback=lookback))


def used(first: float, last: float, records: int, code: str = "f1") -> UsedInterval:
    """Return an interval as the lookback recorded it."""
    return UsedInterval(interval=interval(first, last), fingerprint=code, records=records)


def cause(lookback: LookbackUsed, *before: Entry) -> str | None:
    """Return the hours that make [8, 9) stale, or None."""
    reader = with_lookback(lookback)
    found = stale([*before, reader])
    assert set(found) <= {reader.interval}
    why = found.get(reader.interval)
    if why is None:
        return None
    return "-".join(str(round((t - at(0)).total_seconds() / 3600)) for t in (why.start, why.end))


CASES: dict[str, tuple[Sequence[UsedInterval], Sequence[Entry], str | None]] = {
    "no commit, empty lookback": ((), (), None),
    "nothing of what was read from Kafka is committed": (
        (used(3, 4, 5),),
        (commit(0, 1, 0),),
        None,
    ),
    "unchanged": ((used(0, 2, 5),), (commit(0, 1, 2), commit(1, 2, 3)), None),
    "a gap was committed since": ((used(0, 1, 2),), (commit(0, 1, 2), commit(1, 2, 3)), "1-2"),
    "a gap was committed, and has no record": (
        (used(0, 1, 2),),
        (commit(0, 1, 2), commit(1, 2, 0)),
        None,
    ),
    "what was read from Kafka is committed": ((used(0, 8, 5),), (commit(3, 4, 5),), None),
    "all that was read from Kafka is committed": ((used(3, 4, 5),), (commit(3, 4, 5),), None),
    "with fewer records": ((used(3, 4, 5),), (commit(3, 4, 4),), "3-4"),
    "with none": ((used(3, 4, 5),), (commit(3, 4, 0),), "3-4"),
    "with none, and a part is not committed": ((used(3, 5, 5),), (commit(3, 4, 0),), None),
    "by other code": ((used(3, 4, 5),), (commit(3, 4, 5, "f2"),), "3-4"),
    "by other code in part": ((used(0, 4, 5),), (commit(1, 2, 2), commit(3, 4, 5, "f2")), "0-4"),
    "by other code, then by this one": (
        (used(0, 4, 7),),
        (commit(0, 2, 2, "f2"), commit(2, 4, 5)),
        "0-4",
    ),
    "other code found no record": (
        (used(0, 4, 5),),
        (commit(0, 2, 0, "f2"), commit(2, 4, 5)),
        None,
    ),
    "other code found no record, after one that did": (
        (used(2, 4, 5),),
        (commit(0, 2, 3, "f2"), commit(2, 3, 0, "f3"), commit(3, 4, 5)),
        "0-2",
    ),
    "divided differently": ((used(0, 4, 5),), (commit(0, 1, 1), commit(1, 4, 4)), None),
    "an interval crosses the start of the lookback": (
        (used(0, 4, 5),),
        (commit(-2, 1, 9), commit(1, 4, 4)),
        None,
    ),
    "it crosses the start, and some of it was lost since": (
        (used(0, 4, 5),),
        (with_loss(commit(-2, 1, 9)), commit(1, 4, 4)),
        "0-4",
    ),
    "all that was read from Kafka was lost before the commit": (
        (used(3, 4, 5),),
        (with_loss(commit(2, 4, 0)),),
        "3-4",
    ),
    "it crosses the start and was not recorded": (
        (used(1, 4, 4),),
        (commit(-2, 1, 9), commit(1, 4, 4)),
        "-2-1",
    ),
    "intervals before the lookback do not matter": (
        (used(0, 4, 4),),
        (commit(-3, -1, 9, "f2"), commit(0, 4, 4)),
        None,
    ),
    "different code, each as recorded": (
        (used(0, 2, 2, "f2"), used(2, 4, 4)),
        (commit(0, 2, 2, "f2"), commit(2, 4, 4)),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_interval_is_stale_if_its_lookback_changed(name: str) -> None:
    parts, before, why = CASES[name]
    assert cause(LookbackUsed(since=at(0), seen=tuple(parts)), *before) == why


def test_a_grant_without_a_commit_makes_nothing_stale() -> None:
    lookback = LookbackUsed(since=at(0))
    assert cause(lookback, entry(0, 1, grant=granted(0, 1))) is None
    assert not stale([commit(0, 1, 5), commit(1, 2, 5)])


def test_a_later_interval_makes_nothing_stale() -> None:
    reader = with_lookback(lookback_used(at(0), [used(0, 1, 5)]), 1, 2)
    assert not stale([commit(0, 1, 5), reader, commit(2, 3, 9, "f2")])


@pytest.mark.parametrize(
    ("since", "parts", "problem"),
    [
        (0, [used(0, 2, 1), used(1, 3, 1)], "without overlap"),
        (2, [used(0, 2, 1)], "found an earlier one"),
    ],
)
def test_a_contradictory_lookback_is_refused(
    since: float, parts: list[UsedInterval], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        LookbackUsed(since=at(since), seen=tuple(parts))


def test_a_negative_number_of_records_is_refused() -> None:
    with pytest.raises(ValueError, match="found -1"):
        used(0, 1, -1)


def test_neighbours_of_the_same_code_are_merged_except_ranges_read_from_kafka() -> None:
    there = [used(2, 3, 1), used(0, 1, 2), used(1, 2, 3), used(4, 5, 4)]
    lookback = lookback_used(at(0), there, [used(3, 4, 9)])
    assert lookback.seen == (used(0, 3, 6), used(3, 4, 9), used(4, 5, 4))


# ---------------------------------------------------------------- compared with a reference that goes hour by hour

ledgers = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from(["f1", "f2"])),
    min_size=HOURS,
    max_size=HOURS,
)


def _entries(hours: Sequence[tuple[bool, int, str]], joined: Sequence[bool]) -> list[Entry]:
    """Return the hours that exist as committed intervals; neighbours of the same code are joined if `joined` is set."""
    found: list[list[Any]] = []
    for hour, (there, records, code) in enumerate(hours):
        if not there:
            continue
        last = found[-1] if found else None
        if last and last[1] == hour and last[3] == code and joined[hour]:
            last[1:3] = [hour + 1, last[2] + records]
        else:
            found.append([hour, hour + 1, records, code])
    return [commit(*fields) for fields in found]


def _lookback_of(entries: Sequence[Entry], since: int) -> LookbackUsed:
    """Return the lookback of a job that reads only committed rows."""
    parts = []
    for e in entries:
        assert e.committed is not None
        if e.interval.end > at(since):
            records, code = e.committed.totals.records, e.committed.fingerprint
            parts.append(UsedInterval(interval=e.interval, fingerprint=code, records=records))
    return lookback_used(at(since), parts)


@given(ledgers, ledgers, st.integers(0, HOURS - 1))
def test_a_lookback_is_valid_as_long_as_every_hour_with_records_is_unchanged(
    was: Sequence[tuple[bool, int, str]], now: Sequence[tuple[bool, int, str]], since: int
) -> None:
    """Hours are committed separately here: the answer is that of comparing each hour, as far as sums allow."""
    alone = [False] * HOURS
    # A committed hour stays committed.
    later = [(a[0] or b[0], *b[1:]) for a, b in zip(was, now, strict=True)]
    lookback = _lookback_of(_entries(was, alone), since)
    verdict = cause(lookback, *_entries(later, alone))
    pairs = list(zip(was, later, strict=True))
    if any(now[0] and now[1] and not before[0] for before, now in pairs[since:]):
        assert verdict is not None
    elif all(before[1:] == now[1:] for before, now in pairs if before[0]):
        assert verdict is None
    if verdict is None:
        for recorded in lookback.seen:
            # Within a range of the same code the records are compared as a sum.
            inside = [
                (e.committed.totals.records, e.committed.fingerprint)
                for e in _entries(later, alone)
                if e.committed and recorded.interval.covers(e.interval)
            ]
            assert sum(n for n, _ in inside) == recorded.records
            assert {code for n, code in inside if n} <= {recorded.fingerprint}


@given(ledgers, st.lists(st.booleans(), min_size=HOURS, max_size=HOURS), st.integers(0, HOURS - 1))
def test_the_division_into_intervals_does_not_matter(
    hours: Sequence[tuple[bool, int, str]], joined: Sequence[bool], since: int
) -> None:
    lookback = _lookback_of(_entries(hours, [False] * HOURS), since)
    first = [e for e in _entries(hours, joined) if e.interval.start < at(since) < e.interval.end]
    if not first:
        assert cause(lookback, *_entries(hours, joined)) is None


# ---------------------------------------------------------------- what a run has to replace


def test_nothing_is_refreshed_if_nothing_is_stale() -> None:
    lookback = lookback_used(at(0), [used(0, 1, 5)])
    there = [commit(0, 1, 5), with_lookback(lookback, 1, 2), entry(2, 3, grant=granted(2, 3))]
    assert to_refresh(there, "f2", ALL) == frozenset()


def test_a_refresh_by_the_same_code_replaces_only_stale_intervals() -> None:
    missed = with_lookback(lookback_used(at(0), []), 1, 2)
    after = with_lookback(lookback_used(at(1), [used(1, 2, 1)]), 2, 3)
    assert to_refresh([commit(0, 1, 5), missed, after], "f1", ALL) == {missed.interval}


def test_a_refresh_by_new_code_also_replaces_what_becomes_stale() -> None:
    missed = with_lookback(lookback_used(at(0), []), 1, 2)
    after = with_lookback(lookback_used(at(1), [used(1, 2, 1)]), 2, 3)
    last = with_lookback(lookback_used(at(2), [used(2, 3, 1)]), 3, 4)
    alone = with_lookback(lookback_used(at(4), []), 4, 5)
    there = [commit(0, 1, 5), missed, after, last, alone]
    assert to_refresh(there, "f2", ALL) == {missed.interval, after.interval, last.interval}
    # An interval that cannot be replaced stays unchanged and makes nothing stale.
    checked: list[Interval] = []

    def can_replace(stale_interval: Interval) -> bool:
        checked.append(stale_interval)
        return stale_interval != after.interval

    assert to_refresh(there, "f2", ALL, can_replace) == {missed.interval}
    assert checked == [missed.interval, after.interval]
    # An interval that this run does not replace makes nothing stale.
    assert to_refresh(there, "f2", interval(2, 9)) == frozenset()
    assert to_refresh(there, "f2", interval(0, 3)) == {missed.interval, after.interval}
