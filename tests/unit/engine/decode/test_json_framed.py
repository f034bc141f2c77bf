"""JSON in Confluent's wire format: the same rows and reasons as without its header, and the ids of the plan's schemas."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.engine.decode.decoder import Decoded, decoder_of
from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.misfits import misfit
from tallystick.errors import InvalidPipeline
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema, SchemaKind, schema_digest
from tallystick.pipeline import Column, Format, Json
from tallystick.pipeline.registry_options import registry_options

COLUMNS = [
    Column("n", "long"),
    Column("name", "string", required=False),
    Column("os", "string", required=False, source="device.os"),
    Column("tags", "list<string>", required=False),
]


def schema(
    number: int, kind: SchemaKind = "JSON", text: str = '{"type": "object"}'
) -> FrozenSchema:
    digest = schema_digest(kind, text, ())
    return FrozenSchema(
        id=number, subject="t-value", version=1, kind=kind, text=text, references=(), sha256=digest
    )


PLANNED = [
    PlannedRegistry(
        name="default", schemas=(schema(7), schema(8, text="true"), schema(9, "AVRO", '"long"'))
    )
]


def framed(text: bytes, number: int = 7) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + text


def decode(
    values: list[bytes | None], *, registry: str | None = "default", **options: Any
) -> Decoded:
    declared = Json(COLUMNS, registry=registry, **options).format
    # A part of a larger batch, as the reader has it.
    whole = pa.array([b"\0first", *values], pa.binary())
    batch = pa.RecordBatch.from_arrays([whole], ["value"]).slice(1)
    return decoder_of(declared, PLANNED).decode(batch)


TEXTS = st.one_of(
    st.fixed_dictionaries(
        {"n": st.integers(-(2**64), 2**64) | st.text(max_size=3)},
        optional={
            "name": st.none() | st.text(max_size=5),
            "device": st.none() | st.fixed_dictionaries({"os": st.text(max_size=3)}),
            "tags": st.lists(st.text(max_size=2), max_size=3),
            "other": st.lists(st.integers(), max_size=3),
        },
    ).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=12),
    st.sampled_from(
        [b"", b"{", b"null", b" {} ", b'{"n":1,"n":2}', b'{"\\u006e": 5}', b'{"n": 1} x']
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_a_header_changes_neither_rows_nor_reasons(texts: list[bytes]) -> None:
    plain = decode([*texts], registry=None)
    found = decode([framed(text) for text in texts])
    assert found.rows.equals(plain.rows)
    assert (found.kept.tolist(), found.dead.tolist()) == (plain.kept.tolist(), plain.dead.tolist())
    assert found.reasons == plain.reasons


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            framed(b'{"n": 1}', 6),
            "schema_id: expected a schema id of the plan (7, 8, 9), found 6",
        ),
        (framed(b'{"n": 1}', 9), "schema: expected a JSON Schema, found AVRO as schema 9"),
        (b'{"n": 1}', "magic: expected a zero byte as the first, found 0x7b226e223a20317d"),
        (b"\0\0\0\0", "magic: expected a zero byte and a schema id, found 4 bytes"),
        (framed(b""), "json: Expecting value at character 0"),
        (None, "tombstone: the value is null"),
        (framed(b'{"n": "1"}'), 'type: field n: "1" is not a long'),
        (
            framed(b'{"n": 1, "x": "' + b"a" * VALUE_BYTES_MAX + b'"}'),
            f"size: the value has {VALUE_BYTES_MAX + 17} bytes, more than {VALUE_BYTES_MAX}",
        ),
    ],
)
def test_a_value_that_has_no_row_has_a_reason(value: bytes | None, reason: str) -> None:
    good = framed(b'{"n": 5}', 8)
    found = decode([good, value, good])
    assert found.rows.column("n").to_pylist() == [5, 5]
    assert found.dead.tolist() == [1]
    assert [str(one) for one in found.reasons] == [reason]


def test_a_text_of_the_largest_size_is_read_though_its_header_is_longer() -> None:
    text = b'{"n": 1, "x": ""}'
    text = text.replace(b'""', b'"' + b"a" * (VALUE_BYTES_MAX - len(text)) + b'"')
    assert decode([framed(text)]).rows.column("n").to_pylist() == [1]


def test_values_of_several_schemas_keep_the_order_of_their_records() -> None:
    values = [framed(b'{"n": %d}' % n, 7 + n % 2) for n in range(9)]
    assert decode([*values]).rows.column("n").to_pylist() == list(range(9))


def test_tombstones_can_be_rows() -> None:
    columns = [Column("n", "long", required=False)]
    declared = Json(columns, tombstones="keep", registry="default").format
    values = pa.array([None, framed(b'{"n": 1}')], pa.binary())
    found = decoder_of(declared, PLANNED).decode(pa.RecordBatch.from_arrays([values], ["value"]))
    assert found.rows.column("n").to_pylist() == [None, 1]


def test_a_plan_contains_the_options_only_with_a_registry() -> None:
    without = Json(COLUMNS).format
    assert dict(without.options) == {"tombstones": "dead"}
    assert registry_options(without) is None
    declared = Json(COLUMNS, registry="default", subjects=["a", "b"], misfits="stop")
    options = registry_options(declared.format)
    assert options is not None
    assert (options.registry, options.subjects, options.misfits) == ("default", ("a", "b"), "stop")
    assert Json.of(declared.format) == declared


def test_only_the_kind_of_a_schema_can_be_a_misfit() -> None:
    declared = Json(COLUMNS, registry="default").format
    assert misfit(declared, schema(7, text='{"type": "string"}')) is None
    found = misfit(declared, schema(9, "AVRO", '"long"'))
    assert str(found) == "schema: expected a JSON Schema, found AVRO as schema 9"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subjects": ["a"]}, "expected subjects and misfits only with a registry"),
        ({"misfits": "stop"}, "expected subjects and misfits only with a registry"),
        (
            {"registry": "default", "misfits": "none"},
            "misfits: expected 'dead' or 'stop', found 'none'",
        ),
        (
            {"registry": "default", "subjects": "a"},
            "subjects: expected a list, found the string 'a'",
        ),
        ({"registry": "no name"}, "connection"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        Json(COLUMNS, **options)
    with pytest.raises(InvalidPipeline, match=message):
        decoder_of(Format("json", COLUMNS, options))
