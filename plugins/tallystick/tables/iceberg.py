"""Columns and partition rules in Iceberg's form: schemas and partition specs with the ids that the root assigned.

PyIceberg would number the columns of a new schema itself. Only the root assigns column ids (I11), so this module builds
schemas from columns that already have one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tallystick.errors import InvalidPipeline, SchemaChanged, listed
from tallystick.format.columns import TableColumn, successor, with_parts
from tallystick.format.types import (
    ELEMENT,
    KEY,
    LIST,
    MAP,
    STRUCT,
    VALUE,
    decimal_size,
    fixed_bytes,
)
from tallystick.pipeline import partition_rule
from tallystick.tables.state import TableState

_TYPES: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
}


def iceberg_type(kind: str) -> PrimitiveType:
    """Return PyIceberg's type for a primitive Iceberg type."""
    if size := decimal_size(kind):
        return DecimalType(*size)
    if length := fixed_bytes(kind):
        return FixedType(length)
    return _TYPES[kind]


def _column_type(column: TableColumn) -> IcebergType:
    """Return PyIceberg's type of a column at any depth, with the ids of its parts."""
    parts = column.fields
    if column.type == STRUCT:
        return StructType(*map(_nested_field, parts))
    if column.type == LIST:
        (element,) = parts
        return ListType(
            element_id=element.id, element=_column_type(element), element_required=element.required
        )
    if column.type == MAP:
        key, value = parts
        return MapType(
            key_id=key.id,
            key_type=_column_type(key),
            value_id=value.id,
            value_type=_column_type(value),
            value_required=value.required,
        )
    return iceberg_type(column.type)


def _nested_field(column: TableColumn) -> NestedField:
    return NestedField(
        field_id=column.id,
        name=column.name,
        field_type=_column_type(column),
        required=column.required,
    )


def iceberg_schema(columns: Sequence[TableColumn], *, schema_id: int = 0) -> Schema:
    """Return a schema with exactly these columns, ids and order."""
    return Schema(*map(_nested_field, columns), schema_id=schema_id)


def schema_columns(schema: Schema) -> tuple[TableColumn, ...]:
    """Return a schema's columns. Raises ValueError for types that no column has."""
    return tuple(_of_field(f) for f in schema.fields)


def _of_field(field: NestedField) -> TableColumn:
    return _of_type(field.field_id, field.name, field.field_type, required=field.required)


def _of_type(number: int, name: str, kind: IcebergType, *, required: bool) -> TableColumn:
    fields: tuple[TableColumn, ...] = ()
    if isinstance(kind, StructType):
        word, fields = STRUCT, tuple(map(_of_field, kind.fields))
    elif isinstance(kind, ListType):
        element = _of_type(
            kind.element_id, ELEMENT, kind.element_type, required=kind.element_required
        )
        word, fields = LIST, (element,)
    elif isinstance(kind, MapType):
        key = _of_type(kind.key_id, KEY, kind.key_type, required=True)
        value = _of_type(kind.value_id, VALUE, kind.value_type, required=kind.value_required)
        word, fields = MAP, (key, value)
    else:
        word = str(kind).replace(" ", "")
    return TableColumn(id=number, name=name, type=word, required=required, fields=fields)


def evolved_columns(current: Sequence[TableColumn], state: TableState) -> tuple[TableColumn, ...]:
    """Return the table's columns after the changes of the root; equal to `current` if nothing changes.

    A column gets the name and the type that the root has for its id; a column that the root has dropped is left out.
    Added columns are optional regardless of the root, because older files lack them. A required column becomes optional
    if the root has it as optional, and never the other way. Raises SchemaChanged if an id means another column, or if the
    table has a column that the root never had (I11).
    """
    by_id = {c.id: c for c in state.columns}
    for column in current:
        if successor(column, state.columns, state.dropped, state.former_names) is None:
            named = by_id.get(column.id)
            known = "no column" if named is None else f"{named.name} ({named.text})"
            raise _changed(
                f"table {state.name}, column id {column.id}: expected {known} as in the root, found {column.name} "
                f"({column.text})."
            )
    # Names cannot collide: the root has all of the table's columns, and its names are unique (TableState).
    return _evolved(current, state.columns)


