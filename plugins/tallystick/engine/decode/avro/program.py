"""Compiles an Avro schema, and the fields of it that are read, into the instructions of `kernel`.

Nested records are read in one sequence of instructions, without calls. A record that is only passed over, and so may be
recursive, is a subroutine per name: the program of a schema is no larger than its text, times the fields that are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tallystick.engine.decode.avro import kernel
from tallystick.engine.decode.avro.kernel import ProgramArrays
from tallystick.engine.decode.avro.schema import (
    ARRAY,
    ENUM,
    FIXED,
    MAP,
    RECORD,
    UNION,
    AvroType,
)
from tallystick.engine.decode.source import Wanted

ROOT_FIELD = "value"
"""The field of a value whose schema is no record, under which columns find it."""
_SIMPLE = {
    "null": kernel.NULL_VALUE,
    "boolean": kernel.BOOLEAN,
    "int": kernel.INT,
    "long": kernel.LONG,
    "float": kernel.FLOAT,
    "double": kernel.DOUBLE,
    "bytes": kernel.BYTES,
    "string": kernel.BYTES,
}


@dataclass(slots=True, eq=False)
class AvroNode:
    """A place that is read: its slots are those of `scope`; `inner` is the scope of elements or entries.

    `parts`: the fields of a struct by name; the node of elements, or of a map's values, by an empty name.
    """

    number: int
    scope: int
    type: AvroType
    place: str
    inner: int = -1
    key: int = -1
    parts: list[tuple[str, AvroNode]] = field(default_factory=list)


class Program:
    """The instructions for one schema, and the nodes that they fill. `root` has the fields of the value."""

    def __init__(self, schema: AvroType, fields: Wanted) -> None:
        self.nodes: list[AvroNode] = []
        self.scopes = 1
        self._code: list[tuple[int, int, int, int]] = []
        self._jumps: list[int] = []
        self._skips: dict[int, tuple[AvroType, list[int]]] = {}
        self._places: list[str] = []
        branches = schema.branches
        is_struct = schema.kind == RECORD or (schema.kind == UNION and len(branches) > 1)
        self.root = self._node(schema if is_struct else AvroType(RECORD), 0, "")
        if schema.kind == RECORD:
            self._fields(schema, self.root, fields)
        elif is_struct:
            self._union(schema, self.root, fields, "")
        else:
            inner = fields.fields.get(ROOT_FIELD)
            node = self._value(schema, inner, 0, ROOT_FIELD)
            if node is not None:
                self.root.parts.append((ROOT_FIELD, node))
        self._emit(kernel.END, place="")
        self._write_skips()
        self.arrays = self._arrays()

    def place(self, instruction: int) -> str:
        """Return the field that an instruction reads, as a reason names it."""
        return self._places[instruction]

    def _node(self, kind: AvroType, scope: int, place: str) -> AvroNode:
        node = AvroNode(len(self.nodes), scope, kind, place)
        self.nodes.append(node)
        return node

    def _emit(self, code: int, a: int = 0, b: int = 0, node: int = -1, *, place: str) -> int:
        self._code.append((code, a, b, node))
        self._places.append(place)
        return len(self._code) - 1

    def _patch(self, instruction: int, *, a: int) -> None:
        code, _, b, node = self._code[instruction]
        self._code[instruction] = (code, a, b, node)

    def _fields(self, record: AvroType, node: AvroNode, fields: Wanted) -> None:
        """Emit the fields of a record in their order; `node` gets those that are read."""
        self._emit(kernel.PRESENT, node=node.number, place=node.place)
        for name, kind in record.parts:
            place = f"{node.place}.{name}" if node.place else name
            part = self._value(kind, fields.fields.get(name), node.scope, place)
            if part is not None:
                node.parts.append((name, part))

    def _value(
        self, kind: AvroType, fields: Wanted | None, scope: int, place: str
    ) -> AvroNode | None:
        """Emit what reads or passes over one value; return its node if it is read."""
        if kind.kind == UNION:
            return self._one_of(kind, fields, scope, place)
        if fields is None:
            self._skip(kind, place)
            return None
        node = self._node(kind, scope, place)
        self._read(kind, node, fields)
        return node

    def _read(self, kind: AvroType, node: AvroNode, fields: Wanted) -> None:
        """Emit what reads one value into a node."""
        if kind.kind == RECORD:
            self._fields(kind, node, fields)
        elif kind.kind in (ARRAY, MAP):
            self._repeated(kind, node, fields)
        elif kind.kind == FIXED:
            self._emit(kernel.FIXED_BYTES, kind.size, node=node.number, place=node.place)
        elif kind.kind == ENUM:
            self._emit(kernel.ENUM_INDEX, len(kind.symbols), node=node.number, place=node.place)
        else:
            number = -1 if kind.kind == "null" else node.number
            self._emit(_SIMPLE[kind.kind], node=number, place=node.place)

    def _repeated(self, kind: AvroType, node: AvroNode, fields: Wanted) -> None:
        is_map = kind.kind == MAP
        node.inner = self.scopes
        self.scopes += 1
        if is_map:
            node.key = self._node(AvroType("string"), node.inner, node.place).number
        begin = self._emit(
            kernel.MAP_BEGIN if is_map else kernel.ARRAY_BEGIN,
            node=node.number,
            place=node.place,
        )
        inside = fields.entry if is_map else (fields.inside or Wanted())
        element = self._value(kind.parts[0][1], inside, node.inner, f"{node.place}[]")
        assert element is not None
        node.parts.append(("", element))
        self._close(begin, is_map=is_map, node=node.number, place=node.place)

    def _close(self, begin: int, *, is_map: bool, node: int, place: str) -> None:
        mode = kernel.MAP_BEGIN if is_map else kernel.ARRAY_BEGIN
        following = self._emit(kernel.NEXT, begin + 1, mode, node, place=place)
        self._patch(begin, a=following)

    def _one_of(
        self, union: AvroType, fields: Wanted | None, scope: int, place: str
    ) -> AvroNode | None:
        """Emit a union: of one type and null, it is a value that may be null; of several types, a struct of them."""
        branches = union.branches
        if fields is None:
            self._choose(union, lambda _, kind: self._skip(kind, place), place)
            return None
        if not branches:
            self._choose(union, lambda _, kind: self._skip(kind, place), place)
            return self._node(AvroType("null"), scope, place)
        if len(branches) != 1:
            node = self._node(union, scope, place)
            self._union(union, node, fields, place)
            return node
        only = branches[0][1]
        node = self._node(only, scope, place)

        def read(_: str, kind: AvroType) -> None:
            if kind is only:
                self._read(only, node, fields)
            else:
                self._skip(kind, place)

        self._choose(union, read, place)
        return node

    def _union(self, union: AvroType, node: AvroNode, fields: Wanted, place: str) -> None:
        """Emit a union of several types as a struct with a field per type, of which one is not null."""

        def branch(name: str, kind: AvroType) -> None:
            if kind.kind == "null":
                self._skip(kind, place)
                return
            self._emit(kernel.PRESENT, node=node.number, place=place)
            # A column that reads the whole union does not fit; its reason names the types.
            inside = Wanted() if fields.whole else fields.fields.get(name)
            part = self._value(kind, inside, node.scope, f"{place}.{name}" if place else name)
            if part is not None:
                node.parts.append((name, part))

        self._choose(union, branch, place)

    def _choose(self, union: AvroType, emit: Callable[[str, AvroType], None], place: str) -> None:
        """Emit the choice of a union's branch, and each branch."""
        table = len(self._jumps)
        self._jumps.extend([0] * len(union.parts))
        self._emit(kernel.UNION_INDEX, table, len(union.parts), place=place)
        ends = []
        for number, (name, kind) in enumerate(union.parts):
            self._jumps[table + number] = len(self._code)
            emit(name, kind)
            ends.append(self._emit(kernel.JUMP, place=place))
        for end in ends:
            self._patch(end, a=len(self._code))

    def _skip(self, kind: AvroType, place: str) -> None:
        """Emit what passes over one value."""
        if kind.kind == UNION:
            self._one_of(kind, None, 0, place)
        elif kind.kind == RECORD:
            call = self._emit(kernel.CALL, place=place)
            self._skips.setdefault(id(kind), (kind, []))[1].append(call)
        elif kind.kind in (ARRAY, MAP):
            is_map = kind.kind == MAP
            begin = self._emit(kernel.MAP_BEGIN if is_map else kernel.ARRAY_BEGIN, place=place)
            self._skip(kind.parts[0][1], place)
            self._close(begin, is_map=is_map, node=-1, place=place)
        elif kind.kind == FIXED:
            self._emit(kernel.SKIP, kind.size, place=place)
        elif kind.kind == ENUM:
            self._emit(kernel.ENUM_INDEX, len(kind.symbols), place=place)
        else:
            self._emit(_SIMPLE[kind.kind], place=place)

    def _write_skips(self) -> None:
        """Emit the subroutines of the records that are passed over; each can add calls of others."""
        written: dict[int, int] = {}
        while left := [number for number in self._skips if number not in written]:
            for number in left:
                kind, _ = self._skips[number]
                written[number] = len(self._code)
                for name, part in kind.parts:
                    self._skip(part, f"{kind.name}.{name}")
                self._emit(kernel.RETURN, place=kind.name)
        for number, (_, calls) in self._skips.items():
            for call in calls:
                self._patch(call, a=written[number])

    def _arrays(self) -> ProgramArrays:
        columns = [np.array(part, np.int32) for part in zip(*self._code, strict=True)]
        return ProgramArrays(
            code=columns[0],
            a=columns[1],
            b=columns[2],
            node=columns[3],
            jumps=np.array(self._jumps or [0], np.int32),
            scopes=np.array([n.scope for n in self.nodes], np.int32),
            inner=np.array([n.inner for n in self.nodes], np.int32),
            keys=np.array([n.key for n in self.nodes], np.int32),
        )
