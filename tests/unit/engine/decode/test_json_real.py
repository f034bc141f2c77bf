"""Real nested JSON from outside this project: the models of AWS services, as botocore ships them.

Each shape of a service is one record, three levels deep. The rows are compared with those of DuckDB's reader of JSON and
with Python's json module, value by value.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import botocore
import duckdb
import pyarrow as pa
import pytest

from tallystick.engine.decode.json.rows import JsonDecoder
from tallystick.pipeline import Column, Json

MODELS = Path(botocore.__file__).parent / "data"
MEMBER = "struct<shape: string, locationName: optional string, box: optional boolean, deprecated: optional boolean>"
COLUMNS = [
    Column("name", "string"),
    Column("kind", "string", source="type"),
    Column("required", "list<string>", required=False),
    Column("members", f"map<string, {MEMBER}>", required=False),
    Column("enum", "list<string>", required=False),
    Column("element", MEMBER, required=False, source="member"),
    Column("element_shape", "string", required=False, source="member.shape"),
    Column("first_required", "string", required=False, source="required[0]"),
    Column("maximum", "double", required=False, source="max"),
    Column("error_code", "long", required=False, source="error.httpStatusCode"),
    Column("more", "string"),
]
_MEMBER = "STRUCT(shape VARCHAR, locationName VARCHAR, box BOOLEAN, deprecated BOOLEAN)"
DUCKDB_COLUMNS = (
    "name: 'VARCHAR', type: 'VARCHAR', required: 'VARCHAR[]', enum: 'VARCHAR[]', "
    f"member: '{_MEMBER}', members: 'MAP(VARCHAR, {_MEMBER})'"
)
READ = {"name", "type", "required", "members", "enum", "member", "max", "error"}


def shapes(service: str) -> list[dict[str, Any]]:
    (model,) = sorted(MODELS.glob(f"{service}/*/service-2.json.gz"))[-1:]
    found = json.loads(gzip.decompress(model.read_bytes()))["shapes"]
    return [{"name": name, **shape} for name, shape in found.items()]


def member(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value.get(name) for name in ("shape", "locationName", "box", "deprecated")}


def expected(record: dict[str, Any]) -> dict[str, Any]:
    members, element = record.get("members"), record.get("member")
    return {
        "name": record["name"],
        "kind": record["type"],
        "required": record.get("required"),
        "members": None if members is None else {k: member(v) for k, v in members.items()},
        "enum": record.get("enum"),
        "element": None if element is None else member(element),
        "element_shape": None if element is None else element["shape"],
        "first_required": (record.get("required") or [None])[0],
        "maximum": record.get("max"),
        "error_code": record.get("error", {}).get("httpStatusCode"),
        "more": {name: value for name, value in record.items() if name not in READ},
    }


@pytest.mark.parametrize("service", ["s3", "ec2", "dynamodb", "iam", "sagemaker"])
def test_the_shapes_of_a_service_are_read_as_others_read_them(service: str, tmp_path: Path) -> None:
    records = shapes(service)
    lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
    decoded = JsonDecoder(Json(COLUMNS, other_fields="more")).decode_values(
        pa.array(lines, pa.binary())
    )
    assert not decoded.reasons
    rows = decoded.rows.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        row["more"] = json.loads(row["more"])
    assert rows == [expected(record) for record in records]
    file = tmp_path / "shapes.jsonl"
    file.write_bytes(b"\n".join(lines))
    with duckdb.connect() as connection:
        found = connection.execute(
            "select name, type as kind, required, members, enum, member as element "
            f"from read_json(?, format='nd', columns={{{DUCKDB_COLUMNS}}}, maximum_object_size=16777216)",
            [str(file)],
        ).to_arrow_table()
    others = found.to_pylist(maps_as_pydicts="strict")
    names = found.column_names
    assert [{name: row[name] for name in names} for row in rows] == others
