"""The pages of Avro, Protobuf, CSV, JSON with a registry, schemas that are followed and many topics run as written.

Their records become their rows and dead letters, and their tables of types and names are those of the product.
"""

from __future__ import annotations

import io
import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict

from support.dict_registry import DictRegistry
from tallystick.engine.decode.avro.columns import avro_columns
from tallystick.engine.decode.decoder import Decoded
from tallystick.engine.decode.followed import followed_columns
from tallystick.engine.decode.named import named_columns
from tallystick.engine.decode.protobuf.columns import protobuf_columns
from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.engine.decode.protobuf.rows import compiled_schema
from tallystick.engine.decode.record import record_decoder
from tallystick.format.schemas import FrozenSchema, SchemaKind, schema_digest
from tallystick.format.types import type_text
from tallystick.kafka.decode import columns_schema
from tallystick.operations.schemas import PipelineSchemas
from tallystick.pipeline import Avro, Column, Pipeline, Table, Topic
from unit.engine.decode.protobuf_oracle import runtime_class

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
SUBJECT = "shop.orders-value"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block(text: str, language: str) -> str:
    (only,) = blocks(text, language)
    return only


def names_of(text: str, language: str = "python") -> dict[str, Any]:
    """Return the names that the page's code defines."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(block(text, language), names)
    return names


def cells(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the table with this heading, without backticks."""
    _, _, rest = text.partition(f"\n{heading}\n")
    assert rest, heading
    table = rest.split("\n\n")[0].splitlines()[1:]
    return [[c.strip().replace("`", "") for c in row.strip("|").split("|")] for row in table]


def decoded(topic: Topic, registry: DictRegistry, values: list[bytes | None]) -> Decoded:
    """Return the records of a topic, decoded with the schemas that a plan would have."""
    pipeline = Pipeline(
        name="orders",
        topics=[topic],
        warehouse="memory://lake/orders",
        job="spark_jobs/orders.py",
        tables=[Table("orders", columns=topic.declared_columns)],
    )
    count = len(values)
    columns = {
        "offset": range(count),
        "timestamp": [0] * count,
        "key": [None] * count,
        "value": values,
        "headers": [[] for _ in values],
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=columns_schema(headers=True))
    schemas = PipelineSchemas(pipeline.registry_formats(), lambda _: registry).registries()
    return record_decoder(pipeline.topic_spec(topic.name), schemas).decode(batch)


def rows(found: Decoded) -> list[dict[str, Any]]:
    assert not found.reasons
    only: list[dict[str, Any]] = found.rows.to_pylist(maps_as_pydicts="strict")
    return only


def shown(value: Any) -> str:
    """Return a value as the pages show it: the instant as UTC."""
    return repr(value) if value == "" else re.sub(r"tzinfo=[^)]+\)?>?(?=\))", "", str(value))


def framed(content: bytes) -> bytes:
    return b"\0\0\0\0\1" + content


def frozen(kind: SchemaKind, text: str) -> FrozenSchema:
    return FrozenSchema(
        id=1,
        subject=SUBJECT,
        version=1,
        kind=kind,
        text=text,
        references=(),
        sha256=schema_digest(kind, text, ()),
    )


def check_broken(text: str, topic: Topic, registry: DictRegistry) -> None:
    """Check that each record of the page's block `json broken` has the reason that it shows."""
    lines = [json.loads(line) for line in block(text, "json broken").splitlines()]
    values = [None if x["value"] is None else bytes.fromhex(x["value"]) for x in lines]
    found = decoded(topic, registry, values)
    assert [str(reason) for reason in found.reasons] == [line["reason"] for line in lines]


def check_kinds(text: str) -> None:
    """Check that each kind that a broken record of the page has is in its table of kinds."""
    kinds = {json.loads(x)["reason"].split(":")[0] for x in block(text, "json broken").splitlines()}
    table = {k for row in cells(text, "| `kind` | meaning |") for k in re.findall(r"\w+", row[0])}
    assert kinds <= table


# ---------------------------------------------------------------- Avro


def avro_registry(text: str) -> DictRegistry:
    registry = DictRegistry()
    registry.register(SUBJECT, block(text, "json schema"))
    return registry


def test_the_avro_record_of_the_page_becomes_its_row() -> None:
    text = page("read-avro")
    value = json.loads(block(text, "json record"))
    value["amount"] = Decimal(value["amount"])
    value["placed_at"] = datetime.fromisoformat(value["placed_at"])
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(block(text, "json schema")))
    fastavro.schemaless_writer(out, schema, value)
    (row,) = rows(decoded(names_of(text)["topic"], avro_registry(text), [framed(out.getvalue())]))
    assert {name: shown(value) for name, value in row.items()} == dict(
        cells(text, "| column | value |")
    )


def test_the_dead_letters_of_the_avro_page() -> None:
    text = page("read-avro")
    check_broken(text, names_of(text)["topic"], avro_registry(text))
    check_kinds(text)


