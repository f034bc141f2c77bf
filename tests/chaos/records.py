"""The records of a round: good ones, tombstones, broken values, and transactions that commit or abort."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaException, Producer

from chaos.workspace import PARTITIONS
from oracle.produced import ProducerLog, Sent, digest, produce_logged

FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
PLAIN, IN_TRANSACTION, ABORTED = 120, 60, 24  # calls per day: two of the first, one of each other
TRANSACTION_S = 60.0
END_TRIES = 5
_BROKEN = (b'{"n": ', b'{"n": "seven", "kind": "a", "text": ""}', b'{"n": 1}', b"\xff\xfe", b"[]")


def start_of(day: int) -> datetime:
    """Return the midnight (UTC) at which a day begins; day 1 is the first of the round."""
    return FIRST_DAY + timedelta(days=day - 1)


def value_of(n: int, kind: str, text: str) -> bytes:
    """Return the value of a good record."""
    return json.dumps({"n": n, "kind": kind, "text": text}).encode()


def row_of(value: bytes | None) -> dict[str, Any] | None:
    """Return the row that a value must become; None for a dead letter."""
    if value is None or value in _BROKEN:
        return None
    row: dict[str, Any] = json.loads(value)
    return row


def sums_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `per_kind` for an interval with these rows: one per kind."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["kind"]] += row["n"]
    return [{"kind": kind, "n": n} for kind, n in sums.items()]


def some_values(rng: random.Random, count: int) -> list[bytes | None]:
    """Return random values: most are good, some are null, some cannot be decoded."""
    values: list[bytes | None] = []
    for _ in range(count):
        drawn = rng.random()
        if drawn < 0.04:
            values.append(None)
        elif drawn < 0.08:
            values.append(rng.choice(_BROKEN))
        else:
            text = "ü" * rng.randrange(4) + f"{rng.getrandbits(64):x}"
            values.append(value_of(rng.randrange(-1000, 1000), rng.choice("abc"), text))
    return values


def produce_days(
    kafka: Mapping[str, str],
    topic: str,
    *,
    days: Sequence[int],
    rng: random.Random,
    log: ProducerLog,
) -> None:
    """Send the records of each day, plain ones interleaved with transactions; each is recorded in the log."""
    for day in days:
        for transaction, count in (
            ("none", PLAIN),
            ("commit", IN_TRANSACTION),
            ("abort", ABORTED),
            ("none", PLAIN),
        ):
            produce_logged(
                kafka["bootstrap.servers"],
                topic,
                some_values(rng, count),
                settings=dict(kafka),
                log=log,
                partitions=PARTITIONS,
                transaction=transaction,
                timestamps_ms=_times(rng, day, count),
            )


def _times(rng: random.Random, day: int, count: int) -> list[int]:
    """Return instants within one day, out of order: the interval of a record depends on its offset."""
    begin_ms = round(start_of(day).timestamp() * 1000)
    return [begin_ms + rng.randrange(DAY_MS) for _ in range(count)]


class OpenTransaction:
    """A producer whose transaction is open; the outcome of its records is recorded as unknown until its end."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        *,
        day: int,
        rng: random.Random,
        log: ProducerLog,
    ) -> None:
        self._log = log
        self.problem: str | None = None
        self._notes: dict[str, Sent] = {}
        self._producer = Producer(
            {
                **kafka,
                "transactional.id": f"{topic}-open",
                "log_level": 0,
                # Otherwise the broker aborts it by itself, which is not this nemesis.
                "transaction.timeout.ms": 600_000,
                "socket.connection.setup.timeout.ms": 5_000,
            }
        )
        self._producer.init_transactions(TRANSACTION_S)
        self._producer.begin_transaction()
        values = some_values(rng, IN_TRANSACTION)
        times = _times(rng, day, len(values))
        for number, value in enumerate(values):
            name, partition = uuid.uuid4().hex, number % PARTITIONS
            sent = Sent(topic, partition, None, "unknown", digest(value), times[number])
            self._notes[name] = sent
            log.note(sent, name=name)

            def delivered(error: object, message: object, name: str = name) -> None:
                if error is None:
                    note = self._notes[name]
                    self._notes[name] = replace(note, offset=message.offset())  # type: ignore[attr-defined]

            self._producer.produce(
                topic, value, partition=partition, timestamp=times[number], on_delivery=delivered
            )
        if self._producer.flush(TRANSACTION_S):
            raise RuntimeError("the open transaction's records were not acknowledged")

    def _end(self, *, commit: bool) -> None:
        """End the transaction. RetriableError errors are retried, because the broker has just been started."""
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        for remaining in reversed(range(END_TRIES)):
            try:
                end(TRANSACTION_S)
                return
            except KafkaException as error:
                if not remaining or not error.args[0].retriable():
                    raise

    def end(self, *, commit: bool) -> str:
        """Commit or abort, and record the outcome of the records; it is `unknown` if the broker did not answer."""
        outcome = "unknown"
        try:
            self._end(commit=commit)
            outcome = "ok" if commit else "aborted"
        except KafkaException as error:
            self.problem = str(error)
        for name, sent in self._notes.items():
            self._log.note(replace(sent, outcome=outcome), name=name)  # type: ignore[arg-type]
        return outcome
