"""The adoption of a topic's new incarnation, which follows the old one in the same ledger. Pure.

An offset identifies a record only together with a topic id and a cluster id. So an adopted incarnation is a separate
topic in the ledger, `events@2` after `events`, with its own origins. The rules of the tiling need no change: if a
boundary has no position for the new incarnation, its position is its origin; and each later boundary has the closed
one at its end. The two meet at `since`, the ledger's last boundary when the adoption was swapped. Before `since` only
the old one has offsets; from `since` on only the new one has offsets that can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from tallystick.format import keys
from tallystick.format.canonical import INT_MAX
from tallystick.format.interval import Interval
from tallystick.format.offsets import Position
from tallystick.format.page import Boundary
from tallystick.format.root import Closed, Root, RootTopic
from tallystick.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """The decision to swap the root: `closed` was read to `read_to` and ends, `adopted` begins.

    `lost` offsets per partition were never read.
    """

    closed: str
    adopted: str
    since: datetime
    read_to: tuple[int, ...]
    lost: tuple[int, ...]
    topics: Mapping[str, RootTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyRead:
    """The answer if the incarnation is the one that is read now; `follows`: the one before it, None for the first."""

    name: str
    follows: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBefore:
    """The refusal of an incarnation that was closed earlier: its offsets are accounted for and would be read twice."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTopic:
    """The refusal of an incarnation with the topic id of an incarnation in the ledger, on another cluster.

    Topic ids are random, so the topic is a copy, e.g. on a cluster that was restored from disks. Each of its records that
    was read before has the same offset in the copy, and would be read twice.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidEnds:
    """The refusal of given ends that are not valid for this topic; `why` is the reason."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsTooEarly:
    """The refusal of an end that is before the offset to which the partition was read."""

    partition: int
    read_to: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingRead:
    """The refusal if the ledger has no such topic, or no boundary: there is nothing that an incarnation could follow."""


Adoption = Adopt | AlreadyRead | ReadBefore | SameTopic | InvalidEnds | EndsTooEarly | NothingRead


