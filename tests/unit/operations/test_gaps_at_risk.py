"""The gaps that a plan task warns of: those near the time at which topics drop records, from a few pages only."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta

import pytest

from support.small_lake import NOW, TOPIC, SmallLake, adopted, day, days, refill
from tallystick.errors import StoreUnavailable
from tallystick.format.interval import Interval
from tallystick.kafka.wire import TopicRetention
from tallystick.lake import Lake
from tallystick.operations.gaps_at_risk import gaps_at_risk, gaps_in

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAY_2 = day(2)


def made(*committed: tuple[int, int], dag: str = "small") -> SmallLake:
    """Return a lake in which these days are committed, of a log that has records on days 1 to 4 and 6."""
    small = SmallLake()
    for first, last in committed:
        small.run(days(first, last))
    return small


def keep(small: SmallLake, left: timedelta, *, of: datetime = DAY_2, **more: int) -> None:
    """Let the topic keep records so long that those of `of` have this time left."""
    kept_ms = round((NOW - of + left) / timedelta(milliseconds=1))
    small.log.topics[TOPIC].kept = TopicRetention(kept_ms=kept_ms, **more)


def found(small: SmallLake) -> list[tuple[datetime, datetime | None, timedelta | None, int]]:
    at_risk = gaps_at_risk(small.lake, small.log.described, dag="mine")
    return [(one.span.start, one.span.end, one.left, one.gone) for one in at_risk]


def test_a_gap_with_little_time_is_found_with_the_trigger_that_fills_it() -> None:
    small = made((1, 2), (4, 5))
    keep(small, 5 * HOUR)
    (one,) = gaps_at_risk(small.lake, small.log.described, dag="mine")
    assert (one.span.start, one.span.end, one.left) == (day(2), day(4), 5 * HOUR)
    assert one.span.command[:5] == ("airflow", "dags", "trigger", "mine", "--conf")
    assert json.loads(one.span.command[5]) == {
        "from": "2013-01-02T00:00:00Z",
        "to": "2013-01-04T00:00:00Z",
    }


def test_a_gap_with_time_is_not_found() -> None:
    small = made((1, 2), (4, 5))
    keep(small, 4000 * DAY)
    assert found(small) == []


def test_a_gap_of_which_the_log_has_nothing_left_is_not_repeated_in_each_run() -> None:
    small = made((1, 2), (3, 4))
    keep(small, 5 * HOUR)
    assert [gone for *_, gone in found(small)] == [0]
    for partition, ends in enumerate(p.end for p in small.log.topics[TOPIC].partitions):
        small.log.expire(TOPIC, partition, before=ends)
    assert found(small) == []


def test_what_is_gone_of_a_gap_is_counted() -> None:
    small = made((1, 2), (3, 4))
    keep(small, 5 * HOUR)
    small.log.expire(TOPIC, 0, before=5)  # day 2 begins at offset 3
    assert [(at, gone) for at, _, _, gone in found(small)] == [(day(2), 2)]


@pytest.mark.parametrize(
    "kept",
    [None, TopicRetention(), TopicRetention(kept_bytes=1), TopicRetention(kept_ms=2 * 10**13)],
)
def test_without_an_end_of_retention_nothing_is_found(kept: TopicRetention | None) -> None:
    small = made((1, 2), (3, 4))
    small.log.topics[TOPIC].kept = kept
    assert found(small) == []


def test_without_a_described_topic_the_lake_is_not_read() -> None:
    small = made((1, 2), (3, 4))
    small.lake.store.delete(["root.json"])
    assert gaps_at_risk(small.lake, {}, dag="mine") == ()


def test_grants_and_the_ledgers_end_are_no_gaps() -> None:
    small = made((1, 2))
    small.plan(days(2, 3))
    small.run(days(3, 4))
    keep(small, 5 * HOUR, of=day(3))
    assert found(small) == []


def test_only_a_gap_that_has_records_to_keep_is_found() -> None:
    small = made((1, 2), (3, 5), (6, 7))
    keep(
        small, HOUR, of=day(5)
    )  # day 5 has no offset; day 2 is dropped already, as far as the clock shows
    assert found(small) == []


def test_several_gaps_come_with_the_least_time_first() -> None:
    small = made((1, 2), (3, 4), (6, 7))
    keep(small, 5 * HOUR)
    assert [(at, left) for at, _, left, _ in found(small)] == [
        (day(2), 5 * HOUR),
        (day(4), 2 * DAY + 5 * HOUR),
    ]


def test_a_gap_is_split_at_an_adoption_and_only_the_open_topic_counts() -> None:
    small = made((1, 2), (3, 4))
    refill(small, 4, 7)
    adopted(small)
    small.run(days(6, 7))
    keep(small, HOUR, of=day(4))
    assert [(at, left) for at, _, left, _ in found(small)] == [(day(4), HOUR)]


def test_size_is_part_of_the_outlook() -> None:
    small = made((1, 2), (3, 4))
    keep(small, 5 * HOUR, kept_bytes=1000)
    (one,) = gaps_at_risk(small.lake, small.log.described, dag="mine")
    assert one.by_size


def test_the_errors_of_the_lake_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    small = made((1, 2), (3, 4))
    keep(small, 5 * HOUR)

    def fail(_: str) -> None:
        raise StoreUnavailable("no answer.", hint="wait.")

    monkeypatch.setattr(small.lake.store, "get", fail)
    with pytest.raises(StoreUnavailable):
        found(small)


# ---------------------------------------------------------------- pages


def long_ledger() -> SmallLake:
    """Return a lake of half-hours, in pages of a few entries, of which each third half-hour of day 1 to 4 is a gap."""
    small = SmallLake()
    small.lake = Lake(small.store, small.runtime, proven=True, page_bytes_max=3000)
    for number in range(4 * 48):
        if number % 3:
            start = day(1) + number * HOUR / 2
            small.run(Interval(start=start, end=start + HOUR / 2))
    return small


def expected(small: SmallLake, window: Interval) -> list[tuple[datetime, datetime]]:
    """Return the gaps that overlap a window, from the whole ledger."""
    entries = small.lake.load_existing().whole_ledger().entries
    pairs = itertools.pairwise(entries)
    spans = [
        (a.interval.end, b.interval.start) for a, b in pairs if a.interval.end < b.interval.start
    ]
    return [(a, b) for a, b in spans if a < window.end and b > window.start]


def test_a_window_has_the_gaps_of_the_whole_ledger_and_loads_few_pages() -> None:
    small = long_ledger()
    pages = small.lake.load_existing().root.pages
    assert len(pages) > 20
    for hours in range(0, 96, 5):
        window = Interval(start=day(1) + hours * HOUR, end=day(1) + (hours + 2) * HOUR)
        lake = Lake(small.store, small.runtime, proven=True)
        spans = gaps_in(lake.load_existing(), window, dag="mine")
        inside = [(s.start, s.end) for s in spans]
        assert set(expected(small, window)) <= set(inside), window
        # Those between a boundary next to the window and the window itself may be there, and no others.
        around = Interval(start=window.start - HOUR, end=window.end + HOUR)
        assert set(inside) <= set(expected(small, around)), window
        assert len(lake._pages) <= 8


def test_a_window_before_and_after_the_ledger_has_no_gaps() -> None:
    small = made((3, 4), (5, 6))
    snapshot = small.lake.load_existing()
    assert gaps_in(snapshot, days(1, 2), dag="mine") == ()
    assert gaps_in(snapshot, days(8, 9), dag="mine") == ()
    assert [s.start for s in gaps_in(snapshot, days(1, 9), dag="mine")] == [day(4)]
    empty = SmallLake()
    empty.lake.open("small")
    assert gaps_in(empty.lake.load_existing(), days(1, 9), dag="mine") == ()
