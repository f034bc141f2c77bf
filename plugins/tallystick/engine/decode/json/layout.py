"""The layout of a format's columns in JSON values: which places `locate` finds, as a tree of nodes and as flat arrays.

A node is one place, for example the field `os` of `device`. Each column, and each part of a nested column, is read from
one node. Nodes have slots: one per record, and inside of a list or a map one per element or entry. All nodes with the
same slots are one scope; scope 0 are the records.

If a place is read in two ways, for example a map and one of its fields, it has two nodes, and `locate` reads it twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tallystick.engine.decode.json.leaves import ALL_KINDS, provable_kinds
from tallystick.format.types import LIST, MAP, STRUCT
from tallystick.pipeline import Column
from tallystick.pipeline.paths import Path

Array = npt.NDArray[Any]

# What is found inside of a node's value: nothing, named fields, the elements of a list, entries, or elements by position.
LEAF, FIELDS, ELEMENTS, ENTRIES, POSITIONS = range(5)
_MODES = {STRUCT: FIELDS, LIST: ELEMENTS, MAP: ENTRIES}


@dataclass(slots=True, eq=False)
class Node:
    """One place. `inner` is the scope of a list's elements or of a map's entries, -1 for any other node."""

    number: int
    scope: int
    mode: int = LEAF
    inner: int = -1
    fields: dict[str, list[Node]] = field(default_factory=dict)
    positions: dict[int, list[Node]] = field(default_factory=dict)
    element: list[Node] = field(default_factory=list)
    key: Node | None = None
    value: list[Node] = field(default_factory=list)

    def inside(self, part: str | int) -> list[Node]:
        """Return the nodes of a field or of a position, to which a new one is added."""
        if isinstance(part, int):
            return self.positions.setdefault(part, [])
        return self.fields.setdefault(part, [])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnPlace:
    """A column's node, the nodes on the way to it, each of which must be null or of its mode, and the parts' places."""

    column: Column
    node: Node
    above: tuple[Node, ...]
    parts: tuple[ColumnPlace, ...]


class LayoutArrays(NamedTuple):
    """The nodes as arrays for compiled code. Edges lead from a node to the nodes inside of it, sorted by node.

    `provable`: the kinds of values that the readers of a node's columns may prove, as bits. `others`: the next node of
    the same place, or -1. `inner`: the scope of a node's elements or entries. `target`: the node of elements or of
    entries' values; `key`: that of entries' keys. `rest`: the node of the fields that have none.
    `names` of edge e are `name_starts[e]` to `[e + 1]`; `plain`: True if JSON can write the name as it is; `at` is the
    position of an edge of a POSITIONS node.
    """

    modes: Array
    scopes: Array
    provable: Array
    others: Array
    inner: Array
    target: Array
    key: Array
    rest: Array
    edge_starts: Array
    edge_nodes: Array
    name_starts: Array
    names: Array
    plain: Array
    at: Array


class Layout:
    """The nodes of a format's columns. `rest` is the node of the entries that no column reads, if they are kept."""

    def __init__(self, columns: Sequence[Column], *, keep_rest: bool = False) -> None:
        self.nodes: list[Node] = []
        self.scopes = 1
        self.root = self._node(0, FIELDS)
        self.places = tuple(self._place(c, self.root) for c in columns)
        self.rest: Node | None = None
        if keep_rest:
            self.rest = self._node(0, ENTRIES)
            self._open(self.rest)
        self.arrays = self._arrays()

    def _node(self, scope: int, mode: int = LEAF) -> Node:
        node = Node(len(self.nodes), scope, mode)
        self.nodes.append(node)
        return node

    def _place(self, column: Column, start: Node) -> ColumnPlace:
        """Return the place of a column whose path begins in the object of `start`."""
        node, above, path = start, [], column.path
        for number, part in enumerate(path):
            wanted = _mode_of(column, path, number)
            node = self._alternative(node.inside(part), node.scope, wanted)
            if number + 1 < len(path):
                above.append(node)
        return ColumnPlace(
            column=column, node=node, above=tuple(above), parts=self._parts(column, node)
        )

    def _parts(self, column: Column, node: Node) -> tuple[ColumnPlace, ...]:
        if column.type == STRUCT:
            return tuple(self._place(part, node) for part in column.fields)
        if column.type == LIST:
            (element,) = column.fields
            return (self._inside(element, node.element, node.inner),)
        if column.type == MAP:
            key, value = column.fields
            assert node.key is not None
            keys = ColumnPlace(column=key, node=node.key, above=(), parts=())
            return keys, self._inside(value, node.value, node.inner)
        return ()

    def _inside(self, part: Column, known: list[Node], scope: int) -> ColumnPlace:
        node = self._alternative(known, scope, _MODES.get(part.type, LEAF))
        return ColumnPlace(column=part, node=node, above=(), parts=self._parts(part, node))

    def _alternative(self, known: list[Node], scope: int, mode: int) -> Node:
        """Return the node of a place that finds what `mode` needs; a node that finds nothing yet becomes it."""
        for node in known:
            if mode in (LEAF, node.mode):
                return node
        for node in known:
            if node.mode == LEAF:
                node.mode = mode
                self._open(node)
                return node
        node = self._node(scope, mode)
        self._open(node)
        known.append(node)
        return node

    def _open(self, node: Node) -> None:
        if node.mode in (ELEMENTS, ENTRIES):
            node.inner = self.scopes
            self.scopes += 1
        if node.mode == ENTRIES:
            node.key = self._node(node.inner)
            node.value.append(self._node(node.inner))
        if node.mode == ELEMENTS:
            node.element.append(self._node(node.inner))

    def _arrays(self) -> LayoutArrays:
        count = len(self.nodes)
        others, target, key = (np.full(count, -1, np.int32) for _ in range(3))
        rest = np.full(count, -1, np.int32)
        if self.rest is not None:
            rest[self.root.number] = self.rest.number
        edges: list[tuple[bytes, int, int]] = []
        starts = np.zeros(count + 1, np.int32)
        for node in self.nodes:
            for name, position, known in _edges(node):
                edges.append((name, position, known[0].number))
            starts[node.number + 1] = len(edges)
            for known in _alternatives(node):
                for one, following in pairwise(known):
                    others[one.number] = following.number
            inside = node.element or node.value
            target[node.number] = inside[0].number if inside else -1
            key[node.number] = node.key.number if node.key is not None else -1
        names = b"".join(name for name, _, _ in edges)
        return LayoutArrays(
            modes=np.array([n.mode for n in self.nodes], np.int32),
            scopes=np.array([n.scope for n in self.nodes], np.int32),
            provable=self._provable(),
            others=others,
            inner=np.array([n.inner for n in self.nodes], np.int32),
            target=target,
            key=key,
            rest=rest,
            edge_starts=starts,
            edge_nodes=np.array([number for _, _, number in edges], np.int32),
            name_starts=np.cumsum([0, *(len(name) for name, _, _ in edges)], dtype=np.int64),
            names=np.frombuffer(names or b"\0", np.uint8),
            plain=np.array([_is_plain(name) for name, _, _ in edges], np.bool_),
            at=np.array([position for _, position, _ in edges], np.int32),
        )

    def _provable(self) -> Array:
        found = np.full(len(self.nodes), ALL_KINDS, np.int32)
        for place in _leaves(self.places):
            found[place.node.number] &= provable_kinds(place.column)
        return found


def _leaves(places: Sequence[ColumnPlace]) -> Iterator[ColumnPlace]:
    """Yield the places that are read from a value itself, at any depth, without the keys of maps."""
    for place in places:
        if place.column.type == MAP:
            yield from _leaves(place.parts[1:])
        elif place.parts:
            yield from _leaves(place.parts)
        else:
            yield place


def _mode_of(column: Column, path: Path, number: int) -> int:
    """Return the mode of the node of a path's part: by the next part, or by the column's type for the last one."""
    if number + 1 == len(path):
        return _MODES.get(column.type, LEAF)
    return POSITIONS if isinstance(path[number + 1], int) else FIELDS


def _edges(node: Node) -> Iterator[tuple[bytes, int, list[Node]]]:
    for name, known in node.fields.items():
        yield name.encode(), -1, known
    for position, known in node.positions.items():
        yield b"", position, known


def _is_plain(name: bytes) -> bool:
    """Return True if a JSON text can have the name without an escape (RFC 8259, section 7)."""
    return not any(byte < 32 or byte in b'"\\' for byte in name)


def _alternatives(node: Node) -> Iterator[list[Node]]:
    yield from node.fields.values()
    yield from node.positions.values()
    yield node.element
    yield node.value
