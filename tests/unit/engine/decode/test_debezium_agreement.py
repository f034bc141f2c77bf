"""Random change events have the same rows in JSON and in Avro; schemas of a registry that do not fit the columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.change_events import (
    EVENT,
    EVENTS,
    ORDER,
    REGISTRIES,
    avro_encoded,
    base64_of,
    body,
    decode_events,
    framed,
    reasons,
    schema,
)
from tallystick.engine.decode.misfits import misfit
from tallystick.format.registries import PlannedRegistry
from tallystick.pipeline import Column, Debezium

ROWS = [Column("id", "long"), Column("status", "string", required=False)]
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "status", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            ],
        },
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {
            "name": "at",
            "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}],
        },
        {"name": "u", "type": ["null", "string"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
    ],
    "connect.name": "shop.public.t.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [{"name": "db", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}],
}
ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.t",
        "fields": [
            {"name": "before", "type": ["null", VALUE], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {"name": "ts_us", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "shop.public.t.Envelope",
    }
)
IN_VALUE = {"id", "status", "price", "day", "at", "u", "tags"}
RANDOM = [replace(c, required=c.name == "id") for c in ORDER if c.name in IN_VALUE]
RANDOM_REGISTRY = [PlannedRegistry(name="avro", schemas=(schema(1, "AVRO", ENVELOPE),))]

STATES = st.none() | st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "status": st.none() | st.text(max_size=5),
        # Also numbers with more digits than the column has.
        "price": st.none() | st.integers(-(10**9) - 9, 10**9 + 9),
        "day": st.none() | st.integers(-719_200, 2_932_900),
        "at": st.none() | st.integers(-(2**62), 2**62) | st.integers(0, 2**40),
        "u": st.none() | st.uuids().map(str) | st.just("no uuid"),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2),
    }
)
RANDOM_EVENTS = st.fixed_dictionaries(
    {
        "before": STATES,
        "after": STATES,
        "source": st.fixed_dictionaries(
            {"db": st.text(max_size=3), "lsn": st.none() | st.integers(0, 2**63 - 1)}
        ),
        "op": st.sampled_from([*"crudtm", "x"]),
        "ts_ms": st.none() | st.integers(-(2**45), 2**45),
        "ts_us": st.none() | st.integers(-(2**55), 2**55),
    }
)


def in_json(value: dict[str, Any]) -> dict[str, Any]:
    def state(row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None or row["price"] is None:
            return row
        size = (row["price"] + (row["price"] < 0)).bit_length() // 8 + 1
        return row | {"price": base64_of(row["price"], size)}

    return value | {"before": state(value["before"]), "after": state(value["after"])}


def in_avro(value: dict[str, Any]) -> bytes:
    def state(row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None or row["price"] is None:
            return row
        # As bytes without the logical type, because fastavro refuses a number with too many digits.
        size = (row["price"] + (row["price"] < 0)).bit_length() // 8 + 1
        return row | {"price": row["price"].to_bytes(size, "big", signed=True)}

    plain = ENVELOPE.replace('"logicalType": "decimal"', '"logicalType": "none"')
    return avro_encoded(
        plain, value | {"before": state(value["before"]), "after": state(value["after"])}
    )


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(st.none() | RANDOM_EVENTS, max_size=6),
    keep=st.booleans(),
    before=st.booleans(),
    required=st.booleans(),
)
def test_random_events_have_the_same_rows_in_each_form(
    events: list[dict[str, Any] | None], keep: bool, before: bool, required: bool
) -> None:
    keep = keep and not required
    kept = "keep" if keep else "dead"
    lsn = Column("lsn", "long", required=required, source="source.lsn")
    columns = [replace(column, required=required and column.required) for column in RANDOM]
    options: dict[str, Any] = {
        "event": [lsn],
        "before": "was" if before else None,
        "tombstones": kept,
        "truncates": kept,
    }
    bare = Debezium(columns, decimals="base64", **options)
    avro = Debezium(columns, registry="avro", **options)
    texts = [None if e is None else in_json(e) for e in events]
    found = [
        decode_events(bare, *(None if t is None else body(t) for t in texts)),
        decode_events(
            bare, *(None if t is None else body({"schema": 0, "payload": t}) for t in texts)
        ),
        decode_events(
            avro,
            *(None if e is None else framed(1, in_avro(e)) for e in events),
            registries=RANDOM_REGISTRY,
        ),
    ]
    for other in found[1:]:
        assert other.rows.equals(found[0].rows)
        assert other.kept.tolist() == found[0].kept.tolist()
        assert other.dead.tolist() == found[0].dead.tolist()


# --- schemas that do not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENVELOPE, None),
        (
            ENVELOPE.replace('"name": "id", "type": "long"', '"name": "id", "type": "string"'),
            "schema: field after.id: schema 1 (shop-value version 1): expected long, found string",
        ),
        (
            ENVELOPE.replace('"name": "id"', '"name": "number"'),
            "schema: field after.id: schema 1 (shop-value version 1): required, and not in the schema",
        ),
        (
            ENVELOPE.replace('"name": "op"', '"name": "operation"'),
            "op: expected an event with the field op",
        ),
        ('"string"', "op: expected an event with the field op, found the fields none"),
        ("{}", "schema: schema 1: Avro schema: expected a type"),
    ],
)
def test_a_schema_that_does_not_fit_is_a_misfit_and_makes_dead_letters(
    text: str, reason: str | None
) -> None:
    debezium = Debezium(RANDOM, registry="avro")
    found = misfit(debezium.planned(()), schema(1, "AVRO", text))
    assert (found is None) == (reason is None)
    if reason is not None:
        assert str(found).startswith(reason)
        registries = [PlannedRegistry(name="avro", schemas=(schema(1, "AVRO", text),))]
        dead = decode_events(debezium, framed(1, b"\0"), registries=registries)
        assert reasons(dead)[0].startswith(reason)


def test_the_schemas_of_other_records_of_debezium_are_no_misfits() -> None:
    declared = Debezium(ORDER, registry="avro", event=EVENT).planned(())
    (avro, anything) = REGISTRIES
    found = [str(reason) for s in avro.schemas if (reason := misfit(declared, s)) is not None]
    # Only the schema of the other table does not fit the columns of this one.
    assert len(avro.schemas) == 5
    assert [reason.split(": schema")[0] for reason in found] == ["schema: field after.ok"]
    in_json = Debezium(ROWS, registry="json", format="json").planned(())
    assert misfit(in_json, anything.schemas[0]) is None
    expected = "schema: expected a JSON Schema, found AVRO as schema 1"
    assert str(misfit(in_json, avro.schemas[0])) == expected


def test_a_record_of_a_schema_that_the_plan_does_not_have_is_dead() -> None:
    value = EVENTS[0].forms["avro"]
    assert value is not None
    found = decode_events(Debezium(ORDER, registry="avro"), framed(99, value[5:]), value)
    assert [r.kind for r in found.reasons] == ["schema_id"]
    assert found.kept.tolist() == [1]
