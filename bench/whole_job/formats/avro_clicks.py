"""The clicks of `make bench` as Avro in Confluent's wire format: a zero byte, the id of the schema, the record."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np

from bench.whole_job.places import RecordPlaces
from bench.whole_job.records import MadeBatch, clicks

_DEVICE = {
    "type": "record",
    "name": "Device",
    "fields": [{"name": "os", "type": "string"}, {"name": "ver", "type": "string"}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "namespace": "bench",
    "fields": [
        {"name": "event_id", "type": "string"},
        {"name": "event_type", "type": "string"},
        {"name": "user_id", "type": "long"},
        {"name": "session", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "referrer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "qty", "type": "int"},
        {"name": "device", "type": _DEVICE},
    ],
}


def avro_clicks(
    seed: int, records: int, *, places: RecordPlaces, schema_id: int
) -> Iterator[MadeBatch]:
    """Yield the clicks in order, encoded by fastavro; where `clicks` has a broken record, the first one is cut off."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    schema = fastavro.parse_schema(SCHEMA)
    for batch in clicks(seed, records, places=places):
        encoded = [head + _encoded(schema, row) for row in batch.rows.to_pylist()]
        sound = iter(encoded)
        cut = encoded[0][: len(encoded[0]) // 2]
        values = [cut if kind >= 0 else next(sound) for kind in batch.kinds.tolist()]
        yield replace(batch, values=values, kinds=np.minimum(batch.kinds, 0))


def _encoded(schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    device = {"os": row["os"], "ver": row["ver"]}
    fastavro.schemaless_writer(out, schema, {**row, "device": device})
    return out.getvalue()
