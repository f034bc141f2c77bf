"""Structs, lists and maps, uuid, time and fixed: readers that share no code with the writer read what was written.

The columns also change between two files: nested fields are added, dropped, renamed and widened, as columns are.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from contract.test_tables_readers import LakeTable, by_duckdb, by_pyiceberg
from tallystick.format.columns import FormerName, TableColumn
from tallystick.store.open import open_store
from tallystick.tables.reading import live_files
from tallystick.tables.schema import arrow_schema


def column(
    number: int, name: str, kind: str, *fields: TableColumn, required: bool = False
) -> TableColumn:
    return TableColumn(id=number, name=name, type=kind, required=required, fields=fields)


SEEN = column(1, "seen", "timestamptz", required=True)
OLD = (
    SEEN,
    column(
        2,
        "device",
        "struct",
        column(3, "os", "string", required=True),
        column(4, "version", "int"),
        column(5, "gone", "string"),
        column(6, "screen", "struct", column(7, "dpi", "float", required=True)),
    ),
    column(
        8,
        "items",
        "list",
        column(
            9,
            "element",
            "struct",
            column(10, "sku", "string", required=True),
            column(11, "price", "decimal(5,2)"),
            column(12, "tags", "list", column(13, "element", "string")),
            required=True,
        ),
    ),
    column(
        14,
        "counts",
        "map",
        column(15, "key", "string", required=True),
        column(16, "value", "int"),
    ),
    column(17, "number", "uuid"),
    column(18, "at", "time"),
    column(19, "digest", "fixed[20]"),
    column(
        20,
        "places",
        "map",
        column(21, "key", "long", required=True),
        column(22, "value", "struct", column(23, "x", "double", required=True), required=True),
    ),
)
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
DAYS = [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
ROWS: list[dict[str, Any]] = [
    {
        "seen": DAYS[0],
        "device": {"os": "linux", "version": 7, "gone": "x", "screen": {"dpi": 0.5}},
        "items": [
            {"sku": "a", "price": Decimal("1.50"), "tags": ["p", None, ""]},
            {"sku": "b", "price": None, "tags": []},
            {"sku": "ü", "price": Decimal("-999.99"), "tags": None},
        ],
        "counts": {"one": 1, "none": None},
        "number": UUID.bytes,
        "at": time(23, 59, 59, 999_999),
        "digest": bytes(range(20)),
        "places": {7: {"x": 0.5}, -1: {"x": 1.5}},
    },
    {"seen": DAYS[1], "device": {"os": "", "version": None, "gone": None, "screen": None}},
    {"seen": DAYS[2], "items": [], "counts": {}, "places": {}},
]
NAMES = [c.name for c in OLD]


@pytest.fixture
def table(on_ministack: str, lake_uri: str) -> LakeTable:
    table = LakeTable(open_store(lake_uri))
    table.state = replace(table.state, columns=OLD)
    return table


def as_pyiceberg_reads(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as PyIceberg 0.12 returns them: a null list or map of structs becomes an empty one.

    Its ArrowProjectionVisitor builds such an array anew and leaves out which of them are null. The page
    docs/how-to/read-with-pyiceberg.md has that; when a test fails here, PyIceberg has learnt better.
    """
    empty = {"items": [], "places": {}}
    return [
        {
            name: empty[name] if value is None and name in empty else value
            for name, value in row.items()
        }
        for row in rows
    ]


def by_polars(uri: str) -> pa.Table:
    options = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    frame = pl.scan_iceberg(uri, storage_options=options, reader_override="native").collect()
    return frame.to_arrow()


