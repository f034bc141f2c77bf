"""Requests to brokers and their answers, as tallystick's own types: `client` returns none of kafka-python's."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass

LATEST = -1
EARLIEST = -2
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The broker that leads a partition, and its leader epoch."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """One incarnation of a topic. `leaders` has the leader of each partition; the index is the partition number."""

    name: str
    topic_id: str
    leaders: tuple[Leader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """A request to a partition's leader for bytes of the log from `offset` on.

    If `committed`, the answer ends at the last stable offset and lists aborted transactions; otherwise it ends at the
    high watermark. With `rack`, the leader may name a nearer replica. `replica` is the replica that it named: the fetch
    goes there instead of to the leader.
    """

    layout: TopicLayout
    partition: int
    offset: int
    bytes_max: int
    wait_ms: int
    committed: bool
    rack: str = ""
    replica: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An aborted transaction that touches the fetched bytes: its producer and its first offset."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A broker's answer to a fetch: record batches as stored in the log, or the protocol's error code.

    `preferred` is the replica to which the leader redirects the fetch (KIP-392); such an answer has no records.
    """

    error_code: int
    records: bytes
    log_start: int
    high_watermark: int
    last_stable: int
    aborted: tuple[AbortedTransaction, ...]
    preferred: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The end of an epoch, according to a leader: the largest epoch up to the requested one, and the offset after it."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """The log of a partition: `start <= offset < end`.

    `next_at_ms`: the timestamp of the first record at or after the requested offset, in milliseconds since 1970. None if
    there is no such record, or if the broker did not return it.
    """

    start: int
    end: int
    next_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRetention:
    """What a topic keeps: `kept_ms` is its retention.ms, `kept_bytes` its retention.bytes, of each partition.

    None: records are not deleted by their age, or by the size of the log.
    """

    kept_ms: int | None = None
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """A topic in Kafka: its identity and its partitions (the index is the partition number).

    `kept_ms`: how long records are kept, `retention.ms`. None if they are not deleted by their age, or if this user may
    not read the topic's configuration. `kept_bytes`: the same of `retention.bytes`.
    """

    topic_id: str
    cluster_id: str
    partitions: tuple[PartitionEnds, ...]
    kept_ms: int | None = None
    kept_bytes: int | None = None


def topic_id_text(raw: uuid.UUID) -> str:
    """Format a topic id as Kafka's own tools do: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(raw.bytes).decode().rstrip("=")


def topic_id_uuid(text: str) -> uuid.UUID:
    """Parse a topic id in Kafka's text form. Raises ValueError if it is not one."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
