"""Creates the topics of the example `fanout`, registers schemas, and sends records; records what was sent."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.checks.values import plain
from examples.fanout.shapes import Value

TIMEOUT_S = 60.0
# One request per topic: registries have no other way.
_REQUESTS_AT_ONCE = 4

End = Literal["plain", "committed", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record to send to partition 0 of a topic.

    `table` and `interval`: the table and the day whose commit must contain it; None if no table may. `document`: the
    value that was encoded; None if the record cannot be read, for the reason `kind`.
    """

    topic: str
    at_ms: int
    value: bytes
    table: str | None
    interval: int
    document: Value | None = None
    kind: str | None = None


def create_topics(kafka: Mapping[str, str], names: Sequence[str]) -> None:
    """Create topics of one partition without retention, because the example's records are of 2013.

    Not safe to repeat: a topic that exists is refused (KafkaException).
    """
    admin = AdminClient({**kafka, "log_level": 0})
    new = [NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in names]
    for created in admin.create_topics(new, operation_timeout=TIMEOUT_S).values():
        created.result(TIMEOUT_S)


def register(
    connection: Mapping[str, str], schemas: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[int]:
    """Register an Avro schema for each (topic, schema), as the subject of the topic's values; return their ids.

    `connection`: `urls`, `username` and `password` of a registry. Safe to repeat: a schema that a subject has keeps its
    version and its id.
    """
    login = f"{connection['username']}:{connection['password']}".encode()
    headers = {
        "Authorization": f"Basic {base64.b64encode(login).decode()}",
        "Content-Type": "application/vnd.schemaregistry.v1+json",
    }
    # No proxy of the environment: the registry is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(one: tuple[str, Mapping[str, Any]]) -> int:
        topic, schema = one
        request = urllib.request.Request(
            f"{connection['urls']}/subjects/{quote(topic)}-value/versions",
            data=json.dumps({"schema": json.dumps(schema)}).encode(),
            headers=headers,
        )
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return int(json.load(answer)["id"])

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(post, schemas))


class Sender:
    """Sends records in transactions that commit or abort, or in none; appends a line per record to `sent`."""

    def __init__(self, kafka: Mapping[str, str], transactional_id: str, sent: Path) -> None:
        settings: dict[str, Any] = {**kafka, "enable.idempotence": True, "log_level": 0}
        self._plain = Producer(settings)
        self._transactional = Producer(settings | {"transactional.id": transactional_id})
        self._transactional.init_transactions(TIMEOUT_S)
        self._sent = sent

    def send(self, records: Collection[Sent], end: End) -> int:
        """Send records, all in one transaction unless `end` is plain; return their number.

        Raises RuntimeError if a record was not acknowledged. Not safe to repeat: everything would be sent again.
        """
        producer = self._plain if end == "plain" else self._transactional
        delivered: list[int | None] = [None] * len(records)
        if end != "plain":
            producer.begin_transaction()
        for at, record in enumerate(records):
            producer.produce(
                record.topic,
                record.value,
                partition=0,
                timestamp=record.at_ms,
                on_delivery=_noted(delivered, at),
            )
            producer.poll(0)
        producer.flush(TIMEOUT_S)
        if end == "committed":
            producer.commit_transaction(TIMEOUT_S)
        elif end == "aborted":
            producer.abort_transaction(TIMEOUT_S)
        if missing := delivered.count(None):
            raise RuntimeError(f"expected {len(records)} acknowledgements, {missing} are missing")
        with self._sent.open("a", encoding="utf-8") as log:
            for line in _lines(records, end, delivered):
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
        return len(records)


def _noted(delivered: list[int | None], at: int) -> Any:
    def note(error: Any, message: Message) -> None:
        if error is None:
            delivered[at] = message.offset()

    return note


def _lines(
    records: Collection[Sent], end: End, offsets: Sequence[int | None]
) -> Iterator[dict[str, Any]]:
    for record, offset in zip(records, offsets, strict=True):
        yield {
            "topic": record.topic,
            "offset": offset,
            "at_ms": record.at_ms,
            "end": end,
            "table": record.table,
            "interval": record.interval,
            "document": plain(record.document),
            "kind": record.kind,
            "value": base64.b64encode(record.value).decode(),
        }
