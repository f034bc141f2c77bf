"""Change events of Debezium: recorded ones in each form, every kind of event, and values that are none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from support.change_events import (
    EVENT,
    EVENTS,
    FORMS,
    ORDER,
    decode_events,
    file,
    reasons,
)
from tallystick.pipeline import Column, Debezium

CUSTOMER = [
    Column("id", "int"),
    Column("name", "string"),
    Column("age", "int", required=False),
    Column("since", "date", parse="epoch_days"),
    Column("score", "decimal(5,1)"),
]


def form_of(form: str, **options: Any) -> dict[str, Any]:
    """Return the options by which a format reads a form."""
    decimals = {} if form == "avro" else {"decimals": "base64"}
    registry: dict[str, Any] = {}
    if form in ("avro", "json_schema"):
        registry = {"registry": "avro" if form == "avro" else "json"}
        registry |= {"format": "json"} if form == "json_schema" else {}
    return decimals | registry | options


# --- recorded events -------------------------------------------------------------------------------------------------

FIRST = {
    "id": 1,
    "status": "snapshot",
    "price": Decimal("19.99"),
    "scale": 1,
    "unscaled": b"\x0f",
    "day": date(2026, 3, 1),
    "at": datetime(2026, 3, 1, 10, 0, 0, 123456),  # noqa: DTZ001 - a timestamp without a zone
    "at_ms": datetime(2026, 3, 1, 10, 0, 0, 123000),  # noqa: DTZ001 - a timestamp without a zone
    "atz": datetime(2026, 3, 1, 10, 0, 0, 123456, UTC),
    "t": 18_930_500_000,
    "ok": True,
    "u": UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "j": '{"a": 1}',
    "b": b"\x01\x02\xff",
    "tags": ["x", "y"],
}
NULLS = dict.fromkeys(column.name for column in ORDER)
SECOND = NULLS | {
    "id": 2,
    "status": "new",
    "price": Decimal("-0.01"),
    "scale": 3,
    "unscaled": (12345678901234567890123).to_bytes(10, "big"),
    "day": date(99, 12, 31),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - a timestamp without a zone
    "at_ms": datetime(2026, 3, 1, 10),  # noqa: DTZ001 - a timestamp without a zone
    "atz": datetime(1900, 1, 1, tzinfo=UTC),
    "t": 0,
    "ok": False,
}
THIRD = NULLS | {"id": 3, "price": Decimal("9999999.99"), "ok": True, "tags": []}
# (op, the row of the event, the row before the change)
ORDERS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("r", FIRST, None),
    ("c", SECOND, None),
    ("c", THIRD, None),
    ("u", SECOND | {"status": "paid", "price": Decimal("20.00")}, SECOND),
    ("d", THIRD, THIRD),
    ("tombstone", NULLS, None),
    ("c", THIRD | {"id": 4}, None),
    ("d", FIRST, FIRST),
    ("tombstone", NULLS, None),
    ("t", NULLS, None),
    ("c", NULLS | {"id": 5, "ok": True}, None),
]


@pytest.mark.parametrize("form", FORMS)
def test_the_recorded_events_of_a_table_become_its_changes(form: str) -> None:
    columns = [replace(column, required=False) for column in ORDER]
    event = [replace(column, required=False) for column in EVENT]
    debezium = Debezium(
        columns,
        before="was",
        event=event,
        tombstones="keep",
        truncates="keep",
        **form_of(form),
    )
    found = decode_events(
        debezium, *(e.forms[form] for e in EVENTS if e.topic == "shop.public.orders")
    )
    assert not found.reasons
    rows = found.rows.to_pylist()
    assert [row["op"] for row in rows] == [op for op, _, _ in ORDERS]
    for row, (op, state, before) in zip(rows, ORDERS, strict=True):
        assert {name: row[name] for name in NULLS} == state
        assert row["was"] == before
        if op == "tombstone":
            assert (row["ts"], row["lsn"], row["tx"]) == (None, None, None)
    assert rows[1]["ts"] == datetime.fromtimestamp(1_795_666_408, UTC).replace(microsecond=774_851)
    assert (rows[0]["lsn"], rows[0]["tx"]) == (22212176, None)
    assert (rows[1]["lsn"], rows[1]["tx"]) == (22212216, "730:22212216")


@pytest.mark.parametrize("form", FORMS)
def test_tombstones_and_truncates_are_dead_letters_by_default(form: str) -> None:
    debezium = Debezium(ORDER, event=EVENT, **form_of(form))
    found = decode_events(
        debezium, *(e.forms[form] for e in EVENTS if e.topic == "shop.public.orders")
    )
    kept = [op for op, _, _ in ORDERS if op not in ("tombstone", "t")]
    assert found.rows.column("op").to_pylist() == kept
    assert reasons(found) == [
        "tombstone: the value is null",
        "tombstone: the value is null",
        "truncate: the table was truncated",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_deletion_with_the_default_replica_identity_has_only_the_key(form: str) -> None:
    values = [e.forms[form] for e in EVENTS if e.topic == "shop.public.customers"]
    found = decode_events(Debezium(CUSTOMER, ts=None, **form_of(form)), *values)
    assert [tuple(row.values()) for row in found.rows.to_pylist()] == [
        (1, "Anne", 30, date(2026, 3, 1), Decimal("99.5"), "c"),
        (1, "Anne", 31, date(2026, 3, 1), Decimal("99.5"), "u"),
        # Debezium writes zeros for columns that are NOT NULL.
        (1, "", 0, date(1970, 1, 1), Decimal("0.0"), "d"),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_what_debezium_writes_to_other_topics_is_distinguished(form: str) -> None:
    others = [e for e in EVENTS if not e.topic.startswith("shop.public.")]
    found = decode_events(
        Debezium(ORDER, event=EVENT, **form_of(form)), *(e.forms[form] for e in others)
    )
    kinds = {
        "__debezium-heartbeat.shop": "heartbeat",
        "shop.transaction": "transaction",
        "shop.message": "message",
    }
    assert [reason.kind for reason in found.reasons] == [kinds[e.topic] for e in others]
    assert {reason.kind for reason in found.reasons} == set(kinds.values())


def test_both_forms_of_json_can_be_in_one_batch() -> None:
    orders = [e for e in EVENTS if e.topic == "shop.public.orders"]
    debezium = Debezium(ORDER, event=EVENT, before="was", **form_of("bare"))
    alone = decode_events(debezium, *(e.forms["bare"] for e in orders))
    mixed = decode_events(
        debezium, *(e.forms[("bare", "wrapped")[n % 2]] for n, e in enumerate(orders))
    )
    assert mixed.rows.equals(alone.rows)
    assert mixed.kept.tolist() == alone.kept.tolist()


CUSTOMERS = [
    Column("id", "int"),
    Column("email", "string", required=False),
    Column("first", "string", required=False, source="first_name"),
]
ANNE = (1004, "annek@noanswer.org", "Anne")


@pytest.mark.parametrize(
    ("name", "op", "row"),
    [
        ("serde-with-schema", "c", ANNE),
        ("serde-without-schema", "c", ANNE),
        ("serde-update", "u", ANNE),
        ("postgresql-create", "c", (1, "annek@noanswer.org", "Anne")),
        ("postgresql-update", "u", (1, "annek@noanswer.org", "Anne Marie")),
        ("postgresql-delete", "d", (1, None, None)),
    ],
)
def test_the_examples_of_debezium_are_read(name: str, op: str, row: tuple[Any, ...]) -> None:
    found = decode_events(Debezium(CUSTOMERS, ts=None), file(name))
    assert [tuple(one.values()) for one in found.rows.to_pylist()] == [(*row, op)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("postgresql-truncate", "truncate: the table was truncated"),
        ("postgresql-message", "message: a logical decoding message, no change of a row"),
        (
            "transaction-begin",
            "transaction: the beginning or end of a transaction, no change of a row",
        ),
        (
            "transaction-end",
            "transaction: the beginning or end of a transaction, no change of a row",
        ),
        (
            "mysql-schema-change",
            "schema_change: a change of the schema of tables, no change of a row",
        ),
        (
            "schema-change-filter",
            "schema_change: a change of the schema of tables, no change of a row",
        ),
    ],
)
def test_the_examples_that_change_no_row_are_dead_letters(name: str, reason: str) -> None:
    assert reasons(decode_events(Debezium(CUSTOMERS), file(name))) == [reason]
