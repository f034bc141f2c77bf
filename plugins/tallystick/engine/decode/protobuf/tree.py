"""The fields of a message that are read, as a tree of nodes with their Arrow types.

A node is one place, for example the field `os` of `device`. It has slots: one per record, and inside of a list or a map
one per element or entry. All nodes with the same slots are one scope; scope 0 are the records. Nodes are numbered from
the top down: those inside of a node have the numbers up to its `stop`.

The tree is as deep as `Wanted`, also if the message is recursive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tallystick.engine.decode.protobuf.descriptors import EnumType, FieldType, MessageType
from tallystick.engine.decode.protobuf.kinds import (
    BITS,
    CHOICE,
    CLOSED_ENUM,
    ENTRY,
    GROUP,
    LEN,
    LIST,
    MAP,
    MESSAGE,
    SPAN,
    STRUCT,
    TIMESTAMP,
    VARINT,
    WRAPPER,
    kind_of,
)
from tallystick.engine.decode.source import Wanted
from tallystick.format.types import ELEMENT, KEY, VALUE

WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
TIMESTAMP_NAME = "google.protobuf.Timestamp"


@dataclass(slots=True, eq=False, kw_only=True)
class MessageNode:
    """One place. `inner` is the scope of a list's elements or of a map's entries, -1 for any other node.

    `parts`: the fields of a message, the element of a list, or the entry of a map, which is a message of key and value.
    `above`: the number of the message that a field belongs to.
    `choice`: the number of the CHOICE of a field's oneof, or -1. `is_read`: False for a member of a oneof that no column
    reads, but which takes the place of another. `place` is the path from the top, as a dead letter names it.
    """

    number: int
    name: str
    place: str
    scope: int
    wire: int = VARINT
    stored: int = BITS
    form: int = STRUCT
    type: pa.DataType = field(default_factory=pa.null)
    parts: list[MessageNode] = field(default_factory=list)
    stop: int = 0
    inner: int = -1
    field_number: int = 0
    above: int = 0
    choice: int = -1
    is_read: bool = True
    is_nullable: bool = False
    is_required: bool = False
    default: Any = None
    enum: EnumType = None

    @property
    def read_parts(self) -> list[MessageNode]:
        """The parts that become arrays."""
        return [part for part in self.parts if part.is_read]

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow field of the node's array."""
        return pa.field(self.name, self.type, nullable=self.is_nullable)


