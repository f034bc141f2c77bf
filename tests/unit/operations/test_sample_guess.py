"""Guessing columns from values: each guess decodes what it was made from, or names what it does not decode."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.operations.sample.guess import fitting, guess, object_of, safe_name
from tallystick.pipeline import Column, Json


def of(*values: Any, name: str = "f") -> Any:
    """Return the guess for a field with these values, one record each."""
    found = guess([json.dumps({name: value}).encode() for value in values])
    return found.columns[0] if found.columns else None


@pytest.mark.parametrize(
    ("name", "values", "kind", "parse"),
    [
        ("n", [1, 2, -3], "long", None),
        ("n", [2**31, 1], "long", None),
        ("n", [2**63 - 1], "long", None),
        ("n", [2**63], "decimal(38,0)", None),
        ("n", [2**63, 0.5], "double", None),
        ("n", [1, 2.5], "double", None),
        ("n", [1.0, 2.0], "long", None),
        ("n", [1, "2.50"], "decimal(38,2)", None),
        ("n", ["1", "2"], "string", None),
        ("b", [True, False], "boolean", None),
        ("s", ["", "x"], "string", None),
        ("d", ["2015-09-12", "2015-09-13"], "date", None),
        ("d", ["2015-09-12", "2015-09-12T00:00:00Z"], "string", None),
        ("d", ["2015-13-12"], "string", None),
        ("d", ["Jun 12 1998", "Aug 7 1998"], "date", "%b %d %Y"),
        ("d", ["2015/09/12"], "date", "%Y/%m/%d"),
        ("d", ["12.09.2015"], "date", "%d.%m.%Y"),
        ("d", ["03/04/2015"], "string", None),
        ("d", ["Jun 12 1998", "soon"], "string", None),
        ("time", ["2015-09-12T00:46:58.771Z"], "timestamptz", None),
        ("time", ["2015-09-12 00:46:58+02:00"], "timestamptz", None),
        ("time", ["2015-09-12T00:46:58"], "timestamp", None),
        ("time", ["10/Oct/2000:13:55:36 -0700"], "timestamptz", "%d/%b/%Y:%H:%M:%S %z"),
        ("ts", [1442018818, 1442018819.5], "timestamptz", "epoch_s"),
        ("createdAt", [1442018818771], "timestamptz", "epoch_ms"),
        ("event_time_us", [1442018818771000], "timestamptz", "epoch_us"),
        ("updated_ms", [1442018818771], "timestamptz", "epoch_ms"),
        ("user_id", [1442018818], "long", None),
        ("format", [1442018818], "long", None),
        ("ts", [7], "long", None),
        ("ts", [1442018818, 1442018818771], "long", None),
    ],
)
def test_types_are_guessed_from_values_and_names(
    name: str, values: list[Any], kind: str, parse: str | None
) -> None:
    found = of(*values, name=name)
    assert (found.column.type, found.column.parse) == (kind, parse)
    assert found.misfits == 0


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        ([1, "x"], "long", "decide: numbers and strings in the sample; as long, 1 of 2 become"),
        (["x", "y", 1], "string", "numbers and strings in the sample; as string, 1 of 3 become"),
        ([True, "x", "y"], "string", "booleans and strings"),
    ],
)
def test_mixed_values_are_left_to_a_person_with_what_the_decoder_refuses(
    values: list[Any], kind: str, note: str
) -> None:
    found = of(*values)
    assert found.column.type == kind
    assert note in found.notes[0]
    assert found.misfits == 1


def test_nulls_and_missing_fields_make_a_column_optional_with_their_count() -> None:
    found = guess([b'{"a": 1, "b": 1, "c": null}', b'{"a": 2, "b": null}', b'{"a": 3}', b"no"])
    assert (found.records, found.objects) == (4, 3)
    a, b, c = found.columns
    assert a.column == Column("a", "long")
    assert b.column == Column("b", "long", required=False)
    assert b.notes == ("missing or null in 2 of 3",)
    assert c.column == Column("c", "string", required=False)
    assert c.notes == ("null in each record of the sample: check the type",)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([{"a": 1}, {"a": 2, "b": "x"}], Column("f", "struct<a: long, b: optional string>")),
        ([[1], []], Column("f", "list<long>")),
        ([["a", None]], Column("f", "list<optional string>")),
        ([{"a": [{"b": 1.5}]}], Column("f", "struct<a: list<struct<b: double>>>")),
        (
            [{"user-agent": "x"}],
            Column("f", "struct", fields=[Column("user_agent", "string", source="user-agent")]),
        ),
        (
            [{"sent_at": [1700000000000]}],
            Column(
                "f", "struct", fields=[Column("sent_at", "list<timestamptz>", parse="epoch_ms")]
            ),
        ),
        ([{f"key {i}": i for i in range(100)}], Column("f", "map<string, long>")),
        # What no type reads is kept as text, and a person decides.
        ([[]], Column("f", "string", parse="json")),
        ([{}], Column("f", "string", parse="json")),
        (["x", {"a": 1}], Column("f", "string", parse="json")),
        ([[1, "x"], {"a": 1}], Column("f", "string", parse="json")),
        ([[{"a": 1}, [2]]], Column("f", "list<string>", parse="json")),
    ],
)
def test_objects_and_arrays_become_nested_columns_or_text(
    values: list[Any], column: Column
) -> None:
    found = of(*values)
    assert (found.column, found.misfits) == (column, 0)
    if column.parse == "json":
        assert found.notes[-1].startswith("decide: ")


@pytest.mark.parametrize(
    ("field", "name", "source"),
    [
        ("page", "page", None),
        ("page title", "page_title", "page title"),
        ("http.method", "http_method", r"http\.method"),
        ("_id", "id", "_id"),
        ("1st", "f_1st", "1st"),
        ("", "field", ""),
        ("größe", "gr_e", "größe"),
        ("a\\b", "a_b", r"a\\b"),
        ("-", "field", "-"),
        ("x" * 200, "x" * 120, "x" * 200),
    ],
)
def test_a_field_whose_name_is_no_column_name_gets_one_and_its_source(
    field: str, name: str, source: str | None
) -> None:
    column = of(1, name=field).column
    assert (column.name, column.source) == (name, source)
    assert column.field == field


def test_names_that_differ_only_in_case_are_numbered() -> None:
    found = guess([b'{"User": 1, "user": 2, "USER": 3}'])
    assert [(c.column.name, c.column.source) for c in found.columns] == [
        ("User", None),
        ("user_2", "user"),
        ("USER_3", "USER"),
    ]
    assert safe_name("_file", ()) == "file"


def test_the_event_time_may_be_any_time_column_that_is_always_there() -> None:
    found = guess([b'{"at": "2015-09-12T00:00:00Z", "day": "2015-09-12", "gone": null}'])
    assert [c.column.name for c in found.times] == ["at", "day"]


@pytest.mark.parametrize(
    ("values", "fits"),
    [([1, 2], "long"), (["2015-09-12"], "date"), ([1, "x"], None), ([None], None)],
)
def test_a_column_that_fits_all_values_or_none(values: list[Any], fits: str | None) -> None:
    objects = [object_of(json.dumps({"f": value}).encode()) for value in values]
    found = fitting("f", [one["f"] for one in objects if one is not None])
    assert (found.type if found else None) == fits


@pytest.mark.parametrize("value", [b'{"f": NaN}', b'{"f": Infinity}', b"[1]", b"7", b"", None])
def test_what_is_no_json_object_counts_as_a_record_only(value: bytes | None) -> None:
    found = guess([value, b'{"f": 1}'])
    assert (found.records, found.objects) == (2, 1)
    assert found.columns[0].column == Column("f", "long")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.datetimes().map(lambda at: at.isoformat()),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.dates().map(str),
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b.c", "_d", "A"]), SCALARS, max_size=4), max_size=6
)


@given(ROWS)
def test_what_is_guessed_decodes_every_record_but_those_with_a_misfit(
    rows: list[dict[str, Any]],
) -> None:
    values = [json.dumps(row).encode() for row in rows]
    found = guess(values)
    if not found.columns:
        return
    decoded = JsonDecoder(Json([c.column for c in found.columns])).decode_values(
        pa.array(values, pa.binary())
    )
    misfits = sum(c.misfits for c in found.columns)
    assert len(decoded.dead) <= misfits
    assert bool(len(decoded.dead)) == bool(misfits)
