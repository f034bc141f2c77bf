"""A transactional producer with deadlines: kafka-python's, whose own calls wait for ever on a broker that is gone.

kafka-python is pinned to 3.0.x, and these parts of it are private, used here and nowhere else:

    KafkaProducer._transaction_manager.send_offsets_to_transaction / .begin_commit, ._sender.wakeup
    TransactionalRequestResult.wait(timeout_ms)

librdkafka was tried first: its `send_offsets_to_transaction` heeds no timeout where the group's coordinator has restarted
(librdkafka 2.16.0, issue 5456; seen here, more than 240 s long).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from kafka import KafkaProducer, TopicPartition
from tallystick.kafka.connection import opened

ANSWER_MS = 60_000
TRANSACTION_MS = 60_000
REQUEST_BYTES_MAX = 64 << 20
CLOSE_S = 1.0

Headers = list[tuple[str, bytes]]


class TransactionalProducer:
    """Sends whole transactions. One per transactional id is alive: `take` fences whoever had it before (KIP-98)."""

    def __init__(self, options: dict[str, Any], *, transactional_id: str) -> None:
        self._producer = opened(
            KafkaProducer,
            **options,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            delivery_timeout_ms=ANSWER_MS,
            max_block_ms=ANSWER_MS,
            # The topic's own limit decides, not the client's.
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )

    def take(self) -> None:
        """End what an earlier producer of this id left open, and fence it. Raises KafkaError.

        Safe to repeat: the last one has it.
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
        """Send (key, value, headers) and a group offset for partition 0 of the topic in one transaction.

        Raises KafkaError, also where it may have been committed. Safe to repeat after the next `take`, by whoever reads
        the group's offset first: both moved or neither did.
        """
        producer = self._producer
        manager, wake = producer._transaction_manager, producer._sender.wakeup
        producer.begin_transaction()
        sent = [
            producer.send(topic, value=value, key=key, headers=headers)
            for key, value, headers in messages
        ]
        place = {TopicPartition(topic, 0): OffsetAndMetadata(offset, metadata, -1)}
        placed = manager.send_offsets_to_transaction(place, group)
        wake()
        _wait(placed, "the offset")
        # The first message that was refused says why; the commit would only say that one was.
        deadline = time.monotonic() + ANSWER_MS / 1000
        for one in sent:
            one.get(timeout=max(0.001, deadline - time.monotonic()))
        committed = manager.begin_commit()
        wake()
        _wait(committed, "the commit")

    def close(self) -> None:
        """Let go of it; what is open is aborted by the next `take`. Safe to repeat."""
        self._producer.close(timeout=CLOSE_S)


def _wait(result: Any, what: str) -> None:
    if not result.wait(timeout_ms=ANSWER_MS):
        raise KafkaTimeoutError(f"{what} was not answered within {ANSWER_MS / 1000:g} s")
