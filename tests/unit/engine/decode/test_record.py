"""Whole records: the columns of the value, the key and the headers in one row, or one reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Decoded, Reason, decoder_of
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.engine.decode.record import record_decoder
from tallystick.kafka.decode import columns_schema
from tallystick.pipeline import Column, Format, Json, Pipeline, Raw, Table, Text, Topic
from tallystick.tables.schema import arrow_schema

Header = tuple[str, bytes | None]
ORDER = Json([Column("amount", "int", required=False), Column("device", "struct<os: string>")])
ORDER_KEY = Json([Column("order_id", "long"), Column("tenant", "uuid", required=False)])
VALUE, KEY = b'{"amount": 1, "device": {"os": "x"}}', b'{"order_id": 7}'


def pipeline_of(topic: Topic) -> Pipeline:
    return Pipeline(
        name="orders",
        topics=[topic],
        warehouse="memory://orders",
        job="jobs/orders.py",
        tables=[Table("orders", columns=[Column("amount", "int", required=False)])],
    )


def batch_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
) -> pa.RecordBatch:
    """Return records as the reader returns them, as a part of a larger batch."""
    count = len(values)
    lists = [[("before", b"")], *(headers or [[]] * count)]
    found = {
        "offset": range(count + 1),
        "timestamp": [0] * (count + 1),
        "key": [b"before", *(keys or [KEY] * count)],
        "value": [b"before", *values],
        "headers": [[{"key": k, "value": v} for k, v in one] for one in lists],
    }
    return pa.RecordBatch.from_pydict(found, schema=columns_schema(headers=True)).slice(1)


def decode(topic: Topic, batch: pa.RecordBatch) -> Decoded:
    pipeline = pipeline_of(topic)
    decoded = record_decoder(pipeline.topic_spec("orders")).decode(batch)
    decoded.rows.validate(full=True)
    assert decoded.rows.schema == arrow_schema(pipeline.columns_of("orders"))
    return decoded


def test_a_topic_of_values_alone_has_the_decoder_of_its_values() -> None:
    assert type(record_decoder(pipeline_of(Topic("orders")).topic_spec("orders"))) is JsonDecoder


def test_the_columns_of_the_key_and_the_headers_follow_those_of_the_value() -> None:
    headers: list[list[Header]] = [[("trace", b"1")], []]
    keys = [KEY, b'{"order_id": 8, "tenant": "00112233-4455-6677-8899-aabbccddeeff"}']
    topic = Topic("orders", decode=ORDER, key=ORDER_KEY, headers="headers")
    decoded = decode(topic, batch_of([VALUE, VALUE], keys, headers))
    assert decoded.rows.column_names == ["amount", "device", "order_id", "tenant", "headers"]
    assert decoded.rows.column("order_id").to_pylist() == [7, 8]
    assert [one is None for one in decoded.rows.column("tenant").to_pylist()] == [True, False]
    assert decoded.rows.column("headers").to_pylist() == [[("trace", [b"1"])], []]


@pytest.mark.parametrize(
    ("declared", "key", "reason"),
    [
        (ORDER_KEY, b'{"order_id": "7"}', ("type", "key.order_id", '"7" is not')),
        (ORDER_KEY, b"{}", ("missing", "key.order_id", "required and missing")),
        (ORDER_KEY, b"[7]", ("object", "key", None)),
        (ORDER_KEY, b"{", ("json", "key", None)),
        (ORDER_KEY, b"\xff", ("utf8", "key", None)),
        (ORDER_KEY, None, ("tombstone", "key", "the key is null")),
        (
            Json([Column("os", "string", source="device.os")]),
            b'{"device": 1}',
            ("type", "key.device", None),
        ),
        (Text("order_key"), b"ab\xff", ("utf8", "key", "byte 2 is not UTF-8")),
        (Text("order_key"), None, ("tombstone", "key", "the key is null")),
        (Raw("order_key"), None, ("tombstone", "key", "the key is null")),
    ],
)
def test_a_key_that_does_not_fit_is_a_dead_letter_with_its_place(
    declared: Json | Text | Raw, key: bytes | None, reason: tuple[str, str, str | None]
) -> None:
    good = b'{"order_id": 7, "device": {"os": "x"}}'
    decoded = decode(
        Topic("orders", decode=ORDER, key=declared, headers="headers"),
        batch_of([VALUE] * 3, [good, key, good], [[("n", b"0")], [("n", b"1")], [("n", b"2")]]),
    )
    assert (decoded.kept.tolist(), decoded.dead.tolist()) == ([0, 2], [1])
    assert decoded.rows.column("headers").to_pylist() == [[("n", [b"0"])], [("n", [b"2"])]]
    [found] = decoded.reasons
    kind, field, detail = reason
    assert (found.kind, found.field) == (kind, field)
    assert detail is None or found.detail.startswith(detail)


def test_the_reason_of_the_value_is_taken_if_the_key_is_bad_too() -> None:
    decoded = decode(
        Topic("orders", decode=ORDER, key=ORDER_KEY), batch_of([b"{", VALUE, None], [None] * 3)
    )
    assert [(one.kind, one.field) for one in decoded.reasons] == [
        ("json", None),
        ("tombstone", "key"),
        ("tombstone", None),
    ]
    assert [decoded.reasons[n].detail for n in (1, 2)] == ["the key is null", "the value is null"]
    assert (decoded.kept.tolist(), decoded.rows.num_rows) == ([], 0)


@pytest.mark.parametrize(
    ("declared", "cell"),
    [
        (Json([Column("id", "long", required=False)], tombstones="keep"), None),
        (Text("id", tombstones="keep"), None),
        (Raw("id", tombstones="keep"), None),
    ],
)
def test_a_null_key_is_a_row_if_the_key_keeps_tombstones(
    declared: Json | Text | Raw, cell: object
) -> None:
    decoded = decode(Topic("orders", decode=ORDER, key=declared), batch_of([VALUE], [None]))
    assert decoded.rows.to_pylist() == [{"amount": 1, "device": {"os": "x"}, "id": cell}]


def test_a_deletion_keeps_its_key() -> None:
    value = Json([Column("amount", "int", required=False)], tombstones="keep")
    topic = Topic("orders", decode=value, key=Json([Column("order_id", "long")]))
    decoded = decode(topic, batch_of([b'{"amount": 1}', None, None], [KEY, KEY, None]))
    assert decoded.rows.to_pylist() == [
        {"amount": 1, "order_id": 7},
        {"amount": None, "order_id": 7},
    ]
    assert [str(one) for one in decoded.reasons] == ["tombstone: field key: the key is null"]


@pytest.mark.parametrize(
    ("headers", "maps"),
    [
        ([[], []], [[], []]),
        ([[], [("a", b"1")]], [[], [("a", [b"1"])]]),
        ([[("a", None)], [("", b"")]], [[("a", [None])], [("", [b""])]]),
        # Values keep the record's order, names that of their first value.
        (
            [[("b", b"1"), ("a", b"2"), ("b", None), ("a", b"3")], [("a", b"4")], []],
            [[("b", [b"1", None]), ("a", [b"2", b"3"])], [("a", [b"4"])], []],
        ),
        (
            [[("a", b"1")], [], [("a", b"2"), ("a", b"2"), ("\ufffd", b"")]],
            [[("a", [b"1"])], [], [("a", [b"2", b"2"]), ("\ufffd", [b""])]],
        ),
    ],
)
def test_headers_become_a_map_of_all_values_of_a_name(
    headers: list[list[Header]], maps: list[Any]
) -> None:
    topic = Topic("orders", decode=Raw("body"), headers="headers")
    decoded = decode(topic, batch_of([b""] * len(headers), headers=headers))
    assert decoded.rows.column("headers").to_pylist() == maps


def test_no_records_are_no_rows() -> None:
    topic = Topic("orders", decode=ORDER, key=ORDER_KEY, headers="headers")
    decoded = decode(topic, batch_of([]))
    assert (decoded.rows.num_rows, len(decoded.kept), len(decoded.dead)) == (0, 0, 0)


# ---------------------------------------------------------------- the parts and the whole

JSON_VALUES = st.sampled_from([None, b"{", b"{}", b'{"a": 1, "b": "x"}', b'{"a": "1"}', b"\xff"])
FORMATS = st.sampled_from(
    [
        lambda mark: Json([Column(f"{mark}a", "int", source="a", required=False)]),
        lambda mark: Json(
            [
                Column(f"{mark}a", "int", source="a", required=False),
                Column(f"{mark}b", "string", source="b", required=False),
            ],
            tombstones="keep",
        ),
        lambda mark: Json([Column(f"{mark}b", "string", source="b")]),
        lambda mark: Text(f"{mark}text"),
        lambda mark: Raw(f"{mark}bytes", tombstones="keep"),
    ]
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "\u00fc"]), st.sampled_from([None, b"", b"x", b"y"])),
    max_size=5,
)
RECORDS = st.lists(st.tuples(JSON_VALUES, JSON_VALUES, HEADERS), max_size=12)


def alone(declared: Format, contents: Sequence[bytes | None]) -> list[dict[str, Any] | Reason]:
    """Return the row or the reason of each content, each decoded in a batch of its own."""
    decoder = decoder_of(declared)
    found: list[dict[str, Any] | Reason] = []
    for content in contents:
        decoded = decoder.decode(batch_of([content]))
        found += [*decoded.rows.to_pylist(), *decoded.reasons]
    return found


def grouped(headers: Sequence[Header]) -> list[tuple[str, list[bytes | None]]]:
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    return list(found.items())


@settings(max_examples=200, deadline=None)
@given(records=RECORDS, value_format=FORMATS, key_format=FORMATS, with_headers=st.booleans())
def test_a_record_is_what_its_parts_are(
    records: list[tuple[bytes | None, bytes | None, list[Header]]],
    value_format: Any,
    key_format: Any,
    with_headers: bool,
) -> None:
    name = "headers" if with_headers else None
    topic = Topic("orders", decode=value_format("v"), key=key_format("k"), headers=name)
    spec = pipeline_of(topic).topic_spec("orders")
    assert spec.key is not None
    values, keys = ([one[at] for one in records] for at in (0, 1))
    decoded = decode(topic, batch_of(values, keys, [one[2] for one in records]))
    rows, reasons, kept = [], [], []
    parts = zip(alone(spec.decode, values), alone(spec.key, keys), records, strict=True)
    for position, (value, key, record) in enumerate(parts):
        if isinstance(value, Reason):
            reasons.append((value.kind, value.field))
        elif isinstance(key, Reason):
            reasons.append((key.kind, "key" if key.field is None else f"key.{key.field}"))
        else:
            headers = {"headers": grouped(record[2])} if with_headers else {}
            rows.append({**value, **key, **headers})
            kept.append(position)
    assert decoded.rows.to_pylist() == rows
    assert decoded.kept.tolist() == kept
    assert sorted([*kept, *decoded.dead.tolist()]) == list(range(len(records)))
    assert [(one.kind, one.field) for one in decoded.reasons] == reasons
