"""Structs, lists, maps and paths in JSON: the rows, the reasons, and that kernels and exact rules agree on any values."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Decoded, Reason
from tallystick.engine.decode.json.exact import ExactRow
from tallystick.engine.decode.json.parsed import MismatchError
from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column, Json

TESTS = Path(__file__).parents[3]
ITEM = [
    Column("sku", "string"),
    Column("price", "decimal(9,2)", required=False, source="cost.amount"),
    Column("tags", "list<optional string>", required=False),
    Column("at", "list<timestamptz>", required=False, parse="epoch_ms"),
]
COLUMNS = [
    Column("id", "long", required=False),
    Column(
        "device",
        "struct<os: string, version: optional int, screen: optional struct<dpi: double>>",
        required=False,
    ),
    Column("os", "string", source="device.os", required=False),
    Column("items", "list<struct>", fields=ITEM, required=False),
    Column("sku", "string", source="items[0].sku", required=False),
    Column("second", "string", source="items[1].tags[0]", required=False),
    Column("counts", "map<string, optional long>", required=False),
    Column("one", "long", source="counts.one", required=False),
    Column("by_number", "map<int, list<list<int>>>", required=False),
    Column("text", "string", source="items", parse="json", required=False),
    Column("number", "uuid", required=False),
    Column("clock", "time", required=False),
    Column("digest", "fixed[2]", required=False),
    Column("rest", "string"),
]
DECODER = JsonDecoder(Json(COLUMNS, other_fields="rest"))
EXACT = ExactRow(COLUMNS, rest="rest")


def decode(*values: Any, columns: list[Column] | None = None) -> Decoded:
    decoder = DECODER if columns is None else JsonDecoder(Json(columns))
    bodies = [v if isinstance(v, bytes) else json.dumps(v).encode() for v in values]
    return decoder.decode_values(pa.array(bodies, pa.binary()))


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decoded.rows.to_pylist(maps_as_pydicts="strict")
    return found


# ---------------------------------------------------------------- values

NOTHING = {c.name: None for c in COLUMNS} | {"rest": "{}"}


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ({}, {}),
        ({"device": None, "items": None, "counts": None}, {}),
        (
            {"device": {"os": "x", "more": [{}]}},
            {"device": {"os": "x", "version": None, "screen": None}, "os": "x"},
        ),
        (
            {"device": {"screen": {"dpi": 1}, "os": "", "version": 2.0}},
            {"device": {"os": "", "version": 2, "screen": {"dpi": 1.0}}, "os": ""},
        ),
        ({"items": []}, {"items": [], "text": "[]"}),
        ({"counts": {}, "by_number": {}}, {"counts": {}, "by_number": {}}),
        (
            {"counts": {"one": 1, "two": None, "": 3}},
            {"counts": {"one": 1, "two": None, "": 3}, "one": 1},
        ),
        (
            {"by_number": {"1": [[1, 2], [], [3]], "-7": []}},
            {"by_number": {1: [[1, 2], [], [3]], -7: []}},
        ),
        (
            {"number": "00112233-4455-6677-8899-AABBCCDDEEFF", "clock": "23:59:59.5"},
            {
                "number": UUID("00112233-4455-6677-8899-aabbccddeeff"),
                "clock": time(23, 59, 59, 500_000),
            },
        ),
        ({"clock": "05:15"}, {"clock": time(5, 15)}),
        ({"digest": "aGk="}, {"digest": b"hi"}),
        (b' {"x": 1.50 , "id":1,"y":{"a":[ ]}} ', {"id": 1, "rest": '{"x": 1.50,"y":{"a":[ ]}}'}),
        (b'{"\\u0069d":1,"z":"\\u00e9"}', {"id": 1, "rest": '{"z":"\\u00e9"}'}),
    ],
)
def test_a_nested_value_becomes_a_row(value: Any, row: dict[str, Any]) -> None:
    decoded = decode({"id": 1}, value, {"id": 2})
    assert not decoded.reasons
    assert rows(decoded)[1] == {**NOTHING, **row}


def test_lists_of_structs_keep_order_and_nulls() -> None:
    items = [
        {"sku": "a", "cost": {"amount": 1.5}, "tags": ["p", None, ""], "at": [0, 1]},
        {"sku": "b", "cost": None, "tags": []},
        {"sku": "c", "cost": {}},
    ]
    found = rows(decode({"id": 1, "items": items}, {"items": [{"sku": "d"}]}, {}))
    moments = [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)]
    assert found[0]["items"] == [
        {"sku": "a", "price": Decimal("1.50"), "tags": ["p", None, ""], "at": moments},
        {"sku": "b", "price": None, "tags": [], "at": None},
        {"sku": "c", "price": None, "tags": None, "at": None},
    ]
    assert [row["sku"] for row in found] == ["a", "d", None]
    assert found[0]["text"] == json.dumps(items)


@pytest.mark.parametrize(
    ("value", "kind", "field"),
    [
        ({"device": 1}, "type", "device"),
        ({"device": []}, "type", "device"),
        ({"device": {}}, "missing", "device.os"),
        ({"device": {"os": None}}, "null", "device.os"),
        ({"device": {"os": 1}}, "type", "device.os"),
        ({"device": {"os": "x", "screen": {"dpi": "y"}}}, "type", "device.screen.dpi"),
        (b'{"device": {"os": "x", "os": "y"}}', "duplicate", "device.os"),
        ({"items": {}}, "type", "items"),
        ({"items": [None]}, "null", "items[]"),
        ({"items": [{"sku": "a"}, {}]}, "missing", "items[].sku"),
        ({"items": [{"sku": "a", "cost": 1}]}, "type", "items[].cost"),
        ({"items": [{"sku": "a", "cost": {"amount": "x"}}]}, "type", "items[].cost.amount"),
        ({"items": [{"sku": "a", "tags": [1]}]}, "type", "items[].tags[]"),
        ({"items": [{"sku": "a", "at": [None]}]}, "null", "items[].at[]"),
        ({"counts": []}, "type", "counts"),
        ({"counts": {"a": 1.5}}, "inexact", "counts[]"),
        (b'{"counts": {"a": 1, "b": 2, "a": 3}}', "duplicate", "counts"),
        (b'{"by_number": {"1": [], "1.0": []}}', "duplicate", "by_number"),
        ({"by_number": {"x": []}}, "type", "by_number"),
        ({"by_number": {"3000000000": []}}, "range", "by_number"),
        ({"number": "00112233"}, "type", "number"),
        ({"number": "00112233-4455-6677-8899-aabbccddeefg"}, "type", "number"),
        ({"clock": "24:00:00"}, "time", "clock"),
        ({"clock": "05:15:00.1234567"}, "inexact", "clock"),
        ({"clock": "5 o'clock"}, "time", "clock"),
        ({"digest": "aGkh"}, "range", "digest"),
        ({"items": [[[]]]}, "type", "items[]"),
    ],
)
def test_a_nested_value_that_does_not_fit_is_a_dead_letter_with_its_place(
    value: Any, kind: str, field: str
) -> None:
    decoded = decode({"id": 1}, value, {"items": [{"sku": "d"}], "counts": {"a": 1}})
    [reason] = decoded.reasons
    assert (reason.kind, reason.field) == (kind, field)
    assert decoded.kept.tolist() == [0, 2]
    assert [row["sku"] for row in rows(decoded)] == [None, "d"]


def test_a_path_through_another_value_is_a_dead_letter_at_that_value() -> None:
    columns = [Column("x", "long", source="a.b[1].c", required=False)]
    values = [{"a": 1}, {"a": {"b": {}}}, {"a": {"b": [0, 5]}}, {"a": {"b": [0]}}, {"a": None}]
    good = {"a": {"b": [None, {"c": 3}, "x"]}}
    decoded = decode(*values, good, columns=columns)
    assert [(r.kind, r.field) for r in decoded.reasons] == [
        ("type", "a"),
        ("type", "a.b"),
        ("type", "a.b[1]"),
    ]
    assert rows(decoded) == [{"x": None}, {"x": None}, {"x": 3}]


def test_a_required_column_at_a_path_that_is_absent_is_missing() -> None:
    columns = [Column("x", "long", source="a.b")]
    decoded = decode({"a": None}, {}, {"a": {}}, {"a": {"b": None}}, columns=columns)
    assert [(r.kind, r.field) for r in decoded.reasons] == [
        ("missing", "a.b"),
        ("missing", "a.b"),
        ("missing", "a.b"),
        ("null", "a.b"),
    ]


KEYS = {
    "string": ("a", "a"),
    "boolean": ("true", True),
    "int": ("7", 7),
    "long": ("1e3", 1000),
    "double": ("1.5", 1.5),
    "decimal(9,2)": ("1.50", Decimal("1.50")),
    "date": ("2026-01-02", date(2026, 1, 2)),
    "time": ("05:15:00", time(5, 15)),
    "timestamptz": ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
    "uuid": (str(UUID(int=7)), UUID(int=7)),
    "binary": ("aGk=", b"hi"),
    "fixed[2]": ("aGk=", b"hi"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_map_has_keys_of_any_primitive_type(kind: str) -> None:
    key, value = KEYS[kind]
    columns = [Column("m", f"map<{kind}, long>")]
    twice = f'{{"m": {{"{key}": 1, "{key}": 2}}}}'.encode()
    found = decode({"m": {key: 1}}, twice, {"m": {}}, {"m": {key: 2}}, columns=columns)
    assert rows(found) == [{"m": {value: 1}}, {"m": {}}, {"m": {value: 2}}]
    assert [(r.kind, r.field) for r in found.reasons] == [("duplicate", "m")]


# ---------------------------------------------------------------- size


def test_a_list_that_is_longer_than_the_room_for_it_is_read_whole() -> None:
    long = {"items": [{"sku": str(i), "tags": ["x"] * (i % 5)} for i in range(5_000)]}
    bad = {"items": [{"sku": "a"}] * 100 + [{}]}
    found = decode({"id": 1}, long, bad, long, {"counts": {str(i): i for i in range(1_000)}})
    assert [r.field for r in found.reasons] == ["items[].sku"]
    kept = rows(found)
    for row in (kept[1], kept[2]):
        assert [item["sku"] for item in row["items"]] == [str(i) for i in range(5_000)]
        assert sum(len(item["tags"]) for item in row["items"]) == 10_000
    assert kept[3]["counts"] == {str(i): i for i in range(1_000)}


@pytest.mark.parametrize("depth", [62, 63, 64, 65])
def test_depth_is_limited_with_and_without_columns_on_the_way(depth: int) -> None:
    columns = [Column("x", "long", required=False), Column("a", "list<list<long>>", required=False)]
    unread = b'{"b":' + b"[" * depth + b"]" * depth + b"}"
    read = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    decoded = decode(unread, read, columns=columns)
    expected = "type" if depth < 64 else "depth"
    assert [r.kind for r in decoded.reasons] == ([expected] if depth < 64 else ["depth"] * 2)


def test_an_empty_batch_has_no_rows() -> None:
    assert DECODER.decode_values(pa.array([], pa.binary())).rows.num_rows == 0


# ---------------------------------------------------------------- agreement

LEAVES = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(
        [
            *(
                "null",
                "true",
                "1.5",
                "1e2",
                "3000000000",
                '""',
                '"x"',
                '"\\u0061"',
                '"aGk="',
                "nul",
            ),
            *('"00112233-4455-6677-8899-aabbccddeeff"', '"05:15:00"', '"05:15"', '"\\ud83d"'),
        ]
    ),
)
NAMES = st.sampled_from(
    [
        *("id", "device", "os", "version", "screen", "dpi", "items", "sku", "cost", "amount"),
        *("tags", "at", "counts", "one", "by_number", "1", "1.0", "number", "clock", "digest"),
        *("z", "\\u0069d"),
    ]
)


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(NAMES, inner), max_size=4).map(
        lambda pairs: "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"
    )


ANY = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]"), objects(inner)
    ),
    max_leaves=6,
)
# Values that mostly fit, so that rows with nested values are frequent.
ITEMS = st.lists(
    st.one_of(
        st.builds(
            '{{"sku":"{}","cost":{},"tags":{},"at":[{}]}}'.format,
            st.sampled_from(["a", "b\\n"]),
            st.one_of(st.just('{"amount":1.25}'), ANY),
            st.one_of(st.just('["p",null]'), st.just("[]"), ANY),
            st.one_of(st.just("0, 1"), ANY),
        ),
        ANY,
    ),
    max_size=3,
).map(lambda v: f"[{','.join(v)}]")
BODIES = st.builds(
    '{{"id":{},"items":{},"counts":{},"by_number":{},"device":{},{}'.format,
    st.one_of(st.just("1"), ANY),
    st.one_of(ITEMS, ITEMS, ANY),
    st.one_of(st.just('{"one":1,"a":null}'), objects(LEAVES), ANY),
    st.one_of(st.just('{"1":[[1],[]]}'), ANY),
    st.one_of(st.just('{"os":"x"}'), ANY),
    st.one_of(
        st.just('"z":1}'), st.just('"z":{"a":[1]} }'), st.just("}"), st.just('"id":2}'), st.just("")
    ),
)


def exactly(body: bytes) -> Any:
    try:
        return EXACT.decode(body)
    except MismatchError as mismatch:
        return mismatch.reason


@settings(max_examples=250, deadline=None)
@given(st.lists(st.one_of(BODIES, BODIES, objects(ANY), ANY), min_size=1, max_size=8))
@example(['{"items":[{"sku":"a"},{}]}', '{"items":[{"sku":"b"}]}'])
def test_kernels_and_exact_rules_agree_on_nested_values(batch: list[str]) -> None:
    bodies = [body.encode("utf-8", "surrogatepass") for body in batch]
    expected = [exactly(body) for body in bodies]
    decoded = DECODER.decode_values(pa.array(bodies, pa.binary()))
    good = [i for i, e in enumerate(expected) if isinstance(e, list)]
    assert decoded.kept.tolist() == good
    assert list(decoded.reasons) == [e for e in expected if isinstance(e, Reason)]
    decoded.rows.validate(full=True)
    assert rows(decoded) == DECODER.table([expected[i] for i in good]).to_pylist(
        maps_as_pydicts="strict"
    )


def test_the_kernel_proves_plain_nested_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of an ordinary record goes through the exact rules: they are a hundred times slower."""

    def never(self: Any, value: bytes) -> list[Any]:
        raise AssertionError(value)

    monkeypatch.setattr(ExactRow, "decode", never)
    item = {"sku": "a", "cost": {"amount": 1.5}, "tags": ["p", "é\n"], "at": [1]}
    value = {
        "id": 1,
        "device": {"os": "x", "version": 1, "screen": {"dpi": 1.5}},
        "items": [item, item],
        "counts": {"one": 1},
        "by_number": {"7": [[1]]},
        "number": "00112233-4455-6677-8899-aabbccddeeff",
        "clock": "05:15:00",
        "digest": "aGk=",
        "more": {"x": [1]},
    }
    assert len(rows(decode(value, value))) == 2


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere", "other_fields: expected the name of a string column"),
        ("n", "other_fields: expected the name of a string column"),
    ],
)
def test_other_fields_must_name_a_string_column(name: str, problem: str) -> None:
    with pytest.raises(InvalidPipeline, match=problem):
        Json([Column("n", "long")], other_fields=name)


def test_other_fields_survives_a_plan() -> None:
    declared = Json([Column("n", "long"), Column("rest", "string")], other_fields="rest")
    assert Json.of(declared.format) == declared
