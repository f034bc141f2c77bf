"""The topics of the example `fanout`: five schemas, shared by 500 topics, and the values of their records.

Values are encoded by fastavro, in the wire format as Confluent documents it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

Value = dict[str, Any]
_ORDER_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {
        "name": "amount",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    },
    {
        "name": "item",
        "type": {
            "type": "record",
            "name": "Item",
            "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
        },
    },
]


def _record(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "fanout", "fields": list(fields)}


SCHEMAS: Mapping[str, dict[str, Any]] = {
    "Orders": _record("Order", *_ORDER_FIELDS),
    "users": _record(
        "User",
        {"name": "name", "type": "string"},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ),
    "clicks": _record(
        "Click",
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "url", "type": "string"},
        {"name": "user", "type": ["null", "long"]},
    ),
    "readings": _record(
        "Reading",
        {"name": "celsius", "type": "double"},
        {"name": "ok", "type": "boolean"},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ),
    "moves": _record(
        "Move",
        {"name": "to", "type": {"type": "enum", "name": "Side", "symbols": ["LEFT", "RIGHT"]}},
        {"name": "steps", "type": "int"},
    ),
}
EVOLVED = _record(
    "Order", *_ORDER_FIELDS, {"name": "channel", "type": ["null", "string"], "default": None}
)
"""The second schema of some topics of orders."""
SHAPES = tuple(SCHEMAS)


def topic_of(number: int) -> str:
    """Return the name of a topic."""
    return f"fanout.{SHAPES[number % len(SHAPES)]}.{number:03}"


def table_of(number: int) -> str:
    """Return the name of its table."""
    return f"{SHAPES[number % len(SHAPES)].lower()}_{number:03}"


def schema_of(number: int) -> dict[str, Any]:
    """Return the first schema of a topic."""
    return SCHEMAS[SHAPES[number % len(SHAPES)]]


def value_of(number: int, serial: int) -> Value:
    """Return the value of a record: another one for each topic and serial number."""
    n = number * 1_000 + serial
    made: Mapping[str, Callable[[], Value]] = {
        "Orders": lambda: {
            "id": n << 32,
            "amount": Decimal(n * 7 - 50_000).scaleb(-2),
            "item": {"sku": f"sku-{n}", "count": n % 9},
        },
        "users": lambda: {
            "name": f"Zoë {n}",
            "born": date(1900, 1, 1) + timedelta(days=n % 40_000) if n % 3 else None,
            "tags": [f"t{i}" for i in range(n % 4)],
        },
        "clicks": lambda: {
            "at": datetime(2013, 1, 1, tzinfo=UTC) + timedelta(microseconds=n),
            "url": f"/{n}",
            "user": None if n % 2 else n,
        },
        "readings": lambda: {
            "celsius": n / 8 - 40,
            "ok": n % 5 > 0,
            "labels": {f"k{i}": str(n) for i in range(n % 3)},
        },
        "moves": lambda: {"to": "LEFT" if n % 2 else "RIGHT", "steps": n},
    }
    return made[SHAPES[number % len(SHAPES)]]()


def framed(schema_id: int, schema: Mapping[str, Any], value: Value) -> bytes:
    """Return a value in Confluent's wire format: a zero byte, the schema's id in four bytes, the value in Avro."""
    out = io.BytesIO()
    out.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), value)
    return out.getvalue()
