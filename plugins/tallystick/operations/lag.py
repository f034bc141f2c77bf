"""The use case "lag": how far a ledger is behind its topics, in offsets and in time, and what the logs have dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tallystick.errors import Corrupt, IdentityChanged, TallystickError
from tallystick.format import keys
from tallystick.kafka.wire import PartitionEnds, TopicEnds
from tallystick.lake import Lake
from tallystick.operations.status import Status

DEFAULT_CONNECTION = "default"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """Offsets of one partition after the latest committed interval, `read_to <= offset < end`.

    `gone`: those that the log no longer has. `next_at`: the time of the first of them; None if there is none or if it is
    not known.
    """

    read_to: int
    start: int
    end: int
    next_at: datetime | None = None

    @property
    def lag(self) -> int:
        """The number of offsets that are not committed yet."""
        return max(0, self.end - self.read_to)

    @property
    def gone(self) -> int:
        """The number of offsets that are not committed and no longer in the log."""
        return max(0, min(self.start, self.end) - self.read_to)

    def age(self, now: datetime) -> timedelta | None:
        """Return how long ago the first uncommitted record was produced; 0 if there is none, None if not known."""
        if self.lag == 0:
            return timedelta(0)
        return None if self.next_at is None else max(timedelta(0), now - self.next_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """The lag of a topic by partition (the index is the partition number).

    `before` and `after`: the offsets in the log before the ledger's first boundary, and after its last one. They are in
    no interval. None if the ledger has no boundary. `kept`: how long the topic keeps records; None if their age does not
    matter, or if it is not known. `kept_bytes`: the same of the size of a partition's log.
    """

    partitions: tuple[PartitionLag, ...]
    before: int | None
    after: int | None
    kept: timedelta | None = None
    kept_bytes: int | None = None

    @property
    def end(self) -> int:
        """The sum of the partitions' next offsets."""
        return sum(one.end for one in self.partitions)

    @property
    def read_to(self) -> int:
        """The sum of the offsets to which the partitions are committed."""
        return sum(one.read_to for one in self.partitions)

    @property
    def lag(self) -> int:
        """The number of offsets that are not committed yet."""
        return sum(one.lag for one in self.partitions)

    @property
    def gone(self) -> int:
        """The number of offsets that are not committed and no longer in the log."""
        return sum(one.gone for one in self.partitions)

    def age(self, now: datetime) -> timedelta | None:
        """Return the greatest age of the partitions' first uncommitted records; None if one of them is not known."""
        ages = [one.age(now) for one in self.partitions]
        known = [age for age in ages if age is not None]
        return None if len(known) < len(ages) else max(known, default=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag by topic at the time `at`, or the error if it could not be read."""

    connection: str
    at: datetime
    topics: Mapping[str, TopicLag]
    error: TallystickError | None = None


FindEnds = Callable[[str, Mapping[str, Sequence[int]]], Mapping[str, TopicEnds]]
"""Returns the ends of topics: of a connection, by Kafka's topic name with one offset per partition."""


def read_lag(lake: Lake, status: Status, *, connection: str | None, read_ends: FindEnds) -> Lag:
    """Return the lag of the ledger's open topics behind their ends in Kafka.

    `connection`: None for the one that the latest plan names. If Kafka cannot be read, the result contains the error
    instead of raising it.
    """
    name, now = connection or planned_connection(lake, status), lake.runtime.now()
    try:
        found = read_ends(name, {keys.kafka_topic(t): at for t, at in status.read_to.items()})
        topics = {
            topic: _topic_lag(status, topic, found[keys.kafka_topic(topic)])
            for topic in status.read_to
        }
    except TallystickError as error:
        return Lag(connection=name, at=now, topics={}, error=error)
    return Lag(connection=name, at=now, topics=topics)


def planned_connection(lake: Lake, status: Status) -> str:
    """Return the name of the Kafka connection in the latest plan that can be read; `default` if there is none."""
    for one in reversed(status.intervals):
        with suppress(Corrupt):
            plan = lake.plan(one.plan)
            if plan is not None:
                return str(plan.spec.get("kafka", DEFAULT_CONNECTION))
    return DEFAULT_CONNECTION


def _topic_lag(status: Status, topic: str, seen: TopicEnds) -> TopicLag:
    known = status.topics[topic]
    if (seen.topic_id, seen.cluster_id) != (known.topic_id, known.cluster_id):
        raise IdentityChanged(
            f"topic {keys.kafka_topic(topic)}: expected id {known.topic_id} in cluster {known.cluster_id} as in the "
            f"ledger, found id {seen.topic_id} in cluster {seen.cluster_id}.",
            hint="name the connection to the topic of the ledger (--kafka); if the topic is new on purpose, see "
            "`tally topic adopt --help`.",
        )
    before = after = None
    if topic in status.first_offsets and topic in status.last_offsets:
        firsts = status.first_offsets[topic]
        pairs = zip(firsts, seen.partitions, strict=False)
        before = sum(max(0, at - one.start) for at, one in pairs)
        after = sum(
            max(0, one.end - max(at, one.start))
            for at, one in _from_start(status.last_offsets[topic][: len(firsts)], seen.partitions)
        )
    return TopicLag(
        partitions=tuple(
            PartitionLag(
                read_to=read_to, start=one.start, end=one.end, next_at=_instant(one.next_at_ms)
            )
            for read_to, one in _from_start(status.read_to[topic], seen.partitions)
        ),
        before=before,
        after=after,
        kept=None if seen.kept_ms is None else timedelta(milliseconds=seen.kept_ms),
        kept_bytes=seen.kept_bytes,
    )


def _from_start(
    offsets: Sequence[int], partitions: Sequence[PartitionEnds]
) -> Iterable[tuple[int, PartitionEnds]]:
    """Pair the partitions with their offsets. A partition that was added since the last plan is read from its start."""
    starts = [one.start for one in partitions]
    return zip([*offsets, *starts[len(offsets) :]], partitions, strict=False)


def _instant(at_ms: int | None) -> datetime | None:
    if at_ms is None or at_ms < 0:  # Kafka's "no timestamp" is -1
        return None
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:  # a producer may write any number
        return None
