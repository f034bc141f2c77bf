"""When a topic may drop records that no table has: the earliest time, the time left, and what is gone already."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from support.small_lake import NOW, TOPIC, SmallLake, adopted, day, days, good_lake, refill
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from tallystick.operations.lag import read_lag
from tallystick.operations.retention_guard import (
    KeptTopic,
    SpanOutlook,
    endangered,
    left_min,
    length_text,
    outlook_text,
    outlooks,
    span_text,
    time_left,
)
from tallystick.operations.status import UncommittedSpan, read_status

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK = 7 * DAY


def gap(
    days_ago: float = 2, offsets: int = 10, *, topic: str = "events", hours: float = 24
) -> UncommittedSpan:
    """Return a gap that began `days_ago` days ago, with offsets from 100 on in one partition."""
    start = NOW - days_ago * DAY
    filled = offsets > 0
    return UncommittedSpan(
        start=start,
        end=start + hours * HOUR,
        first={topic: (100,)} if filled else {},
        last={topic: (100 + offsets,)} if filled else {},
        command=("airflow", "fill", "it"),
    )


def end(days_ago: float = 2, *topics: str) -> UncommittedSpan:
    names = topics or ("events",)
    first = dict.fromkeys(names, (100,))
    return UncommittedSpan(start=NOW - days_ago * DAY, end=None, first=first, last={})


def keeps(
    kept: timedelta | None = WEEK, *, start: int = 0, stop: int = 500, size: int | None = None
) -> KeptTopic:
    return KeptTopic(kept=kept, kept_bytes=size, starts=(start,), ends=(stop,))


def only(span: UncommittedSpan, topic: KeptTopic, **how: timedelta) -> SpanOutlook:
    (found,) = outlooks([span], {"events": topic}, now=NOW, **how)
    return found


@pytest.mark.parametrize(
    ("span", "topic", "left", "gone", "is_endangered"),
    [
        (gap(2), keeps(WEEK), 5 * DAY, 0, False),
        (gap(6), keeps(WEEK), DAY, 0, True),
        (gap(6), keeps(WEEK, start=100), DAY, 0, True),
        (gap(6), keeps(WEEK, start=103), DAY, 3, True),
        (gap(2), keeps(WEEK, start=101), 5 * DAY, 1, True),
        (gap(2), keeps(WEEK, start=400), 5 * DAY, 10, True),
        (gap(9), keeps(WEEK), -2 * DAY, 0, True),
        (gap(4000), keeps(None), None, 0, False),
        (gap(4000), keeps(None, start=104), None, 4, True),
        (gap(2), KeptTopic(kept=WEEK), 5 * DAY, 0, False),
        (end(2), keeps(WEEK), 5 * DAY, 0, False),
        (end(6.5), keeps(WEEK), DAY / 2, 0, True),
        (end(2), keeps(WEEK, start=130), 5 * DAY, 30, True),
        (end(2), KeptTopic(kept=WEEK), 5 * DAY, 0, False),
    ],
    ids=[
        "a gap with time",
        "a gap with little time",
        "the log begins at the gap",
        "a part of the gap is dropped",
        "dropped early, by a person or by size",
        "the whole gap is dropped",
        "the time is over, nothing is dropped yet",
        "nothing is deleted by age",
        "nothing is deleted by age, and records are gone",
        "the offsets of the log are not known",
        "the end with time",
        "the end with little time",
        "a part of the end is dropped",
        "the end, the offsets of the log are not known",
    ],
)
def test_the_earliest_time_is_the_start_of_the_span_plus_the_retention(
    span: UncommittedSpan,
    topic: KeptTopic,
    left: timedelta | None,
    gone: int,
    is_endangered: bool,
) -> None:
    found = only(span, topic)
    assert (found.left, found.gone, found.endangered) == (left, gone, is_endangered)
    assert found.drops_from == (None if left is None else NOW + left)
    assert bool(endangered([found])) is is_endangered


@pytest.mark.parametrize(
    ("span", "topics"),
    [
        (gap(6, 0), {"events": keeps()}),
        (gap(6), {"other": keeps()}),
        (end(6), {"events": keeps(stop=100)}),
        (end(6), {}),
    ],
    ids=["no offsets", "another topic", "nothing after the ledger", "Kafka was not read"],
)
def test_a_span_without_offsets_of_a_known_topic_needs_nothing(
    span: UncommittedSpan, topics: dict[str, KeptTopic]
) -> None:
    assert outlooks([span], topics, now=NOW) == ()
    assert time_left([span], topics, now=NOW) == {}


def test_no_gap_gives_no_outlook() -> None:
    assert outlooks([], {"events": keeps()}, now=NOW) == ()
    assert time_left([], {"events": keeps()}, now=NOW) == {}


@pytest.mark.parametrize(
    ("kept", "warn_before", "least"),
    [
        (4 * HOUR, DAY, 2 * HOUR),  # half of the retention
        (HOUR, DAY, HOUR),
        (HOUR / 2, DAY, HOUR),
        (2 * DAY, DAY, DAY),
        (3 * DAY, DAY, DAY),
        (8 * DAY, DAY, 2 * DAY),  # a quarter
        (8 * DAY, 3 * DAY, 3 * DAY),
        (8 * DAY, 30 * DAY, 4 * DAY),
        (8 * DAY, timedelta(0), 2 * DAY),
    ],
)
def test_the_warning_comes_at_a_quarter_an_hour_or_the_given_time_at_most_half(
    kept: timedelta, warn_before: timedelta, least: timedelta
) -> None:
    assert left_min(kept, warn_before) == least
    before = (kept - least) / DAY  # so long ago that exactly `least` is left
    at_limit = only(gap(before), keeps(kept), warn_before=warn_before)
    assert not at_limit.near
    late = gap(before)
    late = replace(late, start=late.start - timedelta(milliseconds=1))
    assert only(late, keeps(kept), warn_before=warn_before).near


def test_several_topics_have_their_own_time_and_the_least_comes_first() -> None:
    spans = [
        replace(
            gap(2),
            first={"a": (0,), "b": (0, 5)},
            last={"a": (1,), "b": (0, 9)},
        ),
        end(1, "a", "b", "c"),
    ]
    topics = {
        "a": keeps(4 * DAY),
        "b": KeptTopic(kept=3 * DAY, starts=(0, 7), ends=(100, 100)),
        "c": keeps(None),
    }
    found = outlooks(spans, topics, now=NOW)
    assert [(one.topic, one.left, one.gone) for one in found] == [
        ("b", DAY, 2),
        ("a", 2 * DAY, 0),
        ("b", 2 * DAY, 0),
        ("a", 3 * DAY, 0),
        ("c", None, 0),
    ]
    assert time_left(spans, topics, now=NOW) == {"b": DAY, "a": 2 * DAY}


def test_a_span_that_is_dropped_as_a_whole_has_no_time_left() -> None:
    spans = [gap(6), end(1)]
    assert time_left(spans, {"events": keeps(start=110)}, now=NOW) == {"events": 6 * DAY}
    assert time_left(spans, {"events": keeps(start=109)}, now=NOW) == {"events": DAY}


def test_a_partition_that_was_added_since_begins_at_the_start_of_its_log() -> None:
    grown = KeptTopic(kept=WEEK, starts=(100, 40), ends=(100, 45))
    found = only(end(1), grown)
    assert (found.offsets, found.gone) == (5, 0)


# ---------------------------------------------------------------- of a ledger


def ends(lake: SmallLake, kept_ms: int | None, kept_bytes: int | None = None) -> TopicEnds:
    topic = lake.log.topics[TOPIC]
    return TopicEnds(
        topic_id=topic.topic_id,
        cluster_id=topic.cluster_id,
        partitions=tuple(PartitionEnds(start=p.log_start, end=p.end) for p in topic.partitions),
        kept_ms=kept_ms,
        kept_bytes=kept_bytes,
    )


def test_the_spans_of_a_ledger_are_its_gaps_its_grants_and_its_end() -> None:
    small = good_lake()
    found = read_status(small.lake).uncommitted
    assert [(span.start, span.end, span.granted, bool(span.command)) for span in found] == [
        (day(4), day(5), False, True),
        (day(6), day(7), True, False),
        (day(7), None, False, False),
    ]
    counts = [
        sum(b - a for a, b in zip(s.first[TOPIC], s.last[TOPIC], strict=True)) for s in found[:2]
    ]
    assert counts == [7, 7]
    assert found[2].first == {TOPIC: tuple(p.end for p in small.log.topics[TOPIC].partitions)}


def test_grants_next_to_each_other_are_one_span() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.plan(days(2, 3))
    small.plan(days(3, 4))
    small.plan(days(6, 7))
    spans = read_status(small.lake).uncommitted
    assert [(s.start, s.end) for s in spans if s.granted] == [(day(2), day(4)), (day(6), day(7))]
    assert [(s.start, s.end) for s in spans if s.command] == [(day(4), day(6))]


def test_a_ledger_without_boundaries_has_no_span() -> None:
    small = SmallLake()
    small.lake.open("small")
    assert read_status(small.lake).uncommitted == ()


def test_a_span_with_nothing_in_it_has_no_topic() -> None:
    small = SmallLake()
    small.run(days(4, 5))
    small.run(days(6, 7))
    (empty, after) = read_status(small.lake).uncommitted
    assert (empty.start, empty.end, empty.first) == (day(5), day(6), {})
    assert after.end is None


def test_of_a_ledgers_lag_the_topic_has_its_retention_and_its_offsets() -> None:
    small = good_lake()
    status = read_status(small.lake)
    small.log.expire(TOPIC, 0, before=12)
    lag = read_lag(
        small.lake,
        status,
        connection=None,
        read_ends=lambda *_: {TOPIC: ends(small, 3_600_000, 10)},
    )
    topic = KeptTopic.of_lag(lag.topics[TOPIC])
    assert (topic.kept, topic.kept_bytes, topic.starts) == (HOUR, 10, (12, 0))
    found = outlooks(status.uncommitted, {TOPIC: topic}, now=NOW)
    # Day 4 has the offsets from 11 on of partition 0.
    assert [(one.span.start, one.gone) for one in found] == [(day(4), 1), (day(6), 0)]
    assert all(one.by_size and one.endangered for one in found)


def test_after_an_adoption_only_the_topic_that_is_read_counts() -> None:
    small = SmallLake()
    small.run(days(1, 2))
    small.run(days(3, 4))
    refill(small, 4, 6)
    adopted(small)
    status = read_status(small.lake)
    (before, after) = status.uncommitted
    # The gap's offsets belong to the closed topic: no retention can save them.
    assert (before.start, before.first) == (day(2), {})
    assert list(after.first) == ["events@2"]
    found = outlooks(status.uncommitted, {"events@2": KeptTopic(kept=HOUR)}, now=NOW)
    assert [(one.span.start, one.topic) for one in found] == [(day(4), "events@2")]


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("span", "topic", "text"),
    [
        (
            gap(6),
            keeps(),
            "topic events may drop its first record from 2024-05-02 00:00 UTC on (in 1 d)",
        ),
        (
            gap(9),
            keeps(),
            "topic events may drop its first record at any time, since 2024-04-29 00:00 UTC",
        ),
        (
            gap(6),
            keeps(size=1),
            "topic events may drop its first record from 2024-05-02 00:00 UTC on (in 1 d), or earlier by "
            "retention.bytes",
        ),
        (gap(6), keeps(None, size=1), "topic events may drop its records by retention.bytes"),
        (gap(6), keeps(None), "topic events keeps its records"),
        (gap(6), keeps(start=200), "topic events has dropped all of it (10 offsets)"),
        (
            gap(6),
            keeps(start=102),
            "topic events has dropped 2 of its 10 offsets, and may drop more from 2024-05-02 00:00 UTC on (in 1 d)",
        ),
        (gap(6), keeps(None, start=102), "topic events has dropped 2 of its 10 offsets"),
    ],
)
def test_the_text_has_the_time_and_what_is_gone(
    span: UncommittedSpan, topic: KeptTopic, text: str
) -> None:
    assert outlook_text(only(span, topic)) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (gap(2), "gap 2024-04-29 to 2024-04-30"),
        (gap(2.5), "gap 2024-04-28 12:00 to 2024-04-29 12:00"),
        (
            replace(gap(2), granted=True),
            "granted, not committed: 2024-04-29 to 2024-04-30",
        ),
        (end(2), "after the ledger, from 2024-04-29 on"),
    ],
)
def test_the_text_of_a_span_has_its_kind(span: UncommittedSpan, text: str) -> None:
    assert span_text(span) == text


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (3 * DAY + 5 * HOUR + HOUR / 4, "3 d 5 h"),
        (3 * DAY, "3 d"),
        (3 * DAY + HOUR / 2, "3 d"),
        (5 * HOUR + HOUR / 3, "5 h 20 min"),
        (HOUR / 3, "20 min"),
        (timedelta(seconds=59), "0 min"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(left: timedelta, text: str) -> None:
    assert length_text(left) == text
