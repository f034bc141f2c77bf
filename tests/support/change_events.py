"""Change events of Debezium for tests: recorded ones, and random ones in each form in which a topic can have them."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from tallystick.engine.decode.decoder import Decoded, decoder_of, schema_of
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema, SchemaKind, schema_digest
from tallystick.pipeline import Column, Debezium

FOLDER = Path(__file__).parents[1] / "unit" / "engine" / "decode" / "debezium"
FORMS = ("bare", "wrapped", "json_schema", "avro")
"""JSON alone, JSON with Kafka Connect's schema around it, and both formats of Confluent's wire format."""
ORDER = [
    Column("id", "long"),
    Column("status", "string", required=False),
    Column("price", "decimal(9,2)", required=False),
    Column("scale", "int", required=False, source="free.scale"),
    Column("unscaled", "binary", required=False, source="free.value"),
    Column("day", "date", required=False, parse="epoch_days"),
    Column("at", "timestamp", required=False, parse="epoch_us"),
    Column("at_ms", "timestamp", required=False, parse="epoch_ms"),
    Column("atz", "timestamptz", required=False),
    Column("t", "long", required=False),
    Column("ok", "boolean"),
    Column("u", "uuid", required=False),
    Column("j", "string", required=False),
    Column("b", "binary", required=False),
    Column("tags", "list<optional string>", required=False),
]
EVENT = [
    Column("lsn", "long", source="source.lsn"),
    Column("tx", "string", required=False, source="transaction.id"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """A record of one topic in each form; a tombstone is None in all of them."""

    topic: str
    key: bytes | None
    forms: dict[str, bytes | None]


def file(name: str) -> bytes:
    """Return an event of a file of the folder."""
    return (FOLDER / f"{name}.json").read_bytes()


def framed(number: int, content: bytes) -> bytes:
    """Return a value in Confluent's wire format."""
    return b"\0" + number.to_bytes(4, "big") + content


def schema(number: int, kind: SchemaKind, text: str) -> FrozenSchema:
    """Return a schema as a plan contains it."""
    return FrozenSchema(
        id=number,
        subject="shop-value",
        version=number,
        kind=kind,
        text=text,
        references=(),
        sha256=schema_digest(kind, text, ()),
    )


def recorded() -> tuple[list[RecordedEvent], list[PlannedRegistry]]:
    """Return the recorded events, and the registries `avro`, with their schemas, and `json`, whose schemas allow all."""
    found = json.loads(file("recorded"))
    numbers = {topic: number for number, topic in enumerate(found["schemas"], 1)}
    events = []
    for one in found["records"]:
        topic, text, number = one["topic"], one["value"], numbers[one["topic"]]
        forms: dict[str, bytes | None] = dict.fromkeys(FORMS)
        if text is not None:
            connect = found["schemas"][topic]["connect"]
            forms = {
                "bare": text.encode(),
                "wrapped": f'{{"schema":{connect},"payload":{text}}}'.encode(),
                "json_schema": framed(number, text.encode()),
                "avro": framed(number, base64.b64decode(one["avro"])),
            }
        key = None if one["key"] is None else one["key"].encode()
        events.append(RecordedEvent(topic=topic, key=key, forms=forms))
    avro = [schema(numbers[t], "AVRO", s["avro"]) for t, s in found["schemas"].items()]
    anything = [schema(number, "JSON", "true") for number in numbers.values()]
    return events, [
        PlannedRegistry(name="avro", schemas=tuple(avro)),
        PlannedRegistry(name="json", schemas=tuple(anything)),
    ]


def avro_encoded(text: str, value: Any) -> bytes:
    """Return the Avro encoding of a value by a schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), value)
    return out.getvalue()


def base64_of(number: int, size: int) -> str:
    """Return an unscaled number as Kafka Connect's JsonConverter writes it."""
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


EVENTS, REGISTRIES = recorded()


def decode_events(
    debezium: Debezium, *values: bytes | None, registries: list[PlannedRegistry] | None = None
) -> Decoded:
    """Decode values, and check what every result must be."""
    declared = debezium.planned(())
    # A part of a larger batch, as the reader has it.
    whole = pa.array([b"\0first", *values], pa.binary())
    batch = pa.RecordBatch.from_arrays([whole], ["value"]).slice(1)
    found = decoder_of(declared, REGISTRIES if registries is None else registries).decode(batch)
    found.rows.validate(full=True)
    assert found.rows.schema == schema_of(declared)
    for field in found.rows.schema:
        assert field.nullable or not found.rows.column(field.name).null_count
    assert sorted([*found.kept.tolist(), *found.dead.tolist()]) == list(range(len(values)))
    assert found.rows.num_rows == len(found.kept)
    return found


def reasons(found: Decoded) -> list[str]:
    """Return the reasons as texts."""
    return [str(reason) for reason in found.reasons]


def body(value: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()


def event(op: Any, before: Any, after: Any, **others: Any) -> dict[str, Any]:
    """Return a change event with the fields that it must have."""
    return {"before": before, "after": after, "op": op, "ts_ms": 1_000, **others}
