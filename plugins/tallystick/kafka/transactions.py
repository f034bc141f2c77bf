"""kafka-python's transactional producer with deadlines: the library's own calls wait forever for a broker that is gone.

kafka-python is pinned to 3.0.x. Only this module uses these private parts of it:

    KafkaProducer._transaction_manager.send_offsets_to_transaction / .begin_commit / .last_error, ._sender.wakeup
    TransactionalRequestResult.wait(timeout_ms)

librdkafka was tried first: its `send_offsets_to_transaction` ignores its timeout if the group's coordinator has restarted
(librdkafka 2.16.0, issue 5456; it waited for more than 240 s in a test here).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from kafka import KafkaProducer, TopicPartition
from tallystick.kafka.connection import opened

ANSWER_MS = 60_000
TRANSACTION_MS = 60_000
REQUEST_BYTES_MAX = 64 << 20
CLOSE_S = 1.0

Headers = list[tuple[str, bytes]]


class TransactionalProducer:
    """A producer that sends whole transactions. `take` fences any earlier producer of its transactional id (KIP-98)."""

    def __init__(self, options: dict[str, Any], *, transactional_id: str) -> None:
        self._producer = opened(
            KafkaProducer,
            **options,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            delivery_timeout_ms=ANSWER_MS,
            max_block_ms=ANSWER_MS,
            # High enough that the topic's limit decides, not the client's.
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )

    def take(self) -> None:
        """End the open transaction of an earlier producer of this transactional id, and fence it. Raises KafkaError.

        Safe to repeat: the last producer that called it has the id.
        """
        self._producer.init_transactions()

    def send_all(
        self,
        topic: str,
        messages: Iterable[tuple[bytes | None, bytes, Headers]],
        *,
        group: str,
        offset: int,
        metadata: str,
    ) -> None:
        """Send messages (key, value, headers) and a group offset for partition 0 of the topic in one transaction.

        Raises KafkaError, also if the transaction may have been committed. Safe to repeat after the next `take`, if the
        caller reads the group's offset first: messages and offset were committed together, or neither was.
        """
        producer = self._producer
        manager, wake = producer._transaction_manager, producer._sender.wakeup
        with _with_cause(manager):
            producer.begin_transaction()
            sent = [
                producer.send(topic, value=value, key=key, headers=headers)
                for key, value, headers in messages
            ]
            place = {TopicPartition(topic, 0): OffsetAndMetadata(offset, metadata, -1)}
            placed = manager.send_offsets_to_transaction(place, group)
            wake()
            _wait(placed, "the offset")
            # The error of the first refused message has the reason; the commit's error would have none.
            deadline = time.monotonic() + ANSWER_MS / 1000
            for one in sent:
                one.get(timeout=max(0.001, deadline - time.monotonic()))
            committed = manager.begin_commit()
            wake()
            _wait(committed, "the commit")

    def close(self) -> None:
        """Close the producer; the next `take` aborts an open transaction. Safe to repeat: it stays closed."""
        self._producer.close(timeout=CLOSE_S)


def _wait(result: Any, what: str) -> None:
    if not result.wait(timeout_ms=ANSWER_MS):
        raise KafkaTimeoutError(f"{what} was not answered within {ANSWER_MS / 1000:g} s")


@contextmanager
def _with_cause(manager: Any) -> Iterator[None]:
    """Raise the error that ended the transaction, where the library raises a plain KafkaError that only quotes it.

    The library's thread can learn that the producer is fenced between two calls; which call fails is chance.
    """
    try:
        yield
    except KafkaError as error:
        if type(error) is KafkaError and manager.last_error is not None:
            raise manager.last_error from error
        raise
