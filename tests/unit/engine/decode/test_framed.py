"""Confluent's wire format: the schema of each value by its id, and a reason for each value that has none."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from support.dict_registry import DictRegistry
from tallystick.engine.decode.decoder import Decoded, decoder_of
from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.format.registries import PlannedRegistry
from tallystick.operations.schemas import PipelineSchemas
from tallystick.pipeline import Avro, Column, Pipeline, Protobuf, Table, Topic
from tallystick.registry.port import SchemaReference
from unit.engine.decode.test_avro import encoded, record

FIRST = record(("n", "int"), ("s", "string"))
SECOND = record(("n", "long"), ("s", ["null", "string"]), ("new", ["null", "double"]))
OTHER = record(("n", "string"), ("s", "string"))
COLUMNS = [
    Column("n", "long"),
    Column("s", "string", required=False),
    Column("new", "double", required=False),
]


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def planned(registry: DictRegistry, declared: Any) -> tuple[PlannedRegistry, ...]:
    pipeline = Pipeline(
        name="orders",
        topics=[Topic("orders", decode=declared)],
        warehouse="memory://lake/orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=COLUMNS)],
    )
    return PipelineSchemas(pipeline.registry_formats(), lambda _: registry).registries()


def decode(registry: DictRegistry, declared: Any, *values: bytes | None) -> Decoded:
    decoder = decoder_of(declared.planned(COLUMNS), planned(registry, declared))
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    return decoder.decode(batch)


def avro_registry() -> DictRegistry:
    registry = DictRegistry()
    for schema in (FIRST, SECOND, OTHER):
        registry.register("orders-value", json.dumps(schema))
    return registry


def test_values_of_several_schemas_are_rows_in_the_order_of_the_records() -> None:
    second = encoded(SECOND, {"n": 2**40, "s": None, "new": 0.5})
    decoded = decode(
        avro_registry(),
        Avro(registry="default"),
        framed(2, second),
        framed(1, encoded(FIRST, {"n": 1, "s": "a"})),
        framed(2, second),
    )
    assert decoded.rows.to_pylist() == [
        {"n": 2**40, "s": None, "new": 0.5},
        {"n": 1, "s": "a", "new": None},
        {"n": 2**40, "s": None, "new": 0.5},
    ]


def test_a_value_without_a_usable_schema_is_a_dead_letter() -> None:
    good = framed(1, encoded(FIRST, {"n": 1, "s": "a"}))
    decoded = decode(
        avro_registry(),
        Avro(registry="default"),
        good,
        b'{"n": 1}',
        b"\0\0\0",
        b"",
        framed(9, b""),
        b"\0\xff\xff\xff\xff",
        framed(3, encoded(OTHER, {"n": "x", "s": "y"})),
        framed(1, b""),
        None,
        good,
    )
    assert decoded.kept.tolist() == [0, 9]
    assert [str(r) for r in decoded.reasons] == [
        "magic: expected a zero byte as the first, found 0x7b226e223a20317d",
        "magic: expected a zero byte and a schema id, found 3 bytes",
        "magic: expected a zero byte and a schema id, found 0 bytes",
        "schema_id: expected a schema id of the plan (1, 2, 3), found 9",
        "magic: expected a schema id from 0 to 2147483647, found 0xffffffff",
        "schema: field n: schema 3 (orders-value version 3): expected long, found string",
        "truncated: field n: the value runs past the end of the record (byte 5)",
        "tombstone: the value is null",
    ]


def test_tombstones_are_rows_of_nulls_if_they_are_kept() -> None:
    optional = [Column(c.name, c.type, required=False) for c in COLUMNS]
    declared = Avro(optional, registry="default", tombstones="keep")
    decoded = decode(
        avro_registry(), declared, None, framed(1, encoded(FIRST, {"n": 1, "s": "a"})), None
    )
    assert decoded.rows.column("n").to_pylist() == [None, 1, None]


def test_references_between_avro_schemas_are_names() -> None:
    registry = DictRegistry()
    registry.register("money", json.dumps(record(("cents", "long"), name="shop.Money")))
    registry.register(
        "orders-value",
        json.dumps(record(("n", "long"), ("price", "shop.Money"))),
        references=(SchemaReference(name="shop.Money", subject="money", version=1),),
    )
    columns = [Column("cents", "long", source="price.cents")]
    declared = Avro(columns, registry="default")
    body = b"\x02" + b"\x0e"
    assert decode(registry, declared, framed(2, body)).rows.to_pylist() == [{"cents": 7}]


PROTO = """
syntax = "proto3";
package shop;
import "money.proto";
message Other { string s = 2; }
message Order { int64 n = 1; string s = 2; Money price = 3; message Line { int64 n = 1; } }
"""
TIMES = 'import "google/protobuf/timestamp.proto"; import'
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


def proto_registry() -> DictRegistry:
    registry = DictRegistry()
    registry.register("money", MONEY, kind="PROTOBUF")
    registry.register(
        "orders-value",
        PROTO,
        kind="PROTOBUF",
        references=(SchemaReference(name="money.proto", subject="money", version=1),),
    )
    registry.register("orders-value", 'syntax = "proto3"; message', kind="PROTOBUF")
    return registry


ORDER = b"\x08\x05\x12\x01x\x1a\x02\x08\x09"


def test_protobuf_values_name_their_message_by_its_position() -> None:
    columns = [
        Column("n", "long", required=False),
        Column("s", "string", required=False),
        Column("cents", "long", required=False, source="price.cents"),
    ]
    decoded = decode(
        proto_registry(),
        Protobuf(columns, registry="default"),
        framed(2, b"\x02\x02" + ORDER),
        framed(2, b"\x04\x02\x00" + b"\x08\x07"),
        framed(2, b"\x00" + b"\x12\x01y"),
        framed(2, b"\x02\x0e" + ORDER),
        framed(2, b"\xff"),
        framed(2, b""),
        framed(3, b"\x00"),
        framed(2, b"\x02\x02" + ORDER[:-1]),
    )
    assert decoded.rows.to_pylist() == [
        {"n": 5, "s": "x", "cents": 9},
        {"n": 7, "s": None, "cents": None},
        {"n": None, "s": "y", "cents": None},
    ]
    assert [r.kind for r in decoded.reasons] == [
        "message",
        "message",
        "message",
        "schema",
        "truncated",
    ]


def test_protobuf_schemas_can_be_registered_as_descriptors_in_base64() -> None:
    """Confluent's serializer for Python registers them so, and Apicurio Registry returns them unchanged."""
    files = {"money.proto": MONEY, "order.proto": PROTO.replace("import", TIMES, 1)}
    compiled = FileDescriptorSet.FromString(compiled_descriptors(files, "order.proto")).file
    texts = {f.name: base64.b64encode(f.SerializeToString()).decode() for f in compiled}
    registry = DictRegistry()
    registry.register("money", texts["money.proto"], kind="PROTOBUF")
    registry.register(
        "orders-value",
        texts["order.proto"],
        kind="PROTOBUF",
        references=(SchemaReference(name="money.proto", subject="money", version=1),),
    )
    registry.register("orders-value", texts["order.proto"], kind="PROTOBUF")
    columns = [Column("cents", "long", source="price.cents")]
    decoded = decode(
        registry,
        Protobuf(columns, registry="default"),
        framed(2, b"\x02\x02" + ORDER),
        framed(3, b"\x02\x02" + ORDER),
    )
    assert decoded.rows.to_pylist() == [{"cents": 9}]
    assert "schema 3 (orders-value version 2) is not valid" in str(decoded.reasons[0])


