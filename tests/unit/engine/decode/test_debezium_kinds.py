"""The kinds of change events that have no row, and values that are no event: each with its reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from support.change_events import EVENT, body, decode_events, event, reasons
from tallystick.pipeline import Column, Debezium

ROW = {"id": 7, "status": "new"}
ROWS = [Column("id", "long"), Column("status", "string", required=False)]
NO_ROW = "expected the row {} the change, found none"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (event("c", ROW, None), f"state: field after: op c: {NO_ROW.format('after')}"),
        (event("r", ROW, None), f"state: field after: op r: {NO_ROW.format('after')}"),
        (event("u", ROW, None), f"state: field after: op u: {NO_ROW.format('after')}"),
        (event("d", None, ROW), f"state: field before: op d: {NO_ROW.format('before')}"),
        (event("d", {"id": None}, None), "null: field before.id: required and null"),
        (event("d", {}, None), "missing: field before.id: required and missing"),
        (event("c", None, {"id": None}), "null: field after.id: required and null"),
        (event("c", None, {"id": "7"}), 'type: field after.id: "7" is not a long'),
        (event("c", None, [ROW]), "type: field after: an array is not an object"),
        # MongoDB's connector has documents as text.
        (event("c", None, '{"id": 7}'), 'type: field after: "{\\"id\\": 7}" is not an object'),
        (event("d", 7, None), "type: field before: 7 is not an object"),
        (event("x", None, ROW), 'op: field op: expected one of c, r, u, d, t, m, found "x"'),
        (event("C", None, ROW), 'op: field op: expected one of c, r, u, d, t, m, found "C"'),
        (event("", None, ROW), 'op: field op: expected one of c, r, u, d, t, m, found ""'),
        (event(1, None, ROW), "type: field op: 1 is not a string"),
        (event("c", None, ROW, source={}), "null: field source.lsn: required, and null or absent"),
        (
            event("c", None, ROW) | {"ts_ms": "1580390884335"},
            'type: field ts_ms: "1580390884335" is not a timestamptz',
        ),
        (
            event("c", None, ROW) | {"ts_ms": 1 << 62},
            "range: field ts_ms: 4611686018427387904 lies outside the years 1 to 9999",
        ),
        (event("t", None, None), "truncate: the table was truncated"),
        (event("m", None, None), "message: a logical decoding message, no change of a row"),
    ],
)
def test_an_event_without_a_row_has_a_reason(
    value: dict[str, Any], reason: str, wrapped: bool
) -> None:
    good = event("c", None, ROW)
    values = [{"source": {"lsn": 1}} | one for one in (good, value, good)]
    if wrapped:
        values = [{"schema": {"type": "struct"}, "payload": one} for one in values]
        reason = reason.replace(": field ", ": field payload.")
    found = decode_events(Debezium(ROWS, event=EVENT), *map(body, values))
    assert found.dead.tolist() == [1]
    assert reasons(found) == [reason]
    assert found.rows.column("id").to_pylist() == [7, 7]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "json: Expecting value at character 0"),
        (b"null", "object: expected an object, found null"),
        (b"[]", "object: expected an object, found an array"),
        (b'"op"', 'object: expected an object, found "op"'),
        (b'{"op": "c", "after": {"id": 7}', "json"),
        (b"{}", "op: expected an event with the field op, found the fields none"),
        (b'{"op": null}', "op: expected an event with the field op, found the fields op"),
        (b'{"op": "c", "op": "d"}', "duplicate: field op: occurs twice"),
        (
            b'{"schema": null, "payload": null}',
            "op: expected an event with the field op, found the",
        ),
        (b'{"schema": {}, "payload": 1}', "type: field payload: 1 is not an object"),
        (b'{"schema": {}, "payload": {}}', "op: expected an event with the field op, found the"),
        # Rows that ExtractNewRecordState took out of their events.
        (
            b'{"id": 7, "status": "new"}',
            "op: expected an event with the field op, found the fields id",
        ),
        (b'{"ts_ms": 1, "id": 1}', "op: expected an event"),
        (b'{"ts_ms": 1}', "heartbeat: a heartbeat, no change of a row"),
        (b'{"payload": {"ts_ms": 1}}', "heartbeat: a heartbeat, no change of a row"),
        (b'{"ddl": "drop table t"}', "schema_change: a change of the schema of tables"),
    ],
)
def test_a_value_that_is_no_event_has_a_reason(value: bytes, reason: str) -> None:
    found = decode_events(Debezium(ROWS), body(event("c", None, ROW)), value)
    assert found.dead.tolist() == [1]
    assert reasons(found)[0].startswith(reason)


@pytest.mark.parametrize(
    "text",
    [
        '{{"schema":{{}},"payload":{0}}}',
        '{{"payload":{0},"schema":{{}}}}',
        ' {{ "schema" : null , "payload" : {0} }} ',
        '{{"other": 1, "payload": {0}}}',
        '{{"sch\\u0065ma": {{}}, "p\\u0061yload": {0}}}',
        "{0}",
        "\n{0}\n",
    ],
)
def test_an_event_is_found_in_any_spelling(text: str) -> None:
    value = text.format(json.dumps(event("d", ROW, None))).encode()
    (row,) = decode_events(Debezium(ROWS, ts=None), value).rows.to_pylist()
    assert row == ROW | {"op": "d"}


def test_an_event_whose_first_field_is_schema_is_no_wrapped_one() -> None:
    value = body({"schema": 1} | event("c", None, ROW))
    assert decode_events(Debezium(ROWS), value).rows.column("id").to_pylist() == [7]


def test_the_row_before_an_update_makes_no_dead_letter_unless_it_is_a_column() -> None:
    value = body(event("u", {"id": "seven", "status": 1}, ROW))
    assert decode_events(Debezium(ROWS), value).rows.column("status").to_pylist() == ["new"]
    assert reasons(decode_events(Debezium(ROWS, before="was"), value)) == [
        'type: field before.id: "seven" is not a long'
    ]


def test_the_time_of_an_event_is_as_fine_as_it_has_it() -> None:
    coarse, fine = event("c", None, ROW), event("c", None, ROW, ts_us=1_000_123)
    none = {"op": "c", "after": ROW}
    found = decode_events(Debezium(ROWS, ts="at"), *map(body, (coarse, fine, none)))
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert found.rows.column("at").to_pylist() == [second, second.replace(microsecond=123), None]


def test_a_column_of_the_event_can_have_the_name_of_one_of_its_fields() -> None:
    columns = [Column("op", "string"), Column("ts_ms", "long"), Column("after", "string")]
    debezium = Debezium(
        columns, op="kind", ts=None, event=[Column("before", "string", source="source.db")]
    )
    after = {"op": "x", "ts_ms": 5, "after": "y"}
    (row,) = decode_events(
        debezium, body(event("c", None, after, source={"db": "z"}))
    ).rows.to_pylist()
    assert row == {"op": "x", "ts_ms": 5, "after": "y", "kind": "c", "before": "z"}


def test_the_row_of_a_truncate_is_null_even_if_the_event_has_one() -> None:
    optional = [Column("id", "long", False), Column("s", "struct<n: int>", False)]
    row = {"id": 7, "s": {"n": 1}}
    debezium = Debezium(optional, truncates="keep", ts=None)
    found = decode_events(debezium, body(event("t", row, row)), body(event("c", None, row)))
    assert found.rows.to_pylist() == [{"id": None, "s": None, "op": "t"}, row | {"op": "c"}]


def test_a_required_column_of_the_event_is_no_requirement_of_other_records() -> None:
    debezium = Debezium(ROWS, event=EVENT)
    values = [{"ts_ms": 1}, event("m", None, None), event("c", None, ROW)]
    assert [reason.kind for reason in decode_events(debezium, *map(body, values)).reasons] == [
        "heartbeat",
        "message",
        "null",
    ]


def test_each_reason_is_that_of_its_record() -> None:
    good, gone = event("c", None, ROW), event("d", ROW, None)
    values = [
        b"x",
        body({"ts_ms": 1}),
        body(event("d", {"id": None}, None)),
        body(gone),
        body({"schema": 0, "payload": event("d", {"id": "7"}, None)}),
        body({"schema": 0, "payload": gone | {"before": {"id": 8}}}),
        body(good),
        body({"schema": 0, "payload": {"ddl": ""}}),
    ]
    for order in (values, values[::-1]):
        found = decode_events(Debezium(ROWS, ts=None), *order)
        rows = dict(zip(found.kept.tolist(), found.rows.to_pylist(), strict=True))
        dead = dict(zip(found.dead.tolist(), reasons(found), strict=True))
        outcomes = {order[at]: rows.get(at) or dead[at].split(":")[0] for at in range(len(order))}
        assert list(map(outcomes.get, values)) == [
            "json",
            "heartbeat",
            "null",
            ROW | {"op": "d"},
            "type",
            {"id": 8, "status": None, "op": "d"},
            ROW | {"op": "c"},
            "schema_change",
        ]


def test_columns_are_optional_in_the_column_of_the_row_before() -> None:
    columns = [Column("id", "long"), Column("status", "string")]
    value = body(event("u", {"id": 6}, ROW))
    (row,) = decode_events(Debezium(columns, ts=None, before="was"), value).rows.to_pylist()
    assert row == ROW | {"op": "u", "was": {"id": 6, "status": None}}
