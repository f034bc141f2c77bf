"""The nodes of a message as flat arrays, for compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tallystick.engine.decode.protobuf.kinds import CLOSED_ENUM, FIXED32, FIXED64, LIST, MAP, VARINT
from tallystick.engine.decode.protobuf.tree import MessageNode, MessageTree

Array = npt.NDArray[Any]
# Field numbers below are looked up in a table per message, larger ones by bisection.
DENSE_NUMBERS = 256


class MessageProgram(NamedTuple):
    """The nodes as arrays. The last one is that of a message without known fields, for groups that are skipped.

    `packed`: whether a node's values may be packed. `inner`: the scope of a node's elements or entries, or -1; `target`:
    the node of an element or entry, which is the node itself if it is not repeated. `choice`: the node of its oneof.
    `is_entry_value`: whether a node is the value of a map. A field number `n` of a message is the node
    `dense[dense_starts + n]` if `n < dense_sizes`; the others are in `sparse_numbers` and `sparse_nodes` from
    `sparse_starts` of the message up to that of the next one. `known` has the numbers of closed enums, in ascending
    order, from `known_starts` up to `known_stops` of a node.
    """

    wires: Array
    stored: Array
    scopes: Array
    packed: Array
    inner: Array
    target: Array
    choice: Array
    stops: Array
    is_entry_value: Array
    dense_starts: Array
    dense_sizes: Array
    dense: Array
    sparse_starts: Array
    sparse_numbers: Array
    sparse_nodes: Array
    known_starts: Array
    known_stops: Array
    known: Array


def program_of(tree: MessageTree) -> MessageProgram:
    """Return the arrays of a tree."""
    nodes = tree.nodes
    count = len(nodes) + 1
    starts, sizes = np.zeros(count, np.int32), np.zeros(count, np.int32)
    sparse_starts = np.zeros(count + 1, np.int32)
    known_starts, known_stops = np.zeros(count, np.int32), np.zeros(count, np.int32)
    dense: list[int] = []
    sparse: list[tuple[int, int]] = []
    known: list[int] = []
    for node in nodes:
        fields = {} if node.form in (LIST, MAP) else {p.field_number: p.number for p in node.parts}
        low = [number for number in fields if number < DENSE_NUMBERS]
        starts[node.number], sizes[node.number] = len(dense), max(low, default=-1) + 1
        dense += [fields.get(number, -1) for number in range(int(sizes[node.number]))]
        sparse += sorted((f, n) for f, n in fields.items() if f >= DENSE_NUMBERS)
        sparse_starts[node.number + 1] = len(sparse)
        if node.stored == CLOSED_ENUM:
            known_starts[node.number] = len(known)
            known += sorted(node.enum.values_by_number)
            known_stops[node.number] = len(known)
    sparse_starts[count] = len(sparse)
    entry_values = {n.parts[0].parts[1].number for n in nodes if n.form == MAP}
    return MessageProgram(
        wires=_of_nodes(tree, [n.wire for n in nodes]),
        stored=_of_nodes(tree, [n.stored for n in nodes]),
        scopes=_of_nodes(tree, [n.scope for n in nodes], other=0),
        packed=_of_nodes(tree, [int(_is_packed(n)) for n in nodes], other=0),
        inner=_of_nodes(tree, [n.inner for n in nodes]),
        target=_of_nodes(tree, [n.parts[0].number if n.inner >= 0 else n.number for n in nodes]),
        choice=_of_nodes(tree, [n.choice for n in nodes]),
        stops=_of_nodes(tree, [n.stop for n in nodes]),
        is_entry_value=_of_nodes(tree, [int(n.number in entry_values) for n in nodes], other=0),
        dense_starts=starts,
        dense_sizes=sizes,
        dense=np.array(dense or [-1], np.int32),
        sparse_starts=sparse_starts,
        sparse_numbers=np.array([f for f, _ in sparse] or [-1], np.int32),
        sparse_nodes=np.array([n for _, n in sparse] or [-1], np.int32),
        known_starts=known_starts,
        known_stops=known_stops,
        known=np.array(known or [0], np.int64),
    )


def _of_nodes(tree: MessageTree, values: list[int], *, other: int = -1) -> Array:
    """Return the values of the nodes, with `other` for the message without known fields."""
    assert len(values) == len(tree.nodes)
    return np.array([*values, other], np.int32)


def _is_packed(node: MessageNode) -> bool:
    return node.form == LIST and node.wire in (VARINT, FIXED64, FIXED32)
