"""Sends the demo's flights to Kafka, and records what was sent: the reference of the check.

The client is librdkafka: the reader under test shares no code with the producer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from examples.demo.flights import PARTITIONS, Batch, Flight
from tallystick.errors import KafkaUnavailable
from tallystick_devstack.topics import FOREVER, RETENTION, Topics

TIMEOUT_S = 60.0
_POLL_EVERY = 5_000
# Errors are raised. That a broker does not run yet, or no longer, is not logged.
_LOG_LEVEL = 0
SENT_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        # ok, cut, type, utf8, or aborted: a copy of a flight, in a transaction that was aborted.
        ("kind", pa.string()),
        # The field that is wrong, if the kind is type.
        ("wrong", pa.string()),
        # committed or aborted if it was sent in a transaction, else null.
        ("transaction", pa.string()),
        ("key", pa.binary()),
        ("row", pa.int32()),
        ("at_ms", pa.int64()),
        ("value_sha256", pa.string()),
    ]
)


def create_topic(kafka: Mapping[str, str], topic: str) -> None:
    """Create the topic. Retention is off: 2013's timestamps would be deleted within minutes.

    `kafka`, here and below: librdkafka's settings for the broker, with user and password if it requires them.
    Not safe to repeat: a topic that exists is refused (InvalidRequest).
    """
    Topics(kafka).create(topic, partitions=PARTITIONS, config={RETENTION: FOREVER})


def produce(
    kafka: Mapping[str, str], topic: str, batches: Sequence[Batch], *, sent: Path | None
) -> int:
    """Send the batches in order, write one row per record to the Parquet file `sent` if any; return their number.

    Offsets are those of the delivery reports. Raises KafkaUnavailable if a record was not acknowledged. Not safe to
    repeat: a second call sends everything again, so the demo starts with a new topic each time.
    """
    log = _SendLog()
    for batch in batches:
        settings = {
            **kafka,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": _LOG_LEVEL,
        }
        if batch.end != "plain":
            settings["transactional.id"] = f"{topic}-{batch.end}"
        try:
            _send(Producer(settings), topic, batch, log)
        except KafkaException as error:
            raise _unavailable(kafka, str(error)) from error
        if log.problem is not None:
            raise _unavailable(kafka, log.problem)
    if sent is not None:
        pq.write_table(log.table(), sent)
    return len(log.lines)


def _send(producer: Producer, topic: str, batch: Batch, log: _SendLog) -> None:
    if batch.end != "plain":
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    for number, flight in enumerate(batch.flights):
        kind = "aborted" if batch.end == "aborted" else flight.kind
        line = log.expect(flight, kind, None if batch.end == "plain" else batch.end)
        producer.produce(
            topic,
            flight.value,
            flight.key,
            partition=flight.partition,
            timestamp=flight.at_ms,
            on_delivery=partial(log.delivered, line),
        )
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        log.problem = log.problem or f"not everything was acknowledged within {TIMEOUT_S:g} s"
    # The next batch starts only after the end of this batch is written: the log stays in time order.
    if batch.end == "committed":
        producer.commit_transaction(TIMEOUT_S)
    elif batch.end == "aborted":
        producer.abort_transaction(TIMEOUT_S)


class _SendLog:
    """The records that were sent, in the order of sending; the delivery reports add the offsets."""

    def __init__(self) -> None:
        self.lines: list[tuple[Flight, str, str | None]] = []
        self.offsets: list[int] = []
        self.problem: str | None = None

    def expect(self, flight: Flight, kind: str, transaction: str | None) -> int:
        self.lines.append((flight, kind, transaction))
        self.offsets.append(-1)
        return len(self.lines) - 1

    def delivered(self, line: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self.problem = self.problem or f"a record was not acknowledged ({error})"
        else:
            self.offsets[line] = offset

    def table(self) -> pa.Table:
        flights = [flight for flight, _, _ in self.lines]
        columns = [
            [flight.partition for flight in flights],
            self.offsets,
            [kind for _, kind, _ in self.lines],
            [flight.wrong for flight in flights],
            [transaction for _, _, transaction in self.lines],
            [flight.key for flight in flights],
            [flight.row for flight in flights],
            [flight.at_ms for flight in flights],
            [hashlib.sha256(flight.value).hexdigest() for flight in flights],
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SENT_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SENT_SCHEMA)


def _unavailable(kafka: Mapping[str, str], what: str) -> KafkaUnavailable:
    return KafkaUnavailable(
        f"producing the demo's flights to {kafka['bootstrap.servers']}: {what}.",
        hint="read the broker's log (`tally local status` prints its path), then run the demo again.",
    )
