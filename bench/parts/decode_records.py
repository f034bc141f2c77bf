"""The records of decode.py: nested orders as JSON, Avro and Protobuf, and flat events as JSON, always the same."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.engine.decode.protobuf.descriptors import message_type
from tallystick.pipeline import Column

Row = dict[str, Any]
KINDS = ("NEW", "PAID", "SENT", "RETURNED")
PLACE = "struct<street: string, city: string, country: string, lat: double, lon: double>"
ITEM = "struct<sku: string, quantity: int, price: double, tags: list<string>>"
ORDER = (
    Column("id", "long"),
    Column("at", "long"),
    Column("kind", "string"),
    Column("amount", "double"),
    Column("gift", "boolean"),
    Column("customer", f"struct<id: long, name: string, email: string, address: {PLACE}>"),
    Column("items", f"list<{ITEM}>"),
    Column("labels", "map<string, string>"),
)
EVENT = (
    Column("event_id", "string"),
    Column("event_type", "string"),
    Column("user_id", "long"),
    Column("session", "string"),
    Column("at", "long"),
    Column("page", "string"),
    Column("price", "double"),
    Column("quantity", "int"),
)


def _record(title: str, /, **fields: Any) -> Row:
    return {
        "type": "record",
        "name": title,
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


AVRO = _record(
    "Order",
    id="long",
    at="long",
    kind={"type": "enum", "name": "Kind", "symbols": list(KINDS)},
    amount="double",
    gift="boolean",
    customer=_record(
        "Customer",
        id="long",
        name="string",
        email="string",
        address=_record(
            "Place", street="string", city="string", country="string", lat="double", lon="double"
        ),
    ),
    items={
        "type": "array",
        "items": _record(
            "Item",
            sku="string",
            quantity="int",
            price="double",
            tags={"type": "array", "items": "string"},
        ),
    },
    labels={"type": "map", "values": "string"},
)
MESSAGE = "bench.Order"
PROTO = """
syntax = "proto3";
package bench;
enum Kind { NEW = 0; PAID = 1; SENT = 2; RETURNED = 3; }
message Place { string street = 1; string city = 2; string country = 3; double lat = 4; double lon = 5; }
message Customer { int64 id = 1; string name = 2; string email = 3; Place address = 4; }
message Item { string sku = 1; int32 quantity = 2; double price = 3; repeated string tags = 4; }
message Order {
  int64 id = 1;
  int64 at = 2;
  Kind kind = 3;
  double amount = 4;
  bool gift = 5;
  Customer customer = 6;
  repeated Item items = 7;
  map<string, string> labels = 8;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRecords:
    """The same rows in one format: `values` are the records' bytes."""

    name: str
    columns: tuple[Column, ...]
    rows: list[Row]
    values: list[bytes]

    @property
    def bytes_each(self) -> float:
        return sum(map(len, self.values)) / len(self.values)

    def broken(self, share: float) -> list[bytes]:
        """Return the values, of which a share lacks its last byte, which makes it a dead letter in each format."""
        every = round(1 / share) if share else 0
        return [
            value[:-1] if every and number % every == 0 else value
            for number, value in enumerate(self.values)
        ]


def order(chance: random.Random) -> Row:
    """Return one order, of about 1,200 bytes as JSON."""

    def word(length: int) -> str:
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=length))

    items = [
        {
            "sku": f"SKU-{chance.randrange(10**6):06}",
            "quantity": chance.randrange(1, 9),
            "price": round(chance.random() * 100, 2),
            "tags": [word(5) for _ in range(chance.randrange(4))],
        }
        for _ in range(10)
    ]
    return {
        "id": chance.randrange(10**12),
        "at": 1_700_000_000_000 + chance.randrange(10**9),
        "kind": chance.choice(KINDS),
        "amount": round(chance.random() * 1000, 2),
        "gift": chance.random() < 0.5,
        "customer": {
            "id": chance.randrange(10**9),
            "name": f"{word(6)} {word(9)}",
            "email": f"{word(8)}@mail.example",
            "address": {
                "street": f"{word(11)} {chance.randrange(200)}",
                "city": word(8),
                "country": chance.choice(["CH", "DE", "FR", "IT"]),
                "lat": round(chance.uniform(-90, 90), 5),
                "lon": round(chance.uniform(-180, 180), 5),
            },
        },
        "items": items,
        "labels": {word(6): word(10) for _ in range(4)},
    }


def event(chance: random.Random) -> Row:
    """Return one flat event, of about 235 bytes as JSON."""
    return {
        "event_id": f"{chance.getrandbits(128):032x}",
        "event_type": chance.choice(["view", "click", "cart", "buy"]),
        "user_id": chance.randrange(10**6),
        "session": f"{chance.getrandbits(80):020x}",
        "at": 1_700_000_000_000 + chance.randrange(10**9),
        "page": f"/products/{chance.randrange(5_000)}/reviews?from=recommended",
        "price": round(chance.random() * 100, 2),
        "quantity": chance.randrange(9),
    }


@cache
def proto_class() -> Any:
    """Return the class of the Protobuf runtime for an order."""
    return GetMessageClass(message_type(descriptors(), MESSAGE))


@cache
def descriptors() -> bytes:
    return compiled_descriptors({"order.proto": PROTO}, "order.proto")


def _as_json(row: Row) -> bytes:
    return json.dumps(row, separators=(", ", ": ")).encode()


def _as_avro(row: Row, schema: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def nested_and_flat(records: int) -> dict[str, BenchRecords]:
    """Return all records, by the name of their kind."""
    chance = random.Random(11)
    orders = [order(chance) for _ in range(records)]
    events = [event(chance) for _ in range(records)]
    schema = fastavro.parse_schema(AVRO)
    message = proto_class()
    values = {
        "nested JSON": [_as_json(row) for row in orders],
        "nested Avro": [_as_avro(row, schema) for row in orders],
        "nested Protobuf": [ParseDict(row, message()).SerializeToString() for row in orders],
        "flat JSON": [_as_json(row) for row in events],
    }
    return {
        name: BenchRecords(
            name=name,
            columns=EVENT if name == "flat JSON" else ORDER,
            rows=events if name == "flat JSON" else orders,
            values=found,
        )
        for name, found in values.items()
    }


def batch(values: list[bytes]) -> pa.RecordBatch:
    """Return values as a decoder gets them."""
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
