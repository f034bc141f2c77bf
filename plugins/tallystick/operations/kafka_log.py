"""The port of Kafka's log, as the use cases need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tallystick.format.offsets import Position


class PartitionView(Protocol):
    """The offsets of one partition, as the broker returned them."""

    @property
    def log_start(self) -> int:
        """The first offset that the partition still has."""
        ...


class TopicDescription(Protocol):
    """One topic incarnation, as the broker returned it; the index of `partitions` is the partition number."""

    @property
    def topic_id(self) -> str:
        """The topic's id (KIP-516)."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        ...

    @property
    def compacted(self) -> bool:
        """True if cleanup.policy contains `compact`: offsets may be absent then."""
        ...

    @property
    def partitions(self) -> Sequence[PartitionView]:
        """The partitions."""
        ...


class KafkaLog(Protocol):
    """The Kafka queries of planning and of a lookback. The implementation is in tallystick.kafka.planning."""

    def topics(self) -> Sequence[str]:
        """Return the names of the topics that this user may see, without Kafka's internal ones."""
        ...

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        """Return identity and offsets of each topic. Raises IdentityChanged if a topic does not exist."""
        ...

    def boundary(
        self, topic: str, at_ms: int, floors: Sequence[int], *, latest_ms: int
    ) -> Sequence[Position]:
        """Return the boundary at `at_ms` per partition, searched from `floors`; skip records later than `latest_ms`.

        Raises NotYet if a boundary is after the last stable offset: an open transaction begins before it.
        """
        ...

    def log_starts(self, topic: str) -> Sequence[int]:
        """Return the first offset that each partition still has."""
        ...

    def unproven(self, topic: str, positions: Sequence[Position], at_ms: int) -> Mapping[int, int]:
        """Return the log start of each partition whose log does not prove that it begins before `at_ms`.

        `positions` are the boundary at `at_ms`. The log starts are read after them. One or two records before the
        boundary prove nothing: they may have arrived late.
        """
        ...

    def diverged(self, topic: str, positions: Sequence[Position]) -> Sequence[str]:
        """Return a message for each position at which the log now has another history (KIP-101); empty if none has."""
        ...