def _evolved(
    current: Sequence[TableColumn], root: Sequence[TableColumn]
) -> tuple[TableColumn, ...]:
    """Return the root's columns, or the fields of one struct, in the table's order, and the new ones at the end."""
    by_id = {c.id: c for c in root}
    kept: list[TableColumn] = []
    for column in current:
        named = by_id.pop(column.id, None)
        if named is not None:
            fields = _evolved(column.fields, named.fields)
            required = named.required and column.required
            kept.append(replace(named, required=required, fields=fields))
    return (*kept, *map(_optional, by_id.values()))


def optional_if_missing(
    columns: Sequence[TableColumn], held: Iterable[Collection[int]]
) -> tuple[TableColumn, ...]:
    """Return the columns; a column is optional if some file lacks it. `held` are the column ids of each file.

    Two plans may have different columns of a table that neither has written yet. If a required column is missing in a
    file, every reader of that file fails.
    """
    files = [set(ids) for ids in held]
    return tuple(_held_by_all(c, files) for c in columns)


def _held_by_all(column: TableColumn, files: Sequence[set[int]]) -> TableColumn:
    """Return a column, or a part of one, as optional if a file lacks it: statistics name its parts with values."""
    own = {c.id for c in with_parts([column])}
    holding = [ids for ids in files if ids & own]
    return replace(
        column,
        required=column.required and len(holding) == len(files),
        fields=tuple(_held_by_all(f, holding) for f in column.fields),
    )


def partition_fields(
    columns: Sequence[TableColumn],
    partition_by: Sequence[str],
    *,
    table: str,
    known: Mapping[tuple[int, Transform[Any, Any]], PartitionField] = MappingProxyType({}),
) -> tuple[tuple[int, Transform[Any, Any], str], ...]:
    """Return (source id, transform, partition field name) per rule, with the names that Iceberg's own writers use.

    A field of `known` keeps its name, which differs if its column was renamed. Raises InvalidPipeline if a rule names no
    column, if a rule occurs twice, or if a column of the table has the name of a partition field (Iceberg spec,
    Partitioning: names must be unique).
    """
    by_name = {c.name: c for c in columns}
    taken = {c.name.lower() for c in columns}
    fields: list[tuple[int, Transform[Any, Any], str]] = []
    for text in partition_by:
        rule = partition_rule(text)
        source = by_name.get(rule.column)
        if source is None:
            raise _refused(
                f"table {table}: expected partition_by one of {listed(sorted(by_name))}, found {text!r}."
            )
        transform = parse_transform(rule.transform)
        before = known.get((source.id, transform))
        name = rule.field_name if before is None else before.name
        if rule.transform != "identity" and name.lower() in taken:
            raise _refused(
                f"table {table}: the partition field {name!r} of partition_by {text!r} has the name of a column."
            )
        if any(name == other for _, _, other in fields):
            raise _refused(
                f"table {table}: expected each partition rule once, found {text!r} twice."
            )
        fields.append((source.id, transform, name))
    return tuple(fields)


def partition_spec(
    columns: Sequence[TableColumn],
    partition_by: Sequence[str],
    *,
    table: str,
    known: Sequence[PartitionSpec] = (),
) -> PartitionSpec:
    """Return the spec of these rules: one of `known` if it has the same rules, otherwise a new one with the next id.

    A field of a known spec keeps its id and its name, also if its column was renamed. New fields get the next ids, from
    1000 on (Iceberg spec, Partition Evolution).
    """
    fields = {(f.source_id, f.transform): f for spec in known for f in spec.fields}
    wanted = partition_fields(columns, partition_by, table=table, known=fields)
    for spec in known:
        rules = [(f.source_id, f.transform) for f in spec.fields]
        if rules == [(source, transform) for source, transform, _ in wanted]:
            return spec
    following = max([PARTITION_FIELD_ID_START - 1, *(f.field_id for f in fields.values())]) + 1
    made = []
    for source_id, transform, name in wanted:
        field = fields.get((source_id, transform))
        if field is None:
            field = PartitionField(
                source_id=source_id, field_id=following, transform=transform, name=name
            )
            following += 1
        made.append(field)
    return PartitionSpec(*made, spec_id=max([-1, *(spec.spec_id for spec in known)]) + 1)


def _optional(column: TableColumn) -> TableColumn:
    return replace(column, required=False)


def _changed(message: str) -> SchemaChanged:
    return SchemaChanged(
        message,
        hint="give the changed column a new name, so that it gets an id of its own. Nothing was changed.",
    )


def _refused(message: str) -> InvalidPipeline:
    return InvalidPipeline(
        message, hint="correct partition_by or rename the column in the pipeline's file."
    )