class MessageTree:
    """The nodes of a message. `lists` has the list or map of each scope but the first."""

    def __init__(self, message: MessageType, fields: Wanted) -> None:
        self.nodes: list[MessageNode] = []
        self.lists: list[MessageNode | None] = [None]
        self.root = self._node("", "", 0)
        self._open_message(self.root, message, _chosen(message, fields))

    def _node(self, name: str, place: str, scope: int) -> MessageNode:
        node = MessageNode(number=len(self.nodes), name=name, place=place, scope=scope)
        self.nodes.append(node)
        node.stop = len(self.nodes)
        return node

    def _open_message(
        self,
        node: MessageNode,
        message: MessageType,
        fields: dict[str, Wanted],
        form: int = STRUCT,
    ) -> None:
        """Add the fields of a message, and the other members of their oneofs."""
        node.stored, node.form = MESSAGE, form
        choices: dict[str, int] = {}
        for one in message.oneofs:
            # The oneof of an `optional` field of proto3 has only this field.
            if len(one.fields) > 1 and any(member.name in fields for member in one.fields):
                choice = self._node(one.name, node.place, node.scope)
                choice.form, choice.is_read = CHOICE, False
                choices[one.name] = choice.number
        for known in message.fields:
            one = known.containing_oneof
            choice_number = choices.get(one.name, -1) if one is not None else -1
            if known.name not in fields and choice_number < 0:
                continue
            part = self._field(node, known, fields.get(known.name))
            part.choice = choice_number
            node.parts.append(part)
        node.stop = len(self.nodes)
        node.type = pa.struct([part.arrow_field for part in node.read_parts])

    def _field(self, above: MessageNode, known: FieldType, read: Wanted | None) -> MessageNode:
        """Return the node of a field; `read` is None for a member of a oneof that is not read."""
        place = above.place
        if above.form == STRUCT:
            place = f"{place}.{known.name}" if place else known.name
        node = self._node(known.name, place, above.scope)
        node.field_number, node.above = known.number, above.number
        if known.is_repeated:
            self._open_repeated(node, known, read or Wanted())
        else:
            self._open_value(node, known, read)
            node.is_required = known.is_required
            if known.has_default_value and known.containing_oneof is None:
                node.default = known.default_value
            node.is_nullable = known.has_presence and not node.is_required and node.default is None
        node.stop = len(self.nodes)
        return node

    def _open_repeated(self, node: MessageNode, known: FieldType, read: Wanted) -> None:
        node.inner = len(self.lists)
        self.lists.append(node)
        kind = known.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entry = self._node(node.name, f"{node.place}[]", node.inner)
            value = read.entry
            fields = {KEY: _whole(), VALUE: value if _reads(value) else _whole()}
            self._open_message(entry, kind, fields, ENTRY)
            key, item = sorted(entry.parts, key=lambda part: part.field_number)
            key.is_nullable = item.is_nullable = False
            if item.enum is not None:
                item.default = item.enum.values[0].number
            entry.parts = [key, item]
            node.form, node.parts, node.wire = MAP, [entry], LEN
            node.type = pa.map_(key.arrow_field, item.arrow_field)
        else:
            element = self._node(ELEMENT, f"{node.place}[]", node.inner)
            inside = read.inside
            self._open_value(element, known, inside if inside and _reads(inside) else _whole())
            element.stop = len(self.nodes)
            node.form, node.parts, node.wire = LIST, [element], element.wire
            node.type = pa.list_(element.arrow_field)

    def _open_value(self, node: MessageNode, known: FieldType, read: Wanted | None) -> None:
        """Set what the value of a field, or an element of it, is."""
        node.wire, node.stored, node.form, node.type = kind_of(known.type)
        node.is_read = read is not None
        if known.enum_type is not None:
            node.enum = known.enum_type
            if known.enum_type.is_closed:
                node.stored = CLOSED_ENUM
        kind = known.message_type
        if kind is None:
            return
        if read is None:
            # Only its presence matters, so its bytes are not read. A group has no length: it is read up to its end.
            node.stored = MESSAGE if node.wire == GROUP else SPAN
        elif kind.full_name in WRAPPERS and "value" in kind.fields_by_name:
            self._open_message(node, kind, {"value": _whole()}, WRAPPER)
            node.parts[0].is_nullable, node.type = False, node.parts[0].type
        elif kind.full_name == TIMESTAMP_NAME and {"seconds", "nanos"} <= set(kind.fields_by_name):
            self._open_message(node, kind, {"seconds": _whole(), "nanos": _whole()}, TIMESTAMP)
            node.type = pa.timestamp("us", tz="UTC")
        else:
            self._open_message(node, kind, _chosen(kind, read))


def _whole() -> Wanted:
    found = Wanted()
    found.whole = True
    return found


def _reads(part: Wanted) -> bool:
    return part.whole or bool(part.fields) or part.inside is not None


def _chosen(message: MessageType, read: Wanted) -> dict[str, Wanted]:
    """Return the fields of a message that are read. If none is, they are all that are neither messages nor repeated.

    A column that reads a message as something else is refused by the type of its fields, so there must be some.
    """
    known = message.fields_by_name
    fields = {name: part for name, part in read.fields.items() if name in known}
    return fields or {f.name: _whole() for f in _plain(message)}


def _plain(message: MessageType) -> Iterator[FieldType]:
    return (f for f in message.fields if f.message_type is None and not f.is_repeated)