def test_a_plan_has_the_schemas_of_keys_and_values_once() -> None:
    registry = avro_registry()
    registry.register("orders-key", '"long"')
    pipeline = Pipeline(
        name="orders",
        topics=[
            Topic(
                "orders",
                decode=Avro(registry="default"),
                key=Avro([Column("k", "long", source="value")], registry="default"),
            ),
            Topic("late", decode=Avro(registry="default", subjects=["orders-value"])),
        ],
        warehouse="memory://lake/orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=COLUMNS)],
    )
    schemas = PipelineSchemas(pipeline.registry_formats(), lambda _: registry)
    (found,) = schemas.registries()
    assert [s.id for s in found.schemas] == [1, 2, 3, 4]
    schemas.registries()
    assert sorted(registry.requests) == ["orders-key", "orders-value"]


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_a_schema_of_another_kind_has_dead_letters(name: str) -> None:
    registry = DictRegistry()
    registry.register("orders-value", '{"type": "object"}', kind="JSON")
    declared: Any = (Avro if name == "avro" else Protobuf)(registry="default")
    decoded = decode(registry, declared, framed(1, b""))
    assert "found JSON as schema 1" in str(decoded.reasons[0])


def test_values_with_very_many_ids_cost_no_more_and_are_not_kept() -> None:
    """Counters of eight bytes begin with a zero byte: each looks like an id of its own."""
    registry = avro_registry()
    declared = Avro(registry="default")
    decoder = decoder_of(declared.planned(COLUMNS), planned(registry, declared))
    values = [
        number.to_bytes(8, "big") + b"x"
        for number in range(1 << 33, (1 << 33) + 20_000 * 7_919, 7_919)
    ]
    values = [b"\0" + value[1:] for value in values]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    decoded = decoder.decode(batch)
    assert {r.kind for r in decoded.reasons} == {"schema_id"}
    assert len(decoder._contents) == 0  # type: ignore[attr-defined]


def test_very_many_message_indexes_are_not_kept() -> None:
    registry = proto_registry()
    declared = Protobuf(COLUMNS, registry="default")
    decoder = decoder_of(declared.planned(()), planned(registry, declared))
    values = [
        framed(2, b"\x02" + bytes([128 | n & 127, n >> 7 & 127])) for n in range(2_000, 9_000)
    ]
    decoded = decoder.decode(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"]))
    assert {r.kind for r in decoded.reasons} == {"message"}
    (content,) = decoder._contents.values()  # type: ignore[attr-defined]
    assert set(content._messages) <= {(0,)}
