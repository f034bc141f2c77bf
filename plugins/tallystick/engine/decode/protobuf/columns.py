"""The columns that a Protobuf message has, for a topic that follows its schemas."""

from __future__ import annotations

import base64

from tallystick.engine.decode.named import ColumnCount, named_columns
from tallystick.engine.decode.protobuf.descriptors import (
    FieldType,
    MessageType,
    message_at,
    message_type,
)
from tallystick.engine.decode.protobuf.tree import TIMESTAMP_NAME, WRAPPERS
from tallystick.format.schemas import FrozenSchema
from tallystick.format.types import ELEMENT, KEY, LIST, MAP, STRUCT, VALUE
from tallystick.pipeline import Column

# By the number in FieldDescriptorProto.Type. An unsigned number of 64 bits has no other type that holds it.
_PRIMITIVES = {
    **{1: "double", 2: "float", 3: "long", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)"},
    **{7: "long", 8: "boolean", 9: "string", 12: "binary", 13: "long", 14: "string"},
    **{15: "int", 16: "long", 17: "int", 18: "long"},
}


def protobuf_columns(schema: FrozenSchema) -> tuple[Column, ...]:
    """Return the columns of the first message of a schema; none if protoc does not compile it.

    Raises InvalidPipeline if it has too many columns (`COLUMNS_MAX`).
    Fields without values (a message without fields) are left out, as is a message inside of itself: a table has a finite
    schema.
    """
    if not schema.compiled:
        return ()
    descriptors = base64.b64decode(schema.compiled)
    name = message_at(descriptors, (0,))
    if name is None:
        return ()
    return _fields(message_type(descriptors, name), frozenset(), ColumnCount())


def _fields(message: MessageType, above: frozenset[str], count: ColumnCount) -> tuple[Column, ...]:
    inside = above | {message.full_name}
    found = [_column(known, inside, count) for known in message.fields]
    return named_columns(column for column in found if column is not None)


def _column(known: FieldType, above: frozenset[str], count: ColumnCount) -> Column | None:
    if not known.is_repeated:
        has_default = known.has_default_value and known.containing_oneof is None
        required = known.is_required or has_default or not known.has_presence
        return _value(known.name, known, above, count, required=required)
    kind = known.message_type
    if kind is not None and kind.GetOptions().map_entry:
        parts = kind.fields_by_name
        key = _value(KEY, parts["key"], above, count, required=True)
        value = _value(VALUE, parts["value"], above, count, required=True)
        found = (key, value)
        return _with_parts(known.name, MAP, found) if None not in found else None
    element = _value(ELEMENT, known, above, count, required=True)
    return None if element is None else _with_parts(known.name, LIST, (element,))


def _with_parts(name: str, kind: str, parts: tuple[Column | None, ...]) -> Column:
    return Column(name, kind, fields=[part for part in parts if part is not None])


def _value(
    name: str, known: FieldType, above: frozenset[str], count: ColumnCount, *, required: bool
) -> Column | None:
    """Return the column of one value of a field; None if it has no values or contains itself."""
    count.add()
    kind = known.message_type
    if kind is None:
        return Column(name, _PRIMITIVES[known.type], required)
    if kind.full_name == TIMESTAMP_NAME:
        return Column(name, "timestamptz", required)
    if kind.full_name in WRAPPERS:
        return _value(name, kind.fields_by_name["value"], above, count, required=required)
    parts = () if kind.full_name in above else _fields(kind, above, count)
    return Column(name, STRUCT, required, fields=parts) if parts else None
