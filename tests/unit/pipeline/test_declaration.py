"""Mistakes in a declaration are refused when the DAG file is read, with the name of the wrong part and a hint."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Column, Json, Pipeline, Table, Topic, pipeline_from_spec


@pytest.mark.parametrize("decode", ["avro", "json", Json, [Column("n", "long")], {"n": "long"}])
def test_a_decode_that_is_no_decoder_is_refused(decode: Any) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Topic("clicks", decode=decode)
    assert f"topic clicks: unknown decode={decode!r}" in refused.value.message
    assert "use Json([Column(...), ...])" in refused.value.hint
    assert "Avro" in refused.value.hint


@pytest.mark.parametrize(
    ("source", "path", "field"),
    [
        ("device.os", ("device", "os"), "device.os"),
        ("items[0].sku", ("items", 0, "sku"), "items[0].sku"),
        ("a[1][2]", ("a", 1, 2), "a[1][2]"),
        (r"http\.method", ("http.method",), "http.method"),
        (r"a\[0\]", ("a[0]",), "a[0]"),
        (r"a\\b.c", ("a\\b", "c"), "a\\b.c"),
        ("", ("",), ""),
    ],
)
def test_a_source_is_a_path_of_names_and_positions(
    source: str, path: tuple[str | int, ...], field: str
) -> None:
    column = Column("tags", "string", source=source)
    assert (column.path, column.field) == (path, field)
    assert Column.from_json(column.to_json(), "column") == column


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a..b", "expected a name at character 2"),
        (".", "expected a name at character 0"),
        ("a.", "expected a name at character 2"),
        ("[0]", "expected a name at character 0"),
        ("a[x]", "expected a dot or the end at character 1, found '['"),
        ("a[0", "expected a dot or the end at character 1, found '['"),
        ("a[0]b", "expected a dot or the end at character 4, found 'b'"),
        ("a\\b", "expected a dot or the end at character 1, found '\\\\'"),
        ("a[10000]", "expected a position of at most 9999, found 10000"),
    ],
)
def test_a_source_that_is_no_path_is_refused_and_the_proposed_source_names_the_field(
    source: str, problem: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Column("tags", "string", source=source)
    assert refused.value.message == f"column 'tags': source {source!r}: {problem}."
    # The source that the hint proposes is accepted, and names that field.
    proposed = refused.value.hint.split('source=r"')[1].removesuffix('".')
    assert Column("tags", "string", source=proposed).path == (source,)


def test_a_field_with_a_dot_in_its_name_is_read_and_survives_a_plan() -> None:
    columns = [Column("method", "string", source=r"http\.method"), Column("n", "long", source="")]
    pipeline = Pipeline(
        name="small",
        topics=["events"],
        warehouse="memory://small",
        job="jobs/small.py",
        tables=[Table("events", columns=columns)],
    )
    reread = pipeline_from_spec(pipeline.to_spec(), where="spec")
    assert (reread.tables, reread.to_spec()) == (pipeline.tables, pipeline.to_spec())
    value = b'{"http.method": "GET", "": 1, "http": {"method": "nested"}}'
    rows = JsonDecoder(Json(columns)).decode_values(pa.array([value])).rows
    assert rows.column("method").to_pylist()[0] == "GET"
    assert rows.column("n").to_pylist()[0] == 1


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("lnog", "did you mean 'long'?"),
        ("bigint", "did you mean 'long'?"),
        ("integer", "did you mean 'int'?"),
        ("bool", "did you mean 'boolean'?"),
        ("TIMESTAMP", "did you mean 'timestamp'?"),
        ("colour", "use one of these types."),
        ("array<int>", "did you mean 'list<type>'?"),
        ("list<strnig>", "did you mean 'string'?"),
        ("map<string, bigint>", "did you mean 'long'?"),
    ],
)
def test_an_unknown_type_is_refused_with_its_column_and_the_nearest_type(
    kind: str, step: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        Column("edits", kind)
    assert refused.value.message.startswith("column 'edits': column type: expected one of ")
    word = re.findall(r"\w+", kind)[0 if "array" in kind else -1]
    assert refused.value.message.endswith(f", found {word!r}.")
    assert refused.value.hint == step


@pytest.mark.parametrize("warehouse", ["s3://lake", "s3://lake/", "lake/small", "s3a://lake/small"])
def test_a_warehouse_without_a_prefix_is_refused_when_it_is_declared(warehouse: str) -> None:
    with pytest.raises(InvalidPipeline, match="warehouse: expected s3://bucket/prefix") as refused:
        Pipeline(
            name="small",
            topics=["events"],
            warehouse=warehouse,
            job="jobs/small.py",
            tables=[Table("events", columns=[Column("n", "long")])],
        )
    assert "use e.g. s3://lake/small" in refused.value.hint


def test_a_value_that_is_no_column_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="table edits: expected a Column, found 'n'"):
        Table("edits", columns=["n"])  # type: ignore[list-item]
