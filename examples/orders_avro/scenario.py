"""The example `orders-avro`: orders of a schema registry, whose schema changes after the first day was committed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from examples.checks import CheckResult, run_check
from examples.checks.registered import read_content
from examples.checks.values import plain
from examples.orders_avro import check
from examples.orders_avro.orders import FIRST, KEY, SECOND, Order, orders
from examples.runner.framed import BREAKS, packed
from examples.runner.harness import Harness, day
from examples.runner.produce import Batch, Record, create_topic, produce
from examples.runner.writer_kill import BEFORE_REPORT, WriterKill

TOPIC, PARTITIONS = "examples-orders-avro", 3
FIRST_DAY, SECOND_DAY, KILL_DAY = 1, 2, 3
COUNT, BREAK_EVERY, ABORTED = 300, 50, 40
# A value that lacks its last byte lacks this field.
LAST_FIELDS = {1: "items", 2: "coupon"}


class OrdersAvro:
    """A day of the first schema, a day of both, the first replaced, the third with a kill."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.days: list[datetime] = []
        self.replaced = 0
        self.evolved = False

    def fill(self) -> int:
        """Register the first schema, and send a day of orders."""
        create_topic(self.harness.kafka, TOPIC, partitions=PARTITIONS)
        with SchemaRegistryClient(self.harness.registry) as client:
            client.register_schema(f"{TOPIC}-key", Schema(json.dumps(KEY), "AVRO"))
            client.register_schema(f"{TOPIC}-value", Schema(json.dumps(FIRST), "AVRO"))
            return self._send(client, FIRST_DAY, versions=(1,))

    def without_kill(self) -> None:
        """Run the first day; register the second schema and send the other days; run the second; replace the first."""
        self.harness.catch_up(1)
        self.days.append(day(FIRST_DAY))
        early = self._compare()
        self.harness.require(early.passed, "\n".join(early.lines()))
        with SchemaRegistryClient(self.harness.registry) as client:
            client.register_schema(f"{TOPIC}-value", Schema(json.dumps(SECOND), "AVRO"))
            for number in (SECOND_DAY, KILL_DAY):
                self._send(client, number, versions=(2, 1, 2))
        self.harness.log("the first day is committed; then the second schema was registered")
        self.harness.wait_for_success(self.harness.trigger(day(SECOND_DAY), day(SECOND_DAY + 1)))
        self.days.append(day(SECOND_DAY))
        self.evolved = True
        again = self.harness.trigger(day(FIRST_DAY), day(FIRST_DAY + 1), mode="replace")
        self.harness.wait_for_success(again)
        self.replaced = 1

    def with_kill(self) -> WriterKill:
        """Run the third day; its driver is killed between upload and report."""
        kill = self.harness.kill_writer(day(KILL_DAY), day(KILL_DAY + 1), BEFORE_REPORT)
        self.days.append(day(KILL_DAY))
        return kill

    def check(self) -> CheckResult:
        """Check rows, dead letters and schemas."""
        return run_check(self._compare)

    def _compare(self) -> CheckResult:
        return check.compare(
            read_content(self.harness.open_lake()),
            self.harness.sent,
            days=self.days,
            replaced=self.replaced,
            evolved=self.evolved,
        )

    def _send(self, client: SchemaRegistryClient, number: int, *, versions: tuple[int, ...]) -> int:
        """Send the orders of a day in transactions, one of copies is aborted; some values and keys are broken."""
        records = _records(client, orders(day(number), COUNT, versions=versions))
        half = len(records) // 2
        batches = [
            Batch(end="committed", records=records[:half]),
            Batch(end="aborted", records=records[half:][:ABORTED]),
            Batch(end="committed", records=records[half:]),
        ]
        return produce(self.harness.kafka, TOPIC, batches, sent=self.harness.sent)


def _records(client: SchemaRegistryClient, some: Sequence[Order]) -> list[Record]:
    """Return orders as records, serialized by confluent-kafka; every 50th is broken, each in another way."""
    # The schemas are registered already: an unknown one is an error, not a new version.
    how = {"auto.register.schemas": False, "subject.name.strategy": topic_subject_name_strategy}
    by_version = {
        version: AvroSerializer(client, json.dumps(schema), conf=how)
        for version, schema in ((1, FIRST), (2, SECOND))
    }
    of_key = AvroSerializer(client, json.dumps(KEY), conf=how)
    kinds = [*BREAKS, "key"]
    records = []
    for at, order in enumerate(some):
        value = by_version[order.version](
            order.value, SerializationContext(TOPIC, MessageField.VALUE)
        )
        key = of_key(order.key, SerializationContext(TOPIC, MessageField.KEY))
        recorded: dict[str, object] = {"table": check.TABLE, "row": plain(order.value)}
        if at % BREAK_EVERY == BREAK_EVERY - 1:
            kind = kinds[at // BREAK_EVERY % len(kinds)]
            if kind == "key":
                key = BREAKS["schema_id"](key)
                recorded = {"kind": "schema_id", "field": "key"}
            else:
                value = BREAKS[kind](value)
                field = LAST_FIELDS[order.version] if kind == "truncated" else None
                recorded = {"kind": kind, "field": field}
        records.append(
            Record(
                partition=at % PARTITIONS,
                at_ms=int(order.at.timestamp() * 1000),
                value=json.dumps(recorded),
                key=json.dumps(order.key),
                value_base64=packed(value),
                key_base64=packed(key),
            )
        )
    return records
