"""Columns in the form of Arrow and Parquet: exact types, and Iceberg field ids in the field metadata.

Spark tasks import this module, so it does not import PyIceberg; tallystick.tables.iceberg does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tallystick.errors import SchemaChanged
from tallystick.format.columns import TableColumn
from tallystick.format.types import (
    ELEMENT,
    KEY,
    LIST,
    MAP,
    STRUCT,
    VALUE,
    Typed,
    TypeField,
    decimal_size,
    fixed_bytes,
    type_text,
)

FIELD_ID = b"PARQUET:field_id"
"""Arrow's name for a Parquet field id; readers find Iceberg columns by it, never by name or position."""

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type with exactly the values of a primitive Iceberg type."""
    if size := decimal_size(kind):
        return pa.decimal128(*size)
    if length := fixed_bytes(kind):
        return pa.binary(length)
    return _TYPES[kind]


def arrow_field(column: Typed) -> pa.Field:
    """Return the Arrow field of a column, with its type at any depth and its id if it has one."""
    number = getattr(column, "id", None)
    return pa.field(
        column.name,
        column_type(column),
        nullable=not column.required,
        metadata=None if number is None else {FIELD_ID: str(number).encode()},
    )


def column_type(column: Typed) -> pa.DataType:
    """Return the Arrow type of a column, also of a nested one."""
    fields = [arrow_field(f) for f in column.fields]
    if column.type == STRUCT:
        return pa.struct(fields)
    if column.type == LIST:
        return pa.list_(fields[0])
    return pa.map_(*fields) if column.type == MAP else arrow_type(column.type)


def arrow_schema(columns: Iterable[Typed]) -> pa.Schema:
    """Return the Arrow schema of columns: types, nullability, and the ids of those that have one."""
    return pa.schema([arrow_field(c) for c in columns])


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return the table of no rows. `pa.Schema.empty_table` raises for a uuid inside of a struct."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def uuid_bytes(values: Any) -> Any:
    """Return UUIDs as their bytes, because Arrow computes nothing of an extension type; others as they are."""
    return values.cast(pa.binary(16)) if values.type == pa.uuid() else values


def type_name(kind: pa.DataType) -> str:
    """Return the Iceberg type of an Arrow type, as a Column declares it; Arrow's own name if there is none."""
    found = _typed("", kind, required=True)
    return str(kind) if found is None else type_text(found)


def _typed(name: str, kind: pa.DataType, *, required: bool) -> TypeField | None:
    """Return the tree of an Arrow type; None if it, or a part of it, is the type of no column."""
    word = _word(kind)
    if word is None:
        return None
    parts = [_typed(n, f.type, required=not f.nullable) for n, f in _parts(kind)]
    known = tuple(part for part in parts if part is not None)
    if len(known) != len(parts):
        return None
    return TypeField(name=name, type=word, required=required, fields=known)


def _word(kind: pa.DataType) -> str | None:
    kinds = pa.types
    if kinds.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kinds.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if kinds.is_struct(kind):
        return STRUCT
    if kinds.is_map(kind):
        return MAP
    return LIST if is_list(kind) else _NAMES.get(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return True for a list type of any layout."""
    kinds = pa.types
    return bool(
        kinds.is_list(kind)
        or kinds.is_large_list(kind)
        or kinds.is_fixed_size_list(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )


def _parts(kind: pa.DataType) -> Iterator[tuple[str, pa.Field]]:
    """Yield the parts of an Arrow type by the names that they have in a tree of types."""
    if pa.types.is_struct(kind):
        yield from ((f.name, f) for f in (kind.field(i) for i in range(kind.num_fields)))
    elif pa.types.is_map(kind):
        yield from ((KEY, kind.key_field), (VALUE, kind.item_field))
    elif is_list(kind):
        yield ELEMENT, kind.value_field


def table_columns(schema: pa.Schema, *, where: str) -> tuple[TableColumn, ...]:
    """Return the columns of an Arrow schema with field ids.

    Raises SchemaChanged naming `where` if a field has no id or has a type that no column has.
    """
    return tuple(_table_column(field, where) for field in schema)


def _table_column(field: pa.Field, where: str, name: str | None = None) -> TableColumn:
    """Return the column of an Arrow field; `name` is its name in the tree of types if the field has another."""
    kind, number = field.type, (field.metadata or {}).get(FIELD_ID)
    word = _word(kind)
    if word is None or number is None:
        field_id = "no field id" if number is None else f"field id {int(number)}"
        raise SchemaChanged(
            f"{where}: column {field.name!r}: expected a column type and a field id, found type {kind} and {field_id}.",
            hint="write the file with tallystick.tables.schema.arrow_schema of the planned columns.",
        )
    return TableColumn(
        id=int(number),
        name=name or field.name,
        type=word,
        required=not field.nullable,
        fields=tuple(_table_column(f, where, n) for n, f in _parts(kind)),
    )


def check_file_columns(
    found: Sequence[TableColumn], planned: Sequence[TableColumn], *, where: str
) -> None:
    """Refuse a file whose columns differ from the planned ones in id, name or type. Raises SchemaChanged naming both.

    Readers use ids alone: if the ids of a file do not match its names, readers return swapped columns without an error.
    """
    _compare(dict(_places(found)), dict(_places(planned)), where)


def _compare(found: dict[str, TableColumn], planned: dict[str, TableColumn], where: str) -> None:
    for place in [*planned, *found]:
        there, wanted = found.get(place), planned.get(place)
        if there is None or wanted is None or (there.id, there.type) != (wanted.id, wanted.type):
            raise SchemaChanged(
                f"{where}, column {place!r}: expected {_described(wanted)}, found {_described(there)}.",
                hint="clear `plan`, so that the job writes the columns of the lake.",
            )


def _places(columns: Sequence[TableColumn], above: str = "") -> Iterator[tuple[str, TableColumn]]:
    """Yield each column and each part of one, by the names from the top to it, joined with dots."""
    for column in columns:
        yield f"{above}{column.name}", column
        yield from _places(column.fields, f"{above}{column.name}.")


def _described(column: TableColumn | None) -> str:
    return "absent" if column is None else f"{column.type} with id {column.id}"
