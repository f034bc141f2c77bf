"""What a plan has to know of Kafka: identities, how far each log reaches, and where boundaries lie.

No numba here: planning runs where Airflow runs, and looks into a handful of batches; into all of an interval's, by their
headers, when a record from the future lies before it (`search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import IdentityChanged, LogDamaged, NotYet
from tallystick.format.offsets import Position
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.identity import diverged_message
from tallystick.kafka.search import Search
from tallystick.kafka.wire import EARLIEST, LATEST, NO_EPOCH, TopicLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """How far a partition's log reaches: `log_start <= offset < high_watermark`, settled below `last_stable`."""

    log_start: int
    high_watermark: int
    last_stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One incarnation of a topic; the index of `partitions` is the partition number."""

    name: str
    topic_id: str
    cluster_id: str
    compacted: bool
    partitions: tuple[PartitionState, ...]


class LogPlanner:
    """Asks Kafka what a plan needs; opened by `with`. Errors are TallystickErrors that name topic and endpoint."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._client = KafkaClient(settings)
        self._layouts: dict[str, TopicLayout] = {}

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return identity and reach of each topic. Raises IdentityChanged where one does not exist."""
        return {topic: self._describe(topic) for topic in topics}

    def log_starts(self, topic: str) -> tuple[int, ...]:
        """Return the first offset that each partition still has. Raises IdentityChanged where there is no such topic."""
        layout = self._current(topic)
        every = range(len(layout.leaders))
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        return tuple(starts[p] for p in every)

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int | None = None
    ) -> tuple[Position, ...]:
        """Return where each partition's log splits at `at_ms` (milliseconds UTC), at or after its floor.

        The split is at the first data record, aborted ones included, whose timestamp is `at_ms` or later, or at the
        high watermark where there is none. Transaction markers do not count: they carry the broker's clock. Nor do
        records later than `latest_ms`: a timestamp in microseconds would else be the split of every time to come. A
        partition beyond `floors` has its log start as floor. Positions carry the leader epoch of the record before the
        split.

        Raises ValueError for a negative `at_ms`, NotYet where an open transaction lies before a split, IdentityChanged
        where the topic was recreated since this planner first saw it, LogDamaged where a floor lies beyond the log.
        """
        if at_ms < 0:
            raise ValueError(
                f"{at_ms} ms is before 1970: Kafka gives negative look-ups meanings of their own"
            )
        layout = self._current(topic)
        every = range(len(layout.leaders))
        # Ends first: what is written after this look-up may fall on either side, what was before it may not.
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
            # -1: the leader's index of timestamps has no such record. Nothing weaker puts a boundary at the end.
            listed = found[partition]
            end = end_now if listed < 0 else search.first(max(listed, floor))
            positions.append(search.position(end, starts[partition]))
        stable = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=True)
        for partition, position in enumerate(positions):
            if position.offset > stable[partition]:
                raise _open_transaction(layout.name, partition, position.offset, stable[partition])
        self._current(
            topic
        )  # ListOffsets goes by name: prove that it asked the same incarnation throughout
        return tuple(positions)

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> dict[int, int]:
        """Return the partitions whose log does not show that it begins before `at_ms`, with the log start asked just now.

        `positions` are the boundary at that instant. What came before may have expired there. A log that begins at 0
        has lost nothing, and is never among them.
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
        """Say for each partition (the index) whose log no longer holds the record before its position what became of it.

        Positions without a leader epoch prove nothing and are passed over (OffsetForLeaderEpoch, KIP-320).
        """
        layout = self._current(topic)
        known = {p: one for p, one in enumerate(positions) if one.leader_epoch != NO_EPOCH}
        if beyond := [p for p in known if p >= len(layout.leaders)]:
            raise IdentityChanged(
                f"topic {topic!r} has {len(layout.leaders)} partitions, but positions are known up to partition "
                f"{beyond[-1]}.",
                hint="find out who recreated the topic: partitions never disappear from one that was not.",
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
        policy = self._client.topic_config(topic, "cleanup.policy")
        starts = self._client.list_offsets(layout, dict.fromkeys(every, EARLIEST), committed=False)
        # Stable first: it never passes the high watermark that is asked for later.
        stable = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=True)
        ends = self._client.list_offsets(layout, dict.fromkeys(every, LATEST), committed=False)
        return TopicState(
            name=topic,
            topic_id=layout.topic_id,
            cluster_id=self._client.cluster_id(),
            compacted="compact" in policy.split(","),
            partitions=tuple(
                PartitionState(log_start=starts[p], high_watermark=ends[p], last_stable=stable[p])
                for p in every
            ),
        )

    def _current(self, topic: str) -> TopicLayout:
        """The topic's leaders now; the first incarnation this planner saw is the only one it accepts."""
        seen = self._layouts.get(topic)
        layout = (
            self._client.layout(topic)
            if seen is None
            else self._client.layout(topic, topic_id=seen.topic_id)
        )
        self._layouts[topic] = layout
        return layout


def _floor_beyond(place: str, floor: int, end: int) -> LogDamaged:
    return LogDamaged(
        f"{place} ends at offset {end}, but a boundary was set at {floor} before: the log was truncated.",
        hint="find out about unclean leader elections on this cluster; acknowledged records are gone.",
    )


def _open_transaction(topic: str, partition: int, offset: int, stable: int) -> NotYet:
    return NotYet(
        f"topic {topic!r} partition {partition}: the boundary is at offset {offset}, the last stable offset at {stable}: "
        f"a transaction that began at offset {stable} is still open.",
        hint="retry later; if it stays, look for its producer with kafka-transactions.sh find-hanging.",
    )
