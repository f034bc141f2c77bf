"""The records of the brokers' log, read by an independent client (librdkafka)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

Headers = tuple[tuple[str, bytes | None], ...]
_TIMEOUT_S = 60.0
_ROUND_S = 0.1
NO_LOGIN: Mapping[str, str] = {}  # a broker that accepts every client


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record in a log."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition up to an offset: its current log start, its committed records, and all offsets with data."""

    begin: int
    committed: Mapping[int, LogRecord]
    any_data: frozenset[int]


def topic_id(bootstrap: str, topic: str, login: Mapping[str, str] = NO_LOGIN) -> str | None:
    """Return the current topic id in the spelling of Kafka's tools, None if the topic does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **login})
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic]
    try:
        # librdkafka uses + and /, Kafka's own tools use - and _.
        return str(future.result(_TIMEOUT_S).topic_id).translate(str.maketrans("+/", "-_"))
    except Exception as error:
        if "UNKNOWN_TOPIC_OR_PART" in str(error):
            return None
        raise


def read_log(
    bootstrap: str, topic: str, ends: Mapping[int, int], login: Mapping[str, str] = NO_LOGIN
) -> dict[int, PartitionLog]:
    """Read each partition of `ends` from its log start up to that offset, twice: read_committed and not."""
    begins, committed = _read(bootstrap, topic, ends, "read_committed", login)
    _, everything = _read(bootstrap, topic, ends, "read_uncommitted", login)
    return {p: PartitionLog(begins[p], committed[p], frozenset(everything[p])) for p in ends}


def _read(
    bootstrap: str, topic: str, ends: Mapping[int, int], isolation: str, login: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, dict[int, LogRecord]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"oracle-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "receive.message.max.bytes": 256 << 20,
            "log_level": 0,
            **login,
        }
    )
    records: dict[int, dict[int, LogRecord]] = {p: {} for p in ends}
    try:
        begins = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_TIMEOUT_S)[0]
            for p in ends
        }
        waiting = {p for p, end in ends.items() if begins[p] < end}
        consumer.assign([TopicPartition(topic, p, begins[p]) for p in sorted(waiting)])
        deadline = time.monotonic() + _TIMEOUT_S
        while waiting:
            # `consume` waits for 1,000 messages or for its timeout.
            messages = consumer.consume(1_000, _ROUND_S)
            if messages:
                deadline = time.monotonic() + _TIMEOUT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic} {sorted(waiting)}: no answer for {_TIMEOUT_S:g} s")
            for message in messages:
                error, p, offset = message.error(), message.partition(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(f"{topic}[{p}]: {error}")
                if error is None and offset < ends[p]:
                    records[p][offset] = LogRecord(
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                if error is not None or offset >= ends[p] - 1:
                    waiting.discard(p)
    finally:
        consumer.close()
    return begins, records
