"""A client that answers each fetch from a script: answers that a healthy broker does not give on demand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Self

from support.kafka_batches import Sent, batch
from tallystick.connections.kafka import KafkaSettings
from tallystick.kafka.client import KafkaClient
from tallystick.kafka.wire import EpochEnd, Fetched, FetchOrder, Leader, TopicLayout, topic_id_text

TOPIC_ID = topic_id_text(uuid.UUID(int=5))
Answer = Fetched | Exception


def answer(*batches: bytes, error: type[Exception] | None = None, **how: Any) -> Fetched:
    words: dict[str, Any] = {
        "log_start": 0,
        "high_watermark": 100,
        "last_stable": 100,
        "aborted": (),
    }
    code = 0 if error is None else error.errno  # type: ignore[attr-defined]
    return Fetched(error_code=code, records=b"".join(batches), **(words | how))


class Script(KafkaClient):
    """Answers each fetch with the next answer of the script; a fetch after the last one is an error.

    A fetch that does not wait only asks if the topic is still the same one: its answer is `probe`.
    """

    def __init__(
        self,
        *answers: Answer,
        epochs: tuple[int, ...] = (0,),
        ends: Mapping[int, EpochEnd] | None = None,
        probe: Answer | None = None,
    ) -> None:
        super().__init__(KafkaSettings(bootstrap_servers=("nowhere:1",), request_timeout_ms=300))
        self.answers = list(answers)
        self.requested: list[int] = []
        self.orders: list[FetchOrder] = []
        self._epochs = list(epochs)
        self._ends = ends or {}
        self._probe = probe or answer()
        self.probes: list[FetchOrder] = []
        self.layouts = 0

    def __enter__(self) -> Self:
        return self

    def cluster_id(self) -> str:
        return "c"

    def layout(self, topic: str, *, topic_id: str | None = None) -> TopicLayout:
        self.layouts += 1
        epoch = self._epochs.pop(0) if len(self._epochs) > 1 else self._epochs[0]
        leaders = (Leader(node_id=1, epoch=epoch),)
        self._layouts[topic] = TopicLayout(name=topic, topic_id=TOPIC_ID, leaders=leaders)
        return self._layouts[topic]

    def epoch_ends(self, layout: TopicLayout, epochs: Any) -> dict[int, EpochEnd]:
        """Return the scripted end of an epoch; by default it has not ended."""
        current = EpochEnd(epoch=epochs[0], end_offset=100)
        return {0: self._ends.get(epochs[0], current)}

    def pause(self, attempt: int) -> None:
        pass

    def fetch(self, order: FetchOrder) -> Any:
        if order.wait_ms == 0:
            self.probes.append(order)
            return _Pending(self._probe, order)
        self.requested.append(order.offset)
        self.orders.append(order)
        answer = self.answers.pop(0) if self.answers else AssertionError("no answer is left")
        return _Pending(answer, order)


class _Pending:
    def __init__(self, answer: Answer, order: FetchOrder) -> None:
        self._answer = answer
        self.order = order

    def result(self) -> Fetched:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def numbered(start: int, end: int, **how: Any) -> bytes:
    return batch(*(Sent(value=b"%d" % i) for i in range(start, end)), base=start, **how)