def whole(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [{name: row.get(name) for name in names} for row in rows]


def read(found: pa.Table) -> list[dict[str, Any]]:
    """Return rows by time, with maps as dicts and UUIDs as bytes, however a reader returns them."""
    rows = found.to_pylist(maps_as_pydicts="strict")
    return sorted((_plain(row) for row in rows), key=lambda row: row["seen"])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if value == str(UUID):  # DuckDB's Arrow form of a UUID is its text
        return UUID.bytes
    return value.bytes if isinstance(value, uuid.UUID) else value


def test_nested_values_are_read_exactly(table: LakeTable) -> None:
    table.commit(table.files(ROWS))
    expected = whole(ROWS, NAMES)
    assert read(by_pyiceberg(table.uri)) == as_pyiceberg_reads(expected)
    assert read(by_duckdb("from flights", flights=table.uri)) == expected


@pytest.mark.parametrize(
    ("condition", "days"),
    [
        ("device.os = 'linux'", [0]),
        ("device.version > 6", [0]),
        ("device.version is null", [1, 2]),
        ("device.os < 'a'", [1]),
        ("device.screen.dpi = 0.5", [0]),
    ],
)
def test_statistics_of_nested_fields_hide_no_row(
    table: LakeTable, condition: str, days: list[int]
) -> None:
    # A file of its own for each row, so that a wrong bound loses one.
    for row in ROWS:
        table.commit(table.files([row]))
    found = by_duckdb(f"select seen from flights where {condition}", flights=table.uri)
    assert sorted(found.column("seen").to_pylist()) == [DAYS[day] for day in days]


def test_bounds_are_those_of_values_that_do_not_repeat(table: LakeTable) -> None:
    files = table.files(ROWS)
    table.commit(files)
    first = next(f for f in files if f.rows and f.partition == (15706,))
    bounded = {c.id for c in first.columns if c.lower is not None}
    assert bounded == {1, 3, 4, 5, 7, 17, 18, 19}
    nulls = {c.id: (c.values, c.nulls) for c in first.columns}
    assert (nulls[13], nulls[11], nulls[16]) == ((5, 3), (3, 1), (2, 1))
    assert len(list(live_files(table.store, table.state.metadata or ""))) == 3


NEW = (
    SEEN,
    column(
        2,
        "device",
        "struct",
        column(3, "system", "string"),
        column(4, "version", "long"),
        column(
            6,
            "screen",
            "struct",
            column(7, "dpi", "double", required=True),
            column(24, "wide", "boolean"),
        ),
        column(25, "gone", "int"),
    ),
    column(
        8,
        "items",
        "list",
        column(
            9,
            "element",
            "struct",
            column(10, "sku", "string", required=True),
            column(11, "price", "decimal(9,2)"),
            column(12, "tags", "list", column(13, "element", "string")),
            column(
                26,
                "links",
                "map",
                column(27, "key", "string", required=True),
                column(28, "value", "string"),
            ),
            required=True,
        ),
    ),
    column(
        14, "counts", "map", column(15, "key", "string", required=True), column(16, "value", "long")
    ),
    *OLD[4:],
)


def test_nested_fields_that_changed_are_read_as_one(table: LakeTable) -> None:
    table.commit(table.files(ROWS))
    before = table.uri
    table.state = replace(
        table.state,
        columns=NEW,
        dropped=(column(5, "gone", "string"),),
        former_names=(FormerName(id=3, name="os"),),
    )
    new = {
        "seen": DAYS[3],
        "device": {
            "system": None,
            "version": 2**40,
            "screen": {"dpi": 0.1, "wide": True},
            "gone": 9,
        },
        "items": [
            {
                "sku": "c",
                "price": Decimal("1234567.89"),
                "tags": None,
                "links": {"a": "b", "c": None},
            }
        ],
        "counts": {"one": 2**40},
    }
    table.commit(table.files([new]))
    old = whole(ROWS, NAMES)
    for row in old:
        if row["device"] is not None:
            device = row["device"] = dict(row["device"])
            device["system"], device["gone"] = device.pop("os"), None
            if device["screen"] is not None:
                device["screen"] = {**device["screen"], "wide": None}
        if row["items"]:
            row["items"] = [{**item, "links": None} for item in row["items"]]
    expected = [*old, *whole([new], NAMES)]
    assert read(by_pyiceberg(table.uri)) == as_pyiceberg_reads(expected)
    assert read(by_duckdb("from flights", flights=table.uri)) == expected
    assert read(by_pyiceberg(before)) == as_pyiceberg_reads(whole(ROWS, NAMES))
    assert read(by_duckdb("from flights", flights=before)) == whole(ROWS, NAMES)
    found = by_duckdb("select seen from flights where device.screen.wide", flights=table.uri)
    assert found.column("seen").to_pylist() == [DAYS[3]]
    found = by_duckdb("select seen from flights where device.system = 'linux'", flights=table.uri)
    assert found.column("seen").to_pylist() == [DAYS[0]]


def test_polars_reads_nested_columns(table: LakeTable) -> None:
    """Polars has no map and no UUID type: it returns lists of key and value, and 16 bytes."""
    names = ["seen", "device", "items", "at"]
    table.state = replace(table.state, columns=tuple(c for c in OLD if c.name in names))
    table.commit(table.files(whole(ROWS, names)))
    assert read(by_polars(table.uri)) == whole(ROWS, names)


def test_the_columns_of_the_metadata_are_those_of_the_root(table: LakeTable) -> None:
    table.commit(table.files(ROWS))
    found = by_pyiceberg(table.uri).schema
    wanted = arrow_schema(OLD)
    assert [f.name for f in found] == [f.name for f in wanted]
    assert [f.nullable for f in found] == [f.nullable for f in wanted]
