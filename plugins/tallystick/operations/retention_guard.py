"""Computes from which time on topics may drop records that no table has yet. Pure.

Kafka deletes whole segments, from the beginning of a log on. It deletes a segment by age when its newest record is older
than retention.ms. The first record of a span has a timestamp at or after the span's start, so neither it nor any record
behind it is deleted before that start plus the retention: that is the earliest possible time. Two things may delete
records earlier: retention.bytes, and a person (DeleteRecords).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tallystick.operations.lag import Lag, TopicLag
from tallystick.operations.status.uncommitted import UncommittedSpan

WARN_BEFORE = timedelta(hours=24)
_LEFT_MIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTopic:
    """What a topic keeps: `kept` is its retention.ms, `kept_bytes` its retention.bytes; None if there is no such limit.

    `starts` and `ends`: the first and the next offset of each partition; None if they are not known.
    """

    kept: timedelta | None
    kept_bytes: int | None = None
    starts: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = None

    @classmethod
    def of_lag(cls, lag: TopicLag) -> KeptTopic:
        """Return what the answer about a topic's lag contains about its retention."""
        return cls(
            kept=lag.kept,
            kept_bytes=lag.kept_bytes,
            starts=tuple(one.start for one in lag.partitions),
            ends=tuple(one.end for one in lag.partitions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanOutlook:
    """What a topic may drop of a span that is not committed, and what it has dropped.

    `drops_from`: the earliest time at which it may drop the span's first record, `left`: the time until then, negative if
    it is over; None if records are not deleted by their age. `offsets`: how many offsets the span has in the topic, None
    if that is not known; `gone`: those that the log no longer has. `by_size`: True if retention.bytes may delete records
    earlier. `near`: True if so little time is left that a person has to act.
    """

    span: UncommittedSpan
    topic: str
    drops_from: datetime | None
    left: timedelta | None
    offsets: int | None
    gone: int
    by_size: bool
    near: bool

    @property
    def all_gone(self) -> bool:
        """True if the log no longer has any offset of the span."""
        return self.offsets is not None and 0 < self.offsets <= self.gone

    @property
    def endangered(self) -> bool:
        """True if the topic has dropped offsets of the span, or may do so soon."""
        return self.gone > 0 or self.near


def outlooks(
    spans: Iterable[UncommittedSpan],
    topics: Mapping[str, KeptTopic],
    *,
    now: datetime,
    warn_before: timedelta = WARN_BEFORE,
) -> tuple[SpanOutlook, ...]:
    """Return the outlook of each span in each topic that has offsets of it, the least time left first.

    `topics`: by the ledger's name of the topic. A topic that is not in it is left out.
    """
    found = [
        _outlook(span, name, topics[name], now=now, warn_before=warn_before)
        for span in spans
        for name in span.first
        if name in topics and _offsets(span, name, topics[name]) != 0
    ]
    forever = timedelta.max
    return tuple(sorted(found, key=lambda o: (o.left if o.left is not None else forever, o.topic)))


def lag_outlooks(
    spans: Iterable[UncommittedSpan], lag: Lag, *, warn_before: timedelta = WARN_BEFORE
) -> tuple[SpanOutlook, ...]:
    """Return the outlooks of a ledger's spans by the answer about its lag, at the time of that answer."""
    topics = {name: KeptTopic.of_lag(topic) for name, topic in lag.topics.items()}
    return outlooks(spans, topics, now=lag.at, warn_before=warn_before)


def endangered(found: Iterable[SpanOutlook]) -> tuple[SpanOutlook, ...]:
    """Return the outlooks that a person has to act on."""
    return tuple(one for one in found if one.endangered)


def time_left(
    spans: Iterable[UncommittedSpan], topics: Mapping[str, KeptTopic], *, now: datetime
) -> Mapping[str, timedelta]:
    """Return by topic the time until it may drop the first record that is not committed; negative if it is over.

    A topic that deletes nothing by age, or has nothing that is not committed, is left out. So are spans that it has
    dropped as a whole: no time can save them.
    """
    left: dict[str, timedelta] = {}
    for one in outlooks(spans, topics, now=now):
        if one.left is not None and not one.all_gone:
            left.setdefault(one.topic, one.left)  # the first one has the least time
    return left


def left_min(kept: timedelta, warn_before: timedelta = WARN_BEFORE) -> timedelta:
    """Return how much time must be left of a retention: a quarter of it, an hour, or `warn_before`, the longest one.

    `warn_before` counts at most as half of the retention.
    """
    return max(kept / 4, _LEFT_MIN, min(warn_before, kept / 2))


def _outlook(
    span: UncommittedSpan, name: str, topic: KeptTopic, *, now: datetime, warn_before: timedelta
) -> SpanOutlook:
    drops_from = left = None
    if topic.kept is not None:
        drops_from = span.start + topic.kept
        left = drops_from - now
    return SpanOutlook(
        span=span,
        topic=name,
        drops_from=drops_from,
        left=left,
        offsets=_offsets(span, name, topic),
        gone=_gone(span, name, topic),
        by_size=topic.kept_bytes is not None,
        near=topic.kept is not None
        and left is not None
        and left < left_min(topic.kept, warn_before),
    )


def _ends(span: UncommittedSpan, name: str, topic: KeptTopic) -> tuple[int, ...] | None:
    """Return the offsets at which the span ends: at its last boundary, or at the end of the log."""
    return topic.ends if span.end is None else span.last[name]


def _firsts(span: UncommittedSpan, name: str, topic: KeptTopic, count: int) -> tuple[int, ...]:
    """Return the offsets at which the span begins. A partition that was added since begins at the start of its log."""
    first = span.first[name]
    starts = topic.starts or (0,) * count
    return (*first, *starts[len(first) : count])


def _offsets(span: UncommittedSpan, name: str, topic: KeptTopic) -> int | None:
    ends = _ends(span, name, topic)
    if ends is None:
        return None
    firsts = _firsts(span, name, topic, len(ends))
    return sum(max(0, end - first) for first, end in zip(firsts, ends, strict=False))


def _gone(span: UncommittedSpan, name: str, topic: KeptTopic) -> int:
    ends, starts = _ends(span, name, topic), topic.starts
    if ends is None or starts is None:
        return 0
    firsts = _firsts(span, name, topic, len(ends))
    return sum(
        max(0, min(start, end) - first)
        for first, end, start in zip(firsts, ends, starts, strict=False)
    )


# ---------------------------------------------------------------- text


def span_text(span: UncommittedSpan) -> str:
    """Return a span for a message: `gap 2013-01-04 to 2013-01-05`, in UTC."""
    if span.end is None:
        return f"after the ledger, from {_edge(span.start)} on"
    kind = "granted, not committed:" if span.granted else "gap"
    return f"{kind} {_edge(span.start)} to {_edge(span.end)}"


def outlook_text(one: SpanOutlook) -> str:
    """Return what a topic has dropped of a span and from which time it may drop more, for a message."""
    topic = f"topic {one.topic}"
    if one.all_gone:
        return f"{topic} has dropped all of it ({one.gone:,} offset{'' if one.gone == 1 else 's'})"
    earlier = ", or earlier by retention.bytes" if one.by_size else ""
    may = ""
    if one.drops_from is not None and one.left is not None:
        when = (
            f"from {_at(one.drops_from)} UTC on (in {length_text(one.left)})"
            if one.left > timedelta(0)
            else f"at any time, since {_at(one.drops_from)} UTC"
        )
        may = f"may drop its first record {when}{earlier}"
    elif one.by_size:
        may = "may drop its records by retention.bytes"
    if not one.gone:
        return f"{topic} {may or 'keeps its records'}"
    of = "" if one.offsets is None else f" of its {one.offsets:,}"
    dropped = f"{topic} has dropped {one.gone:,}{of} offsets"
    return f"{dropped}, and {may.replace('its first record', 'more')}" if may else dropped


def length_text(left: timedelta) -> str:
    """Return a length of time in its two largest units: 3 d 5 h, 5 h 20 min, 20 min."""
    minutes = int(abs(left).total_seconds() // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    units = [(days, "d"), (hours, "h"), (minutes, "min")]
    first = next((i for i, (count, _) in enumerate(units) if count), 2)
    shown = [
        f"{count} {unit}"
        for i, (count, unit) in enumerate(units[first : first + 2])
        if count or not i
    ]
    return " ".join(shown)


def _edge(at: datetime) -> str:
    shown = at.astimezone(UTC)
    return f"{shown:%Y-%m-%d}" if (shown.hour, shown.minute) == (0, 0) else _at(shown)


def _at(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"
