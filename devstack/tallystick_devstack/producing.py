"""Sends lines to a topic of the embedded Kafka, each as one record, and counts the delivery reports.

The producer is librdkafka's: idempotent, acks=all. A key has the partition that Java's producer gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tallystick.cli.text import many
from tallystick.errors import InvalidRequest, KafkaUnavailable, TallystickError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

DELIVERY_S = 60.0
AGAIN = "A repetition sends every line again: use a new topic for it."
_POLL_EVERY = 1_000
_FLUSH_S = 0.5
_QUEUE_KB = 256 << 10
# Smaller values are not allowed by librdkafka.
_MESSAGE_MIN, _MESSAGE_MAX = 1_000, 1_000_000_000
# The client counts the headers of batch and record, too.
OVERHEAD = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """One record to send; `line` is the number of its line. `at_ms` None: the time of sending."""

    line: int
    value: bytes
    key: bytes | None = None
    at_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class PartitionCount:
    """The confirmed records of a partition, and the first and last of their offsets."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True, kw_only=True)
class Delivered:
    """What the delivery reports have confirmed. `cause`: the first line that the broker refused, and its error.

    `unconfirmed_line`: the first line without a confirmation. It can be an earlier one, of another partition.
    """

    partitions: dict[int, PartitionCount] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    unconfirmed_line: int | None = None
    cause: tuple[int, KafkaError] | None = None

    @property
    def records(self) -> int:
        """The number of confirmed records."""
        return sum(one.records for one in self.partitions.values())

    def report(self, line: int, error: KafkaError | None, message: Message) -> None:
        """Count one delivery report."""
        if error is not None:
            self.fail(line, error)
            return
        count = self.partitions.setdefault(int(message.partition() or 0), PartitionCount())
        offset, (_, at_ms) = int(message.offset() or 0), message.timestamp()
        count.records += 1
        count.first_offset = offset if count.first_offset < 0 else min(count.first_offset, offset)
        count.last_offset = max(count.last_offset, offset)
        self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
        self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)

    def fail(self, line: int, error: KafkaError) -> None:
        """Count one record that is not confirmed."""
        if self.unconfirmed_line is None or line < self.unconfirmed_line:
            self.unconfirmed_line = line
        if error.code() in _consequences():
            return
        if self.cause is None or line < self.cause[0]:
            self.cause = (line, error)


def _consequences() -> set[int]:
    """Return the codes of records that failed only because another one did."""
    from confluent_kafka import KafkaError

    return {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }


def produce(
    kafka: Mapping[str, Any],
    topic: str,
    records: Iterable[NewRecord],
    delivered: Delivered,
    *,
    headers: Sequence[tuple[str, bytes]] = (),
    message_bytes_max: int,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Send the records in order, and return when each is confirmed by the broker; `delivered` counts during the call.

    `kafka`: librdkafka's settings for the broker. `message_bytes_max`: the topic's max.message.bytes. `watch` is called
    now and then. Raises KafkaUnavailable if a record is not confirmed in time, InvalidRequest if the broker refuses one;
    then nothing more is sent. Not safe to repeat: a second call appends every record again. Within one call no record is
    appended twice, because the broker knows the sequence numbers of an idempotent producer.
    """
    producer = _producer(kafka, message_bytes_max)
    complete = False
    try:
        for number, record in enumerate(records):
            _send(producer, topic, record, headers, delivered)
            if number % _POLL_EVERY == 0:
                producer.poll(0)
                watch()
            if delivered.cause is not None:
                break
        complete = True
    except InvalidRequest:
        complete = True  # a line that may not be sent: all lines before it are
        raise
    finally:
        _finish(producer, delivered, watch, complete=complete)
    if delivered.cause is not None:
        raise _failed(topic, str(kafka["bootstrap.servers"]), delivered)


def _finish(
    producer: Producer, delivered: Delivered, watch: Callable[[], None], *, complete: bool
) -> None:
    """Wait until each record is confirmed or has failed; after a failure, drop those that are not on their way yet."""
    left = 1
    while left:
        if delivered.cause is not None or not complete:
            producer.purge(in_queue=True, in_flight=False)
        left = producer.flush(_FLUSH_S)  # each record fails after DELIVERY_S, so this ends
        watch()


def _producer(kafka: Mapping[str, Any], message_bytes_max: int) -> Producer:
    from confluent_kafka import Producer

    message_max = max(_MESSAGE_MIN, min(message_bytes_max + OVERHEAD, _MESSAGE_MAX))
    return Producer(
        {
            **kafka,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
            "message.max.bytes": message_max,
            # The broker's limit is for a batch.
            "batch.size": min(1_000_000, max(1, message_bytes_max - OVERHEAD)),
            "message.timeout.ms": round(DELIVERY_S * 1000),
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "log_level": 0,
        }
    )


def _send(
    producer: Producer,
    topic: str,
    record: NewRecord,
    headers: Sequence[tuple[str, bytes]],
    delivered: Delivered,
) -> None:
    from confluent_kafka import KafkaException

    settings: dict[str, Any] = {"headers": list(headers)} if headers else {}
    if record.at_ms is not None:
        settings["timestamp"] = record.at_ms
    report = partial(delivered.report, record.line)
    while delivered.cause is None:
        try:
            producer.produce(topic, record.value, record.key, on_delivery=report, **settings)
            return
        except BufferError:
            producer.poll(0.1)  # the queue is full
        except KafkaException as error:
            delivered.fail(record.line, error.args[0])


def _failed(topic: str, place: str, delivered: Delivered) -> TallystickError:
    from confluent_kafka import KafkaError

    assert delivered.cause is not None
    line, error = delivered.cause
    refused = {
        KafkaError.INVALID_TIMESTAMP: "correct its time; or allow it with --config "
        "message.timestamp.after.max.ms=... or message.timestamp.before.max.ms=... of `tally local topic create`",
        KafkaError.MSG_SIZE_TOO_LARGE: "split the line, or create the topic with a larger max.message.bytes (--config)",
        KafkaError.INVALID_RECORD: "name a field with a value in every line as --key: a compacted topic takes no record "
        "without a key",
        KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic: it was deleted meanwhile",
    }
    first = delivered.unconfirmed_line
    earlier = f" The first line without a confirmation is {first}." if first != line else ""
    message = (
        f"line {line} to topic {topic} at {place}: expected a confirmation, found: {error.str()}. Confirmed: "
        f"{many(delivered.records, 'record')}.{earlier}"
    )
    if error.code() in refused:
        return InvalidRequest(message, hint=f"{refused[error.code()]}. {AGAIN}")
    return KafkaUnavailable(
        message,
        hint=f"check `tally local status`. Records that are not confirmed may be in the topic, or not. {AGAIN}",
    )
