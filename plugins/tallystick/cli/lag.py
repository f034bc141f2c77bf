"""Reads the lag of a ledger behind its topics from Kafka, within a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tallystick.cli.waiting import kafka_within
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import Corrupt, IdentityChanged, TallystickError
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.status import Status

LIMIT_S = 5.0
_ANSWER_MS = 3_000
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The current state of a topic in Kafka: its identity, the first and the next offset of each partition."""

    topic_id: str
    cluster_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """Offsets after the latest committed interval, over all partitions. `gone`: those that the log no longer has.

    `before` and `after`: the offsets in the log before the ledger's first boundary, and after its last one. They are in
    no interval. None if the ledger has no boundary.
    """

    end: int
    read_to: int
    lag: int
    gone: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The lag by topic, or the error if it could not be read."""

    connection: str
    topics: Mapping[str, TopicLag]
    error: TallystickError | None = None


FindEnds = Callable[[str, Sequence[str]], Mapping[str, TopicEnds]]


def read_lag(
    lake: Lake,
    status: Status,
    *,
    connection: str | None,
    read_ends: FindEnds,
    limit_s: float = LIMIT_S,
) -> Lag:
    """Return the lag of the ledger's topics behind their ends in Kafka.

    `connection`: None for the one that the latest plan names. If Kafka cannot be read, or takes longer than `limit_s`
    seconds, the result contains the error instead of raising it.
    """
    name = connection or _planned_connection(lake, status)
    try:
        found = kafka_within(
            limit_s,
            name,
            lambda: read_ends(name, [*map(keys.kafka_topic, status.read_to)]),
            hint="check that this machine reaches the brokers; or skip the lag with --no-kafka.",
        )
        topics = {
            topic: _lag(status, topic, found[keys.kafka_topic(topic)]) for topic in status.read_to
        }
    except TallystickError as error:
        return Lag(connection=name, topics={}, error=error)
    return Lag(connection=name, topics=topics)


def _planned_connection(lake: Lake, status: Status) -> str:
    for one in reversed(status.intervals):
        with suppress(Corrupt):
            plan = lake.plan(one.plan)
            if plan is not None:
                return str(plan.spec.get("kafka", _DEFAULT))
    return _DEFAULT


def _lag(status: Status, topic: str, seen: TopicEnds) -> TopicLag:
    known = status.topics[topic]
    if (seen.topic_id, seen.cluster_id) != (known.topic_id, known.cluster_id):
        raise IdentityChanged(
            f"topic {keys.kafka_topic(topic)}: expected id {known.topic_id} in cluster {known.cluster_id} as in the "
            f"ledger, found id {seen.topic_id} in cluster {seen.cluster_id}.",
            hint="name the connection to the topic of the ledger (--kafka); if the topic is new on purpose, see "
            "`tally topic adopt --help`.",
        )
    # If a partition was added since the last plan, it will be read from its beginning.
    read_to = [*status.read_to[topic], *seen.starts[len(status.read_to[topic]) :]]
    pairs = list(zip(read_to, seen.starts, seen.ends, strict=False))
    before = after = None
    if topic in status.first_offsets and topic in status.last_offsets:
        firsts = status.first_offsets[topic]
        lasts = [*status.last_offsets[topic], *seen.starts[len(firsts) :]]
        before = sum(max(0, at - start) for at, start in zip(firsts, seen.starts, strict=False))
        after = sum(
            max(0, end - max(at, start))
            for at, start, end in zip(lasts, seen.starts, seen.ends, strict=False)
        )
    return TopicLag(
        before=before,
        after=after,
        end=sum(seen.ends),
        read_to=sum(read_to),
        lag=sum(max(0, end - read) for read, _, end in pairs),
        gone=sum(max(0, min(start, end) - read) for read, start, end in pairs),
    )


def read_kafka(connection: str, topics: Sequence[str]) -> Mapping[str, TopicEnds]:
    """Read identity and offsets of topics from a connection's cluster; raises SettingsError, and what the client does."""
    import os

    from tallystick.connections.resolve import resolve
    from tallystick.kafka.client import KafkaClient
    from tallystick.kafka.wire import EARLIEST, LATEST

    settings = resolve(KafkaSettings, connection, environ=os.environ)
    quick = replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, _ANSWER_MS),
        bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, _ANSWER_MS),
    )
    found = {}
    with KafkaClient(quick) as client:
        for topic in topics:
            layout = client.layout(topic)
            every = range(len(layout.leaders))
            starts = client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
            ends = client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
            found[topic] = TopicEnds(
                topic_id=layout.topic_id,
                cluster_id=client.cluster_id(),
                starts=tuple(starts[p] for p in every),
                ends=tuple(ends[p] for p in every),
            )
    return found
