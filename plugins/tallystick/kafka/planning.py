"""The facts from Kafka that a plan needs: identities, the extent of each log, and boundaries.

This module does not import numpy: planning runs in Airflow's processes and reads only a few batches. If a record from
the future lies before an interval, it reads the headers of all batches of the interval (`search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, LogDamaged, NotYet
from tallystick.format.offsets import Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.identity import diverged_message
from tallystick.kafka.search import Search
from tallystick.kafka.wire import EARLIEST, LATEST, NO_EPOCH, TopicLayout, TopicRetention

RETENTION_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")
FOREVER_MS = 30_000_000_000_000
"""A retention.ms from which on no record is deleted by its age: 950 years. Kafka's largest value is 292 million years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The extent of a partition's log: `log_start <= offset < high_watermark`.

    No transaction is open before `last_stable`.
    """

    log_start: int
    high_watermark: int
    last_stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The state of one incarnation of a topic; the index of `partitions` is the partition number.

    `kept`: None if the broker did not return it.
    """

    name: str
    topic_id: str
    cluster_id: str
    compacted: bool
    partitions: tuple[PartitionState, ...]
    kept: TopicRetention | None = None


class LogPlanner:
    """The source of a plan's facts from Kafka; use it in a `with` statement.

    Errors are TallystickErrors with topic and endpoint.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._client = KafkaClient(settings)
        self._layouts: dict[str, TopicLayout] = {}
        self._described: dict[str, TopicState] = {}

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics that this user may see, without Kafka's internal ones, sorted."""
        return self._client.topics()

    def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the identity and the extent of each topic. Raises IdentityChanged if a topic does not exist."""
        found = {topic: self._describe(topic) for topic in topics}
        self._described |= found
        return found

    @property
    def described(self) -> Mapping[str, TopicState]:
        """The topics as `describe` last returned them. It sends no request."""
        return self._described

    def retention_ms(self, topic: str) -> int | None:
        """Return how long the topic keeps records (`retention.ms`); None if it deletes none by their age."""
        return retention_of(self._client.topic_configs(topic, *RETENTION_KEYS)).kept_ms

    def log_starts(self, topic: str) -> tuple[int, ...]:
        """Return the log start of each partition. Raises IdentityChanged if the topic does not exist."""
        layout = self._current(topic)
        every = range(len(layout.leaders))
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        return tuple(starts[p] for p in every)

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int | None = None
    ) -> tuple[Position, ...]:
        """Return the position at which `at_ms` (milliseconds UTC) splits each partition's log, at or after its floor.

        The split is at the first data record, aborted ones included, whose timestamp is `at_ms` or later. If there is
        none, it is at the high watermark. Transaction markers do not count: their timestamps are of the broker's clock.
        Records later than `latest_ms` do not count either: a timestamp in microseconds by mistake would otherwise be the
        split of every later instant. A partition beyond `floors` has its log start as floor. Each position has the leader
        epoch of the record before the split.

        Raises ValueError if `at_ms` is negative, NotYet if an open transaction lies before a split, IdentityChanged if
        the topic was recreated since this planner's first look-up, LogDamaged if a floor lies beyond the end of the log.
        """
        if at_ms < 0:
            raise ValueError(
                f"expected 1970 or later, found {at_ms} ms: in Kafka, negative timestamps have special meanings"
            )
        layout = self._current(topic)
        every = range(len(layout.leaders))
        # Look up the ends first: records written later may fall on either side of the split, earlier ones may not.
        ends = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        found = self._client.list_offsets(layout, dict.fromkeys(every, at_ms), committed=False)
        positions = []
        for partition in every:
            floor = floors[partition] if partition < len(floors) else starts[partition]
            end_now = ends[partition]
            search = Search(
                self._client, layout, partition, at_ms, latest_ms=latest_ms, end=end_now
            )
            if floor > end_now:
                raise _floor_beyond(search.place, floor, end_now)
            # -1: the leader's index of timestamps has no such record. Only that, or a search that has read every
            # offset, puts a boundary at the end.
            listed = found[partition]
            end = end_now if listed < 0 else search.first(max(listed, floor))
            positions.append(search.position(end, starts[partition]))
        stable = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=True)
        for partition, position in enumerate(positions):
            if position.offset > stable[partition]:
                raise _open_transaction(layout.name, partition, position.offset, stable[partition])
        # ListOffsets uses the topic's name: check that all look-ups were of the same incarnation.
        self._current(topic)
        return tuple(positions)

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> dict[int, int]:
        """Return the partitions whose log does not prove that it begins before `at_ms`, each with its current log start.

        `positions` is the boundary at that instant. In the returned partitions, retention may have deleted records that
        belong after it. A partition whose log begins at offset 0 has lost nothing and is never returned.
        """
        layout = self._current(topic)
        every = range(len(positions))
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        found = {}
        for partition, position in enumerate(positions):
            start = starts[partition]
            if start == 0:
                continue
            search = Search(self._client, layout, partition, at_ms)
            if not search.begins_before(start, position.offset):
                found[partition] = start
        return found

    def diverged(self, topic: str, positions: Sequence[Position]) -> list[str]:
        """Return a message for each partition whose log no longer holds the record before its position.

        The index of `positions` is the partition number. Positions without a leader epoch prove nothing and are skipped
        (OffsetForLeaderEpoch, KIP-320). Raises IdentityChanged if a position is of a partition that does not exist.
        """
        layout = self._current(topic)
        known = {p: one for p, one in enumerate(positions) if one.leader_epoch != NO_EPOCH}
        if beyond := [p for p in known if p >= len(layout.leaders)]:
            raise IdentityChanged(
                f"topic {topic!r}: expected at least {beyond[-1] + 1} partitions, as in the ledger, found "
                f"{len(layout.leaders)}.",
                hint="find out who recreated the topic: otherwise partitions never disappear.",
            )
        ends = self._client.epoch_ends(layout, {p: one.leader_epoch for p, one in known.items()})
        messages = (
            diverged_message(f"topic {topic!r} partition {p}", one, ends[p])
            for p, one in known.items()
        )
        return [message for message in messages if message is not None]

    def _describe(self, topic: str) -> TopicState:
        layout = self._current(topic)
        every = range(len(layout.leaders))
        # One request for all: a plan needs only the policy, the retention is for its warnings.
        configs = self._client.topic_configs(
            topic, *RETENTION_KEYS[:1], optional=RETENTION_KEYS[1:]
        )
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        # Look up the last stable offset first, so that it is never beyond the high watermark.
        stable = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=True)
        ends = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
        return TopicState(
            name=topic,
            topic_id=layout.topic_id,
            cluster_id=self._client.cluster_id(),
            compacted="compact" in configs["cleanup.policy"].split(","),
            partitions=tuple(
                PartitionState(log_start=starts[p], high_watermark=ends[p], last_stable=stable[p])
                for p in every
            ),
            kept=retention_of(configs) if len(configs) == len(RETENTION_KEYS) else None,
        )

    def _current(self, topic: str) -> TopicLayout:
        """Return the topic's current leaders. Raises IdentityChanged if the topic was recreated since the first call."""
        seen = self._layouts.get(topic)
        layout = (
            self._client.layout(topic)
            if seen is None
            else self._client.layout(topic, topic_id=seen.topic_id)
        )
        self._layouts[topic] = layout
        return layout


