"""The producer's own log of what it sent. The audit compares the lake with it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer

Outcome = Literal["ok", "failed", "aborted", "unknown"]
NULL = "null"
_DONE_S = 60.0
# The broker or the client refused the record itself: it is in no log. After any other error the record may be in the log.
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


def digest(value: bytes | None) -> str:
    """Return the name of a value: the SHA-256 of its bytes in hexadecimal, `null` for a tombstone."""
    return NULL if value is None else hashlib.sha256(value).hexdigest()


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as its producer recorded it.

    `offset` is None without an acknowledgement. `ok`: acknowledged, and its transaction, if any, was committed.
    `failed`: refused, it is in no log. `aborted`: its transaction was certainly aborted. `unknown`: any of these.
    `sha256` is `digest` of the value. `timestamp_ms` is the acknowledged time (the broker's own time under
    LogAppendTime), else the time that was sent. A topic that is deleted and created again is another topic of the same
    name: audit a lake with the records of the incarnation that it was created with.
    """

    topic: str
    partition: int
    offset: int | None
    outcome: Outcome
    sha256: str
    timestamp_ms: int


class ProducerLog:
    """Append-only JSON lines. `keep_values` also writes the values, for topics that will lose them.

    A note replaces the previous note of the same name. A producer notes `unknown` before it sends, so that every record
    in the topic has a note even if the producer is killed.
    """

    def __init__(self, path: Path | str, *, keep_values: bool = False) -> None:
        self.path = Path(path)
        self._keep_values = keep_values
        self._lock = threading.Lock()

    def note(self, sent: Sent, *, name: str | None = None, value: bytes | None = None) -> None:
        """Append one record. Not safe to repeat without a name: a second note is a second record."""
        line: dict[str, Any] = {**asdict(sent), "name": name or uuid.uuid4().hex}
        if self._keep_values and value is not None:
            line["value"] = base64.b64encode(value).decode()
        with self._lock, self.path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def read(self) -> list[Sent]:
        """Return every record in the order of its first note, with the fields of its last note."""
        return [Sent(**fields) for fields, _ in self._lines().values()]

    def values(self) -> dict[str, bytes]:
        """Return the stored values by their digest."""
        return {f["sha256"]: kept for f, kept in self._lines().values() if kept is not None}

    def _lines(self) -> dict[str, tuple[dict[str, Any], bytes | None]]:
        lines: dict[str, tuple[dict[str, Any], bytes | None]] = {}
        text = self.path.read_text() if self.path.exists() else ""
        # A killed producer may leave an incomplete last line. Its record was noted as unknown before.
        for whole in text.split("\n")[:-1]:
            fields = json.loads(whole)
            name, value = fields.pop("name"), fields.pop("value", None)
            kept = None if value is None else base64.b64decode(value)
            lines[name] = fields, kept if kept is not None else lines.get(name, ({}, None))[1]
        return lines


def produce_logged(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    log: ProducerLog,
    partitions: int | Sequence[int],
    transaction: Literal["none", "commit", "abort"] = "none",
    timestamps_ms: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    settings: dict[str, Any] | None = None,
    done_s: float = _DONE_S,
) -> list[Sent]:
    """Send values in order, to `partitions` in turn (a number means 0 to n-1). Log and return them.

    `transaction` sends all of them in one transaction and ends it accordingly. An error of a transaction is raised after
    its records were noted as unknown. Errors of single records are only noted. Not safe to repeat: it sends again.
    """
    rows = list(values)
    numbers = list(range(partitions)) if isinstance(partitions, int) else list(partitions)
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    config |= {"log_level": 0, **(settings or {})}
    if transaction != "none":
        config.setdefault("transactional.id", f"{topic}-{uuid.uuid4().hex}")
    notes = _Notes(log, rows)
    producer = Producer(config)
    try:
        if transaction != "none":
            producer.init_transactions(done_s)
            producer.begin_transaction()
        for number, value in enumerate(rows):
            at = {} if timestamps_ms is None else {"timestamp": timestamps_ms[number]}
            place = numbers[number % len(numbers)]
            notes.expect(number, topic, place, at.get("timestamp", 0))
            send = partial(
                producer.produce,
                topic,
                value,
                None if keys is None else keys[number],
                partition=place,
                on_delivery=partial(notes.delivered, number, transaction != "none"),
                **at,
            )
            refused = _queued(send, producer)
            if refused is not None:
                notes.failed(number, refused)
            producer.poll(0)
        producer.flush(done_s)
        if transaction == "commit":
            producer.commit_transaction(done_s)
            notes.end("ok")
        elif transaction == "abort":
            producer.abort_transaction(done_s)
            notes.end("aborted")
    except KafkaException:
        if transaction == "none":
            raise
        notes.end("unknown")
        raise
    return notes.sent


def _queued(send: Callable[[], None], producer: Producer) -> KafkaError | None:
    """Pass a record to librdkafka. Return the error if the record itself is refused."""
    while True:
        try:
            send()
        except BufferError:  # its queue is full
            producer.poll(0.1)
        except KafkaException as error:
            if error.args[0].code() not in _REFUSED:
                raise
            return error.args[0]
        else:
            return None


class _Notes:
    """The notes of one call: first that a record is about to be sent, then how its delivery ended."""

    def __init__(self, log: ProducerLog, values: Sequence[bytes | None]) -> None:
        self._log, self._values = log, values
        self._names = [uuid.uuid4().hex for _ in values]
        self.sent: list[Sent] = []

    def expect(self, number: int, topic: str, partition: int, at_ms: int) -> None:
        value = self._values[number]
        self.sent.append(Sent(topic, partition, None, "unknown", digest(value), at_ms))
        self._log.note(self.sent[number], name=self._names[number], value=value)

    def delivered(
        self, number: int, pending: bool, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self.failed(number, error)
            return
        acknowledged = replace(
            self.sent[number], offset=message.offset(), timestamp_ms=message.timestamp()[1]
        )
        self._note(number, acknowledged if pending else replace(acknowledged, outcome="ok"))

    def failed(self, number: int, error: KafkaError) -> None:
        outcome: Outcome = "failed" if error.code() in _REFUSED else "unknown"
        self._note(number, replace(self.sent[number], outcome=outcome))

    def end(self, outcome: Outcome) -> None:
        """Note how the transaction ended: `ok` for acknowledged records only, `aborted` for all records."""
        for number, record in enumerate(self.sent):
            certain = record.offset is not None or outcome == "aborted"
            if certain and record.outcome == "unknown":
                self._note(number, replace(record, outcome=outcome))

    def _note(self, number: int, sent: Sent) -> None:
        self.sent[number] = sent
        self._log.note(sent, name=self._names[number])
