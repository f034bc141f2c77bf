"""The slots that `parse` fills: what was found of a message's nodes in a batch of records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.halves import check_slots
from tallystick.engine.decode.protobuf.program import Array, MessageProgram

# A slot of `present` and one of `values`.
_SLOT_BYTES = 9


class MessageSlots(NamedTuple):
    """What was found, per node and slot: the slots of a node begin at `base`. All are 0 where there is no value.

    `present`: 1 if the field occurs. `values`: an integer, the bits of a float, the place of bytes as
    `begin << 32 | size`, the number of elements, or the node of the member that a oneof has. `used` and `capacity` are
    slots per scope; `full` marks the scopes without room. Of a record's fault there are the kind, the position where its
    field begins, its node, what was found, and how many bytes were left.
    """

    present: Array
    values: Array
    base: Array
    used: Array
    capacity: Array
    full: Array
    faults: Array
    fault_at: Array
    fault_nodes: Array
    fault_found: Array
    fault_left: Array
    first: Array
    last: Array


def buffers(values: pa.BinaryArray) -> tuple[Array, Array]:
    """Return the bytes of values, and the positions where each begins and the last one ends."""
    _, offsets, content = values.buffers()
    text = np.frombuffer(content if content is not None and content.size else b"\0", np.uint8)
    positions = np.frombuffer(
        offsets if offsets is not None and offsets.size else bytes(4), np.int32
    )
    return text, positions[values.offset : values.offset + len(values) + 1]


def empty(program: MessageProgram, capacity: Array, rows: int) -> MessageSlots:
    """Return slots without values, with room for `capacity` of each scope."""
    sizes = capacity[program.scopes[:-1]]
    base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return MessageSlots(
        present=np.zeros(int(base[-1]), np.uint8),
        values=np.zeros(int(base[-1]), np.int64),
        base=base,
        used=np.zeros(len(capacity), np.int64),
        capacity=capacity,
        full=np.zeros(len(capacity), np.bool_),
        faults=np.zeros(rows, np.uint8),
        fault_at=np.zeros(rows, np.int64),
        fault_nodes=np.zeros(rows, np.int32),
        fault_found=np.zeros(rows, np.int64),
        fault_left=np.zeros(rows, np.int64),
        first=np.zeros(len(capacity), np.int64),
        last=np.zeros(len(capacity), np.int64),
    )


def grown(program: MessageProgram, slots: MessageSlots, row: int, rows: int) -> MessageSlots:
    """Return the same with more room in each scope that had none: as the records so far need, at least twice as much.

    Raises ManySlotsError if that is too much for a batch of several records.
    """
    expected = slots.used * (rows + rows // 8) // max(row, 1)
    most = np.clip(expected, slots.capacity * 2, slots.capacity * 4)
    capacity = np.where(slots.full, most, slots.capacity)
    check_slots(int(capacity[program.scopes[:-1]].sum()) * _SLOT_BYTES, rows)
    larger = empty(program, capacity, 0)
    larger.used[:] = slots.used
    for node, scope in enumerate(program.scopes[:-1]):
        old, new, count = int(slots.base[node]), int(larger.base[node]), int(slots.used[scope])
        larger.present[new : new + count] = slots.present[old : old + count]
        larger.values[new : new + count] = slots.values[old : old + count]
    return larger._replace(
        faults=slots.faults,
        fault_at=slots.fault_at,
        fault_nodes=slots.fault_nodes,
        fault_found=slots.fault_found,
        fault_left=slots.fault_left,
    )
