"""The columns that an Avro schema has, for a topic that follows its schemas."""

from __future__ import annotations

from dataclasses import replace

from tallystick.engine.decode.avro.program import ROOT_FIELD
from tallystick.engine.decode.avro.schema import (
    ARRAY,
    ENUM,
    FIXED,
    MAP,
    RECORD,
    UNION,
    AvroType,
    avro_schema,
)
from tallystick.engine.decode.named import ColumnCount, named_columns
from tallystick.format.schemas import FrozenSchema
from tallystick.format.types import ELEMENT, KEY, LIST, STRUCT, VALUE
from tallystick.format.types import MAP as MAP_TYPE
from tallystick.pipeline import Column
from tallystick.pipeline.paths import escaped

_PRIMITIVES = {"boolean", "int", "long", "float", "double", "string"}
_LOGICAL = {"date": "date", "time-millis": "time", "time-micros": "time", "uuid": "uuid"}


def avro_columns(schema: FrozenSchema) -> tuple[Column, ...]:
    """Return the columns of an Avro schema.

    Raises InvalidPipeline if the schema is not valid, or if it has too many columns (`COLUMNS_MAX`).
    Fields without values (null, a record without fields) are left out, as is a record inside of itself: a table has a
    finite schema. A value that is no record is one column.
    """
    root = avro_schema(schema.text, [reference.text for reference in schema.references])
    count = ColumnCount()
    if root.kind == RECORD:
        return _fields(root, frozenset(), count)
    if root.kind == UNION and len(root.branches) > 1:
        return _branches(root, frozenset(), count)
    found = _column(ROOT_FIELD, root, frozenset(), count)
    return () if found is None else (found,)


def _fields(record: AvroType, above: frozenset[str], count: ColumnCount) -> tuple[Column, ...]:
    inside = above | {record.name}
    found = [_column(name, kind, inside, count) for name, kind in record.parts]
    return named_columns(column for column in found if column is not None)


def _branches(union: AvroType, above: frozenset[str], count: ColumnCount) -> tuple[Column, ...]:
    found = [_branch(name, kind, above, count) for name, kind in union.branches]
    return named_columns(column for column in found if column is not None)


def _branch(name: str, kind: AvroType, above: frozenset[str], count: ColumnCount) -> Column | None:
    """Return the column of a branch of a union, which has the full name of its type if short ones are the same."""
    found = _column(name.replace(".", "_"), kind, above, count, required=False)
    return replace(found, source=escaped(name)) if found is not None and "." in name else found


def _column(
    name: str,
    kind: AvroType,
    above: frozenset[str],
    count: ColumnCount,
    *,
    required: bool = True,
) -> Column | None:
    """Return the column of a field, an element or a value; None if it has no values or contains itself."""
    count.add()
    if kind.kind == UNION:
        required = required and len(kind.branches) == len(kind.parts)
        if len(kind.branches) > 1:
            return _with_parts(name, STRUCT, _branches(kind, above, count), required=required)
        if not kind.branches:
            return None
        kind = kind.branches[0][1]
    if kind.kind == RECORD:
        parts = () if kind.name in above else _fields(kind, above, count)
        return _with_parts(name, STRUCT, parts, required=required)
    if kind.kind == ARRAY:
        element = _column(ELEMENT, kind.parts[0][1], above, count)
        parts = () if element is None else (element,)
        return _with_parts(name, LIST, parts, required=required)
    if kind.kind == MAP:
        value = _column(VALUE, kind.parts[0][1], above, count)
        parts = () if value is None else (Column(KEY, "string"), value)
        return _with_parts(name, MAP_TYPE, parts, required=required)
    text = _primitive(kind)
    return None if text is None else Column(name, text, required)


def _with_parts(
    name: str, kind: str, parts: tuple[Column, ...], *, required: bool
) -> Column | None:
    return Column(name, kind, required, fields=parts) if parts else None


def _primitive(kind: AvroType) -> str | None:
    if kind.logical == "decimal":
        return f"decimal({kind.precision},{kind.scale})"
    if kind.logical.startswith("local-timestamp"):
        return "timestamp"
    if kind.logical.startswith("timestamp"):
        return "timestamptz"
    if kind.logical:
        return _LOGICAL[kind.logical]
    if kind.kind in _PRIMITIVES:
        return kind.kind
    return {"bytes": "binary", ENUM: "string", FIXED: f"fixed[{kind.size}]"}.get(kind.kind)