def decide_adoption(
    root: Root,
    last: Boundary | None,
    topic: str,
    incarnation: RootTopic,
    ends: Mapping[int, int],
) -> Adoption:
    """Decide the result of adopting `incarnation` of Kafka's `topic` under `root`, whose last boundary is `last`.

    `ends`: the known end offsets of the old incarnation, by partition. If a partition is missing, its end is the
    offset to which it was read. A partition that the ledger does not have yet began at 0.
    """
    name = root.open_topic(topic)
    known = root.topics.get(name)
    if known is None or last is None:
        return NothingRead()
    for other, its_topic in root.topics.items():
        if keys.kafka_topic(other) != topic or its_topic.topic_id != incarnation.topic_id:
            continue
        if its_topic.cluster_id != incarnation.cluster_id:
            return SameTopic(name=other)
        if other == name:
            return AlreadyRead(name=name, follows=keys.previous_incarnation(name))
        return ReadBefore(name=other)
    joined = max(len(known.origins), *(p + 1 for p in ends)) if ends else len(known.origins)
    unnamed = next((p for p in range(len(known.origins), joined) if p not in ends), None)
    if unnamed is not None:
        return InvalidEnds(
            why=f"partition {unnamed} has no end, although partition {joined - 1} has one; the ledger has partitions 0 "
            f"to {len(known.origins) - 1}"
        )
    origins = known.origins + (0,) * (joined - len(known.origins))
    read_to = tuple(last.position(name, p, {name: origins}).offset for p in range(joined))
    closed_at = tuple(ends.get(p, read_to[p]) for p in range(joined))
    for partition, (read, end) in enumerate(zip(read_to, closed_at, strict=True)):
        if end < read:
            return EndsTooEarly(partition=partition, read_to=read, end=end)
    lost = tuple(end - read for read, end in zip(read_to, closed_at, strict=True))
    if sum(lost) > INT_MAX:
        return InvalidEnds(why=f"{sum(lost)} offsets would be lost, which does not fit 64 bits")
    following = keys.next_incarnation(name)
    closed = replace(known, origins=origins, closed=Closed(since=last.at, ends=closed_at))
    return Adopt(
        closed=name,
        adopted=following,
        since=last.at,
        read_to=read_to,
        lost=lost,
        topics={**root.topics, name: closed, following: incarnation},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsplit:
    """A closed topic with unread offsets between these two boundaries: the log that could split them is gone."""

    name: str
    start: datetime | None
    end: datetime


def positions_without_log(
    ledger: Ledger, topics: Mapping[str, RootTopic], name: str, at: datetime
) -> tuple[Position, ...] | Unsplit | None:
    """Return the positions of topic `name` at `at` if they need no look-up in the log; None if they need one.

    `at` has no boundary yet. If the topic was adopted and `at` is not after that adoption, the topic is at its origins:
    even if its records have earlier timestamps, they arrived later. If the topic is closed and `at` is after its `since`,
    the topic is at its ends. If it is closed and `at` is earlier, its position is known only if the neighbouring
    boundaries have the same offsets; otherwise the result is Unsplit.
    """
    topic = topics[name]
    before = keys.previous_incarnation(name)
    predecessor = topics[before].closed if before is not None else None
    if predecessor is not None and at <= predecessor.since:
        return tuple(Position(offset=origin) for origin in topic.origins)
    if topic.closed is None:
        return None
    if at > topic.closed.since:
        return tuple(Position(offset=end) for end in topic.closed.ends)
    left, right = ledger.neighbours(at)
    assert right is not None  # the boundary at `since` at the latest
    origins = {name: topic.origins}
    positions = []
    for partition, origin in enumerate(topic.origins):
        low = Position(offset=origin) if left is None else left.position(name, partition, origins)
        if low.offset != right.position(name, partition, origins).offset:
            return Unsplit(name=name, start=left.at if left else None, end=right.at)
        positions.append(low)
    return tuple(positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCopy:
    """A committed interval with rows of a closed topic's offsets: they cannot be computed again."""

    interval: Interval
    name: str
    offsets: int
    since: datetime

    @property
    def message(self) -> str:
        """The error message for a run that would replace the interval."""
        return (
            f"{self.interval} is committed with {self.offsets} offsets of topic {self.name}, which is no longer read: "
            "another incarnation was adopted. A replacement would lose their rows. Nothing was changed."
        )

    @property
    def hint(self) -> str:
        """The hint of that error: what to do instead."""
        return (
            "leave the interval as it is: rows read before an adoption cannot be computed again. Request intervals "
            f"from {keys.instant(self.since)} on, the begin of the adopted topic."
        )


def last_copy(
    ledger: Ledger, topics: Mapping[str, RootTopic], replaced: Iterable[Interval]
) -> LastCopy | None:
    """Return the first committed interval of `replaced` that must not be replaced; None if all can be read again.

    The tail that an adoption lost has no rows: its interval is read and replaced like any other.
    """
    for interval in replaced:
        start, end = ledger.boundary(interval.start), ledger.boundary(interval.end)
        assert start is not None  # a committed interval has both of its boundaries
        assert end is not None
        for name, topic in topics.items():
            if topic.closed is None or interval.start >= topic.closed.since:
                continue
            offsets = offsets_between(start, end, name, topic)
            if offsets:
                return LastCopy(
                    interval=interval, name=name, offsets=offsets, since=topic.closed.since
                )
    return None


def offsets_between(start: Boundary, end: Boundary, name: str, topic: RootTopic) -> int:
    """Count the offsets of one topic between two boundaries, over all partitions."""
    origins = {name: topic.origins}
    return sum(
        end.position(name, p, origins).offset - start.position(name, p, origins).offset
        for p in range(len(topic.origins))
    )


def cuts(topics: Mapping[str, RootTopic]) -> tuple[datetime, ...]:
    """Return the instants of the adoptions, in order. No plan spans one: before and after, different topics are read."""
    return tuple(sorted({t.closed.since for t in topics.values() if t.closed is not None}))
