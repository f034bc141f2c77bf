"""Columns in the form of Arrow and Parquet: exact types, and Iceberg field ids in the field metadata.

Spark tasks import this module, so it does not import PyIceberg; tallystick.tables.iceberg does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tallystick.errors import SchemaChanged
from tallystick.format.columns import TableColumn

FIELD_ID = b"PARQUET:field_id"
"""Arrow's name for a Parquet field id; readers find Iceberg columns by it, never by name or position."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}


def decimal_size(kind: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type string; None for any other type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type with exactly the values of an Iceberg type string."""
    size = decimal_size(kind)
    return pa.decimal128(*size) if size else _TYPES[kind]


def type_name(kind: pa.DataType) -> str:
    """Return the Iceberg type string of an Arrow type, as a Column declares it; Arrow's own name if there is none."""
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind) or str(kind)


def arrow_schema(columns: Sequence[TableColumn]) -> pa.Schema:
    """Return the schema to write a Parquet file of these columns: types, ids and nullability."""
    return pa.schema(
        [
            pa.field(
                c.name,
                arrow_type(c.type),
                nullable=not c.required,
                metadata={FIELD_ID: str(c.id).encode()},
            )
            for c in columns
        ]
    )


def table_columns(schema: pa.Schema, *, where: str) -> tuple[TableColumn, ...]:
    """Return the columns of an Arrow schema with field ids.

    Raises SchemaChanged naming `where` if a field has no id or has a type that no column has.
    """
    return tuple(_table_column(field, where) for field in schema)


def _table_column(field: Any, where: str) -> TableColumn:
    kind, number = field.type, (field.metadata or {}).get(FIELD_ID)
    name = _NAMES.get(kind)
    if pa.types.is_decimal128(kind):
        name = f"decimal({kind.precision},{kind.scale})"
    if name is None or number is None:
        field_id = "no field id" if number is None else f"field id {int(number)}"
        raise SchemaChanged(
            f"{where}: column {field.name!r}: expected a column type and a field id, found type {kind} and {field_id}.",
            hint="write the file with tallystick.tables.schema.arrow_schema of the planned columns.",
        )
    return TableColumn(id=int(number), name=field.name, type=name, required=not field.nullable)


def check_file_columns(
    found: Sequence[TableColumn], planned: Sequence[TableColumn], *, where: str
) -> None:
    """Refuse a file whose columns differ from the planned ones in id, name or type. Raises SchemaChanged naming both.

    Readers use ids alone: if the ids of a file do not match its names, readers return swapped columns without an error.
    """
    planned_by_name = {c.name: (c.id, c.type) for c in planned}
    found_by_name = {c.name: (c.id, c.type) for c in found}
    for name in [*planned_by_name, *found_by_name]:
        if planned_by_name.get(name) != found_by_name.get(name):
            raise SchemaChanged(
                f"{where}, column {name!r}: expected {_described(planned_by_name.get(name))}, found "
                f"{_described(found_by_name.get(name))}.",
                hint="clear `plan`, so that the job writes the columns of the lake.",
            )


def _described(column: tuple[int, str] | None) -> str:
    return "absent" if column is None else f"{column[1]} with id {column[0]}"