def retention_of(configs: Mapping[str, str]) -> TopicRetention:
    """Return what a topic keeps, from its configuration values for RETENTION_KEYS.

    It raises nothing for a value that is no number, which sets no limit: a plan must not fail because of it.
    """
    if "delete" not in configs["cleanup.policy"].split(","):
        return TopicRetention()
    age_ms, size_bytes = _number(configs["retention.ms"]), _number(configs["retention.bytes"])
    return TopicRetention(
        kept_ms=age_ms if 0 <= age_ms < FOREVER_MS else None,
        kept_bytes=size_bytes if size_bytes > 0 else None,
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1


def _floor_beyond(place: str, floor: int, end: int) -> LogDamaged:
    return LogDamaged(
        f"{place}: expected the log to reach boundary {floor}, found its end at offset {end}: the log was truncated.",
        hint="check this cluster for unclean leader elections: acknowledged records are lost.",
    )


def _open_transaction(topic: str, partition: int, offset: int, stable: int) -> NotYet:
    return NotYet(
        f"topic {topic!r} partition {partition}: the boundary is at offset {offset}, the last stable offset at {stable}: "
        f"a transaction that began at offset {stable} is still open.",
        hint="try again later; if it persists, search for its producer with kafka-transactions.sh find-hanging.",
    )
