"""How one incarnation of a topic follows another in the same ledger: pure, like every decision of the protocol.

An offset means a record only together with a topic id and a cluster id. So an adopted incarnation is a topic of its own
in the ledger, `events@2` after `events`, with origins of its own, and no rule of the tiling needs to know about it: a
boundary that lacks it means its origin, and the closed one stands at its end in every boundary that is set later. The two
meet at `since`, the ledger's last boundary when the adoption was swapped: before it only the old one has offsets, from it
on only the new one has any that can be read.
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
    """Swap the root: `closed` was read to `read_to` and ends, `adopted` begins; `lost` offsets were never read."""

    closed: str
    adopted: str
    since: datetime
    read_to: tuple[int, ...]
    lost: tuple[int, ...]
    topics: Mapping[str, RootTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyRead:
    """The incarnation is the one that the ledger reads; `follows`: the one before it, None for the first."""

    name: str
    follows: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBefore:
    """The incarnation was closed earlier: its offsets are accounted for, and would be read twice."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTopic:
    """The incarnation has the id of one that the ledger knows, on another cluster.

    Topic ids are random, so it is a copy, as of a cluster that was restored from disks: each of its records that was read
    before has the offset that it had, and would be read twice.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OddEnds:
    """The ends that were named are no ends of this topic; `why` says what is odd."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsTooEarly:
    """A partition is read further than the end that was named for it."""

    partition: int
    read_to: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingRead:
    """The ledger knows no such topic, or no boundary: there is nothing that another incarnation could follow."""


Adoption = Adopt | AlreadyRead | ReadBefore | SameTopic | OddEnds | EndsTooEarly | NothingRead


def decide_adoption(
    root: Root,
    last: Boundary | None,
    topic: str,
    incarnation: RootTopic,
    ends: Mapping[int, int],
) -> Adoption:
    """Decide what adopting `incarnation` of Kafka's `topic` means under `root`, whose last boundary is `last`.

    `ends`: where each partition of the old one ended, as far as that is known; one that is not named ended where it was
    read to. A partition that the ledger does not know yet began at 0.
    """
    name = root.open_topic(topic)
    known = root.topics.get(name)
    if known is None or last is None:
        return NothingRead()
    for earlier, one in root.topics.items():
        if keys.kafka_topic(earlier) != topic or one.topic_id != incarnation.topic_id:
            continue
        if one.cluster_id != incarnation.cluster_id:
            return SameTopic(name=earlier)
        if earlier == name:
            return AlreadyRead(name=name, follows=keys.previous_incarnation(name))
        return ReadBefore(name=earlier)
    joined = max(len(known.origins), *(p + 1 for p in ends)) if ends else len(known.origins)
    unnamed = next((p for p in range(len(known.origins), joined) if p not in ends), None)
    if unnamed is not None:
        return OddEnds(
            why=f"partition {joined - 1} is named, and the ledger knows no partition {unnamed}"
        )
    origins = known.origins + (0,) * (joined - len(known.origins))
    read_to = tuple(last.position(name, p, {name: origins}).offset for p in range(joined))
    closed_at = tuple(ends.get(p, read_to[p]) for p in range(joined))
    for partition, (read, end) in enumerate(zip(read_to, closed_at, strict=True)):
        if end < read:
            return EndsTooEarly(partition=partition, read_to=read, end=end)
    lost = tuple(end - read for read, end in zip(read_to, closed_at, strict=True))
    if sum(lost) > INT_MAX:
        return OddEnds(why=f"{sum(lost)} offsets would be lost, more than 64 bits hold")
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
    """A closed topic has unread offsets between these two boundaries, and nobody can be asked how they split there."""

    name: str
    start: datetime | None
    end: datetime


def settled(
    ledger: Ledger, topics: Mapping[str, RootTopic], name: str, at: datetime
) -> tuple[Position, ...] | Unsplit | None:
    """Where topic `name` splits at `at`, where no boundary stands yet, without any look-up; None: the log is to be asked.

    A closed topic stands at its end. An adopted one has nothing before the instant at which it was adopted: what its
    records say of an earlier time, they arrived later.
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
    """A committed interval holds the rows of offsets of a closed topic: nobody can compute them anew."""

    interval: Interval
    name: str
    offsets: int
    since: datetime

    @property
    def message(self) -> str:
        """What a run is told that would replace it."""
        return (
            f"{self.interval} is committed with {self.offsets} offsets of topic {self.name}, which is read no more: "
            "another incarnation was adopted. A replacement would lose their rows. Nothing was changed."
        )

    @property
    def hint(self) -> str:
        """What can be done instead."""
        return (
            "leave it as it is: what was read before an adoption cannot be computed anew. Ask from "
            f"{keys.instant(self.since)} on, where the adopted topic begins."
        )


def last_copy(
    ledger: Ledger, topics: Mapping[str, RootTopic], replaced: Iterable[Interval]
) -> LastCopy | None:
    """The first of the committed intervals that must not be replaced; None where all can be read again.

    The tail that was lost with an adoption itself has no rows: its interval is read and replaced like any other.
    """
    for interval in replaced:
        start, end = ledger.boundary(interval.start), ledger.boundary(interval.end)
        assert start is not None  # what is committed stands between two boundaries
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
    """How many offsets of one topic lie between two boundaries, over all partitions."""
    origins = {name: topic.origins}
    return sum(
        end.position(name, p, origins).offset - start.position(name, p, origins).offset
        for p in range(len(topic.origins))
    )


def cuts(topics: Mapping[str, RootTopic]) -> tuple[datetime, ...]:
    """The instants at which adoptions took place: no plan goes over one, for on either side another topic is read."""
    return tuple(sorted({t.closed.since for t in topics.values() if t.closed is not None}))
