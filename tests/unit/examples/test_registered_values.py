"""Values with a schema: what the producers send, how values are broken, and how a table's types are read."""

from __future__ import annotations

from itertools import pairwise

import fastavro
import pytest
from google.protobuf.json_format import MessageToDict
from pyiceberg.types import (
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from examples.checks.registered import types_of
from examples.orders_avro.orders import FIRST, SECOND, orders
from examples.orders_protobuf.messages import REFUND, events, message_classes
from examples.runner.framed import BREAKS, packed, unknown_message
from examples.runner.harness import day
from examples.runner.produce import Record

VALUE = b"\0\0\0\0\x07\x02\x02rest"


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("schema_id", b"\0\x77\x35\x94\0\x02\x02rest"),
        ("truncated", b"\0\0\0\0\x07\x02\x02res"),
        ("magic", b"{\x02\x02rest"),
    ],
)
def test_a_value_is_broken_in_a_way_for_each_kind(kind: str, broken: bytes) -> None:
    assert BREAKS[kind](VALUE) == broken


def test_an_unknown_message_has_a_position_beyond_those_of_the_schema() -> None:
    assert unknown_message(VALUE) == b"\0\0\0\0\x07\x02\xc6\x01\x02rest"


def test_a_record_sends_its_text_its_bytes_or_nothing() -> None:
    plain = Record(partition=0, at_ms=0, value="a", key="k")
    assert (plain.sent_value, plain.sent_key) == (b"a", b"k")
    framed = Record(
        partition=0,
        at_ms=0,
        value="{}",
        key="k",
        value_base64=packed(VALUE),
        key_base64=packed(b""),
    )
    assert (framed.sent_value, framed.sent_key) == (VALUE, b"")
    tombstone = Record(partition=0, at_ms=0, value="{}", tombstone=True)
    assert (tombstone.sent_value, tombstone.sent_key) == (None, None)


def test_each_order_fits_the_schema_of_its_version() -> None:
    schemas = {1: fastavro.parse_schema(FIRST), 2: fastavro.parse_schema(SECOND)}
    some = orders(day(2), 60, versions=(2, 1, 2))
    assert {order.version for order in some} == {1, 2}
    for order in some:
        assert fastavro.validate(order.value, schemas[order.version])
    assert all(first.at < second.at for first, second in pairwise(some))
    quantities = [order.value["quantity"] for order in some if order.version == 2]
    assert min(quantities) < -(2**31) + 9
    assert max(quantities) >= 2**31


def test_messages_mean_their_rows() -> None:
    """JSON of the protobuf runtime is the second opinion on each message."""
    classes = message_classes()
    for event in events(day(1), 60):
        message, row = MessageToDict(event.message(classes)), event.row
        assert int(message["orderId"]) == row["order_id"]
        assert int(message["total"].get("cents", 0)) == row["cents"]
        if event.kind == REFUND:
            assert message.get("reason", "") == row["reason"]
            continue
        assert message.get("status", "UNKNOWN") == row["status"]
        assert len(message.get("lines", ())) == len(row["lines"])
        found = {name: int(count) for name, count in message.get("points", {}).items()}
        assert found == dict(row["points"])
        assert message.get("voucher") == row["voucher"]
        card = message.get("card")
        assert (None if card is None else card.get("network", "")) == row["card_network"]


def test_a_value_that_lacks_its_last_byte_lacks_its_last_field() -> None:
    classes = message_classes()
    for event in events(day(1), 60):
        numbers = {field.name: field.number for field, _ in event.message(classes).ListFields()}
        assert event.last_field == max(numbers, key=lambda name: numbers[name])


def test_types_are_named_by_their_paths_without_lineage() -> None:
    address = StructType(NestedField(3, "city", StringType(), required=True))
    item = StructType(NestedField(6, "price", DecimalType(7, 2), required=False))
    struct = StructType(
        NestedField(1, "n", LongType(), required=True),
        NestedField(2, "address", address, required=False),
        NestedField(4, "items", ListType(5, item, element_required=True), required=True),
        NestedField(7, "by", MapType(8, StringType(), 9, address), required=True),
        NestedField(10, "_offset", LongType(), required=True),
    )
    assert types_of(struct) == {
        "n": "long",
        "address": "optional struct",
        "address.city": "string",
        "items": "list",
        "items.price": "optional decimal(7, 2)",
        "by": "map",
        "by.city": "string",
    }
