"""The columns that a topic declares for keys and headers, next to those of its values."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import Corrupt, InvalidPipeline
from tallystick.pipeline import (
    Column,
    Format,
    Json,
    Pipeline,
    Raw,
    Table,
    Text,
    Topic,
    pipeline_from_spec,
)

AMOUNT, ORDER_ID = Column("amount", "int"), Column("order_id", "long")
HEADERS = Column("headers", "map<string, list<optional binary>>")
KEY = Json([ORDER_ID])


def declared(topic: Topic, *columns: Column) -> Pipeline:
    return Pipeline(
        name="orders",
        topics=[topic],
        warehouse="memory://orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=columns or (AMOUNT, ORDER_ID, HEADERS))],
    )


@pytest.mark.parametrize(
    ("topic", "values", "all_columns"),
    [
        (Topic("orders"), "amount order_id headers", "amount order_id headers"),
        (Topic("orders", key=KEY), "amount headers", "amount headers order_id"),
        (Topic("orders", headers="headers"), "amount order_id", "amount order_id headers"),
        (Topic("orders", key=KEY, headers="HEADERS"), "amount", "amount order_id HEADERS"),
        (
            Topic("orders", decode=Text("body"), key=Raw("id"), headers="headers"),
            "body",
            "body id headers",
        ),
        (Topic("orders", decode=Text("body"), key=Format("csv", [ORDER_ID])), "body", None),
    ],
)
def test_a_topic_has_the_columns_of_value_key_and_headers(
    topic: Topic, values: str, all_columns: str | None
) -> None:
    pipeline = declared(topic)
    assert [c.name for c in pipeline.decode_of("orders").columns] == values.split()
    expected = all_columns or "body order_id"
    assert [c.name for c in pipeline.columns_of("orders")] == expected.split()


@pytest.mark.parametrize(
    "topic",
    [
        Topic("orders"),
        Topic("orders", key=KEY),
        Topic("orders", key=Text("id", tombstones="keep"), headers="headers"),
    ],
)
def test_key_and_headers_survive_a_plan_and_change_the_fingerprint(topic: Topic) -> None:
    pipeline = declared(topic)
    spec = pipeline.to_spec()
    reread = pipeline_from_spec(spec, where="spec")
    assert reread.to_spec() == spec
    assert reread.columns_of("orders") == pipeline.columns_of("orders")
    assert (reread.fingerprint(b"") == declared(Topic("orders")).fingerprint(b"")) is (
        topic == Topic("orders")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "json"}, "topic orders: unknown key='json'."),
        ({"key": [ORDER_ID]}, f"topic orders: unknown key={[ORDER_ID]!r}."),
        ({"key": Format("json", [ORDER_ID], {"x": 1})}, "format json: expected no other options"),
        ({"headers": True}, "topic orders: headers: expected the name of a column, found True."),
        ({"headers": "_h"}, "topic orders: headers: expected no column name with a leading"),
        ({"headers": "a b"}, "'a b'"),
        (
            {"decode": Json([AMOUNT]), "key": Json([Column("Amount", "int")])},
            "topic orders: expected each column in one of decode, key and headers, found 'Amount' in decode and key.",
        ),
        ({"decode": Json([AMOUNT]), "headers": "amount"}, "found 'amount' in decode and headers."),
        ({"decode": Raw(), "key": Text()}, "found 'value' in decode and key."),
        ({"key": KEY, "headers": "order_id"}, "found 'order_id' in key and headers."),
        (
            {
                "decode": Json([Column("id", "int", source="n", renamed_from="order_id")]),
                "key": KEY,
            },
            "expected one column of the names 'order_id' and renamed_from='order_id', found two.",
        ),
    ],
)
def test_a_key_or_headers_that_make_no_columns_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Topic("orders", **arguments)
    assert message in refused.value.message
    assert refused.value.hint


def test_the_refusal_of_a_name_proposes_another_one_that_is_accepted() -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Topic("orders", decode=Json([ORDER_ID]), key=KEY)
    assert "e.g. to key_order_id: source= " in refused.value.hint
    key = Json([Column("key_order_id", "long", source="order_id")])
    assert Topic("orders", decode=Json([ORDER_ID]), key=key).key == key


def test_a_default_decode_without_a_column_left_is_refused_with_what_to_declare() -> None:
    with pytest.raises(InvalidPipeline) as refused:
        declared(Topic("orders", key=KEY, headers="headers"), ORDER_ID, HEADERS)
    assert "found all of them in key and headers" in refused.value.message
    assert "decode=Json(" in refused.value.hint


def test_a_stored_declaration_without_the_fields_is_refused_with_their_place() -> None:
    spec = declared(Topic("orders")).to_spec()
    del spec["topics"][0]["key"]
    with pytest.raises(Corrupt, match=r"topics\[0\]: missing field 'key'"):
        pipeline_from_spec(spec, where="spec")
