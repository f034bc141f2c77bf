"""The example `orders-protobuf`: orders and refunds in one topic, two messages of one schema that imports another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from confluent_kafka.schema_registry import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from examples.checks import CheckResult, run_check
from examples.checks.registered import read_content
from examples.checks.values import plain
from examples.orders_protobuf import check
from examples.orders_protobuf.messages import (
    MONEY_FILE,
    ORDERS_FILE,
    PROTOS,
    Event,
    events,
    message_classes,
)
from examples.runner.framed import BREAKS, packed, unknown_message
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.writer_kill import AFTER_SWAP, WriterKill

TOPIC, PARTITIONS = "examples-orders-protobuf", 3
FIRST_DAY, KILL_DAY = 1, 2
COUNT, BREAK_EVERY, ABORTED = 300, 29, 40
_BREAKS = {**BREAKS, "message": unknown_message}


class OrdersProtobuf:
    """A day by the schedule, the second with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.days: list[datetime] = []

    def fill(self) -> int:
        """Register the schemas, and send two days of events in transactions, one of copies is aborted each day."""
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        batches: list[Batch] = []
        with _ByFile(self.harness.registry) as client:
            client.register()
            for number in (FIRST_DAY, KILL_DAY):
                records = _records(client, events(day(number), COUNT))
                half = len(records) // 2
                batches.append(Batch(end="committed", records=records[:half]))
                batches.append(Batch(end="aborted", records=records[half:][:ABORTED]))
                batches.append(Batch(end="committed", records=records[half:]))
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)

    def without_kill(self) -> None:
        """Run the first day."""
        self.harness.catch_up(1)
        self.days.append(day(FIRST_DAY))

    def with_kill(self) -> WriterKill:
        """Run the second day; its commit is killed between the swap and the reply."""
        kill = self.harness.kill_writer(day(KILL_DAY), day(KILL_DAY + 1), AFTER_SWAP)
        self.days.append(day(KILL_DAY))
        return kill

    def check(self) -> CheckResult:
        """Check rows and dead letters."""
        return run_check(
            lambda: check.compare(
                read_content(self.harness.open_lake()), self.harness.sent, days=self.days
            )
        )


class _ByFile(SchemaRegistryClient):
    """A client of a registry whose schemas are .proto files.

    The serializer looks its schemas up by their compiled form, which this registry does not recognize as the same schema;
    here they are looked up by subject.
    """

    def register(self) -> None:
        """Register both files; the second refers to the first."""
        money, orders = ((PROTOS / name).read_text("utf-8") for name in (MONEY_FILE, ORDERS_FILE))
        self.register_schema(MONEY_FILE, Schema(money, "PROTOBUF"))
        version = self.get_latest_version(MONEY_FILE).version
        imported = SchemaReference(MONEY_FILE, MONEY_FILE, version)
        self.register_schema(f"{TOPIC}-value", Schema(orders, "PROTOBUF", [imported]))

    def lookup_schema(self, subject_name: str, *_: Any, **__: Any) -> RegisteredSchema:
        """Return the latest version of the subject."""
        return self.get_latest_version(subject_name)


def _records(client: SchemaRegistryClient, some: Sequence[Event]) -> list[Record]:
    """Return events as records, serialized by confluent-kafka; every 29th is broken, each in another way."""
    how = {"auto.register.schemas": False, "subject.name.strategy": topic_subject_name_strategy}
    classes = message_classes()
    serializers = {name: ProtobufSerializer(kind, client, how) for name, kind in classes.items()}
    records = []
    for at, event in enumerate(some):
        context = SerializationContext(TOPIC, MessageField.VALUE)
        value = serializers[event.kind](event.message(classes), context)
        recorded: dict[str, object] = {"table": event.table, "row": plain(event.row)}
        if at % BREAK_EVERY == BREAK_EVERY - 1:
            kind = list(_BREAKS)[at // BREAK_EVERY % len(_BREAKS)]
            value = _BREAKS[kind](value)
            recorded = {"kind": kind, "field": event.last_field if kind == "truncated" else None}
        records.append(
            Record(
                partition=at % PARTITIONS,
                at_ms=int(event.at.timestamp() * 1000),
                value=json.dumps(recorded),
                value_base64=packed(value),
            )
        )
    return records