def typed(column: Column) -> str:
    optional = "" if column.required else ", with required=False"
    return f"{type_text(column)}{optional}"


@pytest.mark.parametrize(("kind", "column"), cells(page("read-avro"), "| Avro | column |"))
def test_each_avro_type_has_the_column_of_the_page(kind: str, column: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": json.loads(kind)}]}
    (found,) = avro_columns(frozen("AVRO", json.dumps(schema)))
    assert typed(found) == column


# ---------------------------------------------------------------- Protobuf


def protobuf_registry(text: str) -> DictRegistry:
    registry = DictRegistry()
    registry.register(SUBJECT, block(text, "proto"), kind="PROTOBUF")
    return registry


def test_the_messages_of_the_page_become_its_rows() -> None:
    text = page("read-protobuf")
    message = runtime_class(
        compiled_descriptors({"order.proto": block(text, "proto")}, "order.proto"), "shop.Order"
    )
    lines = [json.loads(line) for line in block(text, "json records").splitlines()]
    values = [framed(b"\0" + ParseDict(line, message()).SerializeToString()) for line in lines]
    found = rows(decoded(names_of(text)["topic"], protobuf_registry(text), list(values)))
    table = cells(text, "| column | 1 | 2 |")
    for number, row in enumerate(found, 1):
        assert {name: shown(value) for name, value in row.items()} == {
            line[0]: line[number] for line in table
        }


def test_the_dead_letters_of_the_protobuf_page() -> None:
    text = page("read-protobuf")
    check_broken(text, names_of(text)["topic"], protobuf_registry(text))
    check_kinds(text)


@pytest.mark.parametrize(("field", "column"), cells(page("read-protobuf"), "| field | column |"))
def test_each_protobuf_field_has_the_column_of_the_page(field: str, column: str) -> None:
    imports = "".join(
        f'import "google/protobuf/{name}.proto";\n' for name in ("timestamp", "wrappers")
    )
    proto = (
        f'syntax = "proto3";\n{imports}message M {{ {field} }}\n'
        "enum State { OPEN = 0; }\nmessage Item { string sku = 1; }\n"
    )
    schema = frozen("PROTOBUF", proto)
    (found,) = protobuf_columns(
        FrozenSchema(
            **{name: getattr(schema, name) for name in FrozenSchema.__slots__}
            | {"compiled": compiled_schema(schema)}
        )
    )
    assert typed(found) == column


# ---------------------------------------------------------------- CSV, JSON


def test_the_lines_of_the_csv_page_become_its_rows_and_dead_letters() -> None:
    text = page("read-csv")
    lines = block(text, "text").splitlines()
    found = decoded(names_of(text)["topic"], DictRegistry(), [line.encode() for line in lines])
    results = dict(zip(found.dead.tolist(), map(str, found.reasons), strict=True))
    for at, row in zip(found.kept.tolist(), found.rows.to_pylist(), strict=True):
        instant = row["placed_at"]
        results[at] = str(row).replace(repr(instant), f"<{instant}>")
    assert [results[at] for at in range(len(lines))] == [
        row[1] for row in cells(text, "| line | result |")
    ]


def test_json_in_a_registry_is_the_same_with_an_id_before_it() -> None:
    text = page("nested-columns")
    names = names_of(text)
    exec(block(text, "python registry"), names)
    registry = DictRegistry()
    registry.register(SUBJECT, '{"type": "object"}', kind="JSON")
    value = block(text, "json").replace("\n", "").encode()
    found = decoded(names["registered"], registry, [framed(value), value])
    plain = decoded(names["topic"], registry, [value])
    assert rows(plain) == found.rows.to_pylist(maps_as_pydicts="strict")
    assert [reason.kind for reason in found.reasons] == ["magic"]


# ---------------------------------------------------------------- schemas that are followed


def test_the_versions_of_the_page_give_its_columns() -> None:
    text = page("follow-schemas")
    assert names_of(text)["pipeline"].is_open
    schemas = [frozen("AVRO", line) for line in block(text, "json schemas").splitlines()]
    table = cells(text, "| column | version 1 | versions 1 and 2 |")
    following = Avro(registry="default", schema="follow")
    for number in (1, 2):
        found = {
            c.name: ("" if c.required else "optional ") + type_text(c)
            for c in followed_columns(following, schemas[:number]).columns
        }
        assert found == {line[0]: line[number] for line in table if line[number]}


def test_names_are_changed_as_the_page_shows() -> None:
    for given, column in cells(page("follow-schemas"), "| in the schema | column |"):
        found = named_columns(Column(name, "int") for name in given.split(", then "))
        assert [c.name for c in found] == column.split(", then ")


def test_the_topics_of_the_page_have_its_tables() -> None:
    text = page("many-topics")
    (topics,) = names_of(text)["pipeline"].patterns
    for topic, table in cells(text, "| topic | table |"):
        assert topics.matches(topic) == bool(table)
        assert not table or topics.table_of(topic) == table
    records = pa.table({"id": [1]})
    assert names_of(text, "python job")["transform"](records) is records
