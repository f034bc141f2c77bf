"""What brokers answer, as values of our own: nothing of a client library leaks past `client`."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass

LATEST = -1
EARLIEST = -2
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Which broker leads a partition, and in which epoch."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """One incarnation of a topic and the leader of each partition; the index is the partition number."""

    name: str
    topic_id: str
    leaders: tuple[Leader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """What to ask of a partition's leader: bytes of the log from `offset` on.

    `committed` reads up to the last stable offset and lists aborted transactions; else up to the high watermark. `rack`
    lets the leader name a replica that is nearer; `replica` is the one it named, to be asked instead of the leader.
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
    """A broker's answer: record batches as they lie in the log, or the protocol's error code.

    `preferred` is the replica that the leader would have us ask instead (KIP-392); such an answer holds no records.
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
    """Where a leader says that an epoch ended: the largest epoch up to the asked one, and the offset after it."""

    epoch: int
    end_offset: int


def topic_id_text(raw: uuid.UUID) -> str:
    """Spell a topic id as Kafka's own tools do: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(raw.bytes).decode().rstrip("=")


def topic_id_uuid(text: str) -> uuid.UUID:
    """Read Kafka's spelling of a topic id; raises ValueError where it is none."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
