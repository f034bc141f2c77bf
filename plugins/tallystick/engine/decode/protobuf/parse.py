"""A compiled kernel that finds the values of a message's nodes in a batch of records in one pass.

It follows the encoding (protobuf.dev/programming-guides/encoding): the last value of a field is its value, a message that
occurs twice is merged, the last member of a oneof replaces another, repeated numbers are packed or not, and a field with
another wire type than the declared one is unknown. Fields that no column reads are skipped without a look inside.
Positions are absolute in the batch's byte buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.protobuf.kinds import (
    BITS,
    BOOL,
    CLOSED_ENUM,
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    INT32,
    LEN,
    MESSAGE,
    SINT32,
    SINT64,
    SPAN,
    UINT32,
    VARINT,
)
from tallystick.engine.decode.protobuf.program import Array, MessageProgram
from tallystick.engine.decode.protobuf.slots import MessageSlots, buffers, empty, grown
from tallystick.runtime.compiled import (
    FLAGS_OUT,
    INT32S,
    INT32S_OUT,
    INT64S,
    INT64S_OUT,
    NUMBER,
    UINT8S,
    UINT8S_OUT,
    LoopGroup,
    TupleOf,
    part,
)
from tallystick.runtime.intrinsics import zeros

Int = Any  # A Python int outside of compiled code, int64 inside.
DEPTH_MAX = 100
_LEVELS = DEPTH_MAX + 1
_SIZE_MAX = (1 << 31) - 1
_TAG_MAX = (1 << 32) - 1
# The faults of a record; FULL is none of its own: a scope had no room for it.
NO_FAULT, TRUNCATED, LONG_NUMBER, BAD_TAG, TOO_DEEP, TOO_MANY, TOO_LARGE, FULL = range(8)

loops = LoopGroup(__name__)


@part
def _varint(text: Array, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (value, position after it): -1 if it is truncated, -2 if it has more than 10 bytes."""
    value, shift = np.int64(0), np.int64(0)
    for _ in range(10):
        if at >= end:
            return value, np.int64(-1)
        byte = np.int64(text[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return value, np.int64(-2)


@part
def _bits(text: Array, at: Int, size: Int) -> Int:
    """Return the little-endian number of 4 or 8 bytes."""
    value = (
        np.int64(text[at])
        | np.int64(text[at + 1]) << 8
        | np.int64(text[at + 2]) << 16
        | np.int64(text[at + 3]) << 24
    )
    if size == 8:
        value |= (
            np.int64(text[at + 4]) << 32
            | np.int64(text[at + 5]) << 40
            | np.int64(text[at + 6]) << 48
            | np.int64(text[at + 7]) << 56
        )
    return value


@part
def _stored(how: Int, value: Int) -> Int:
    """Return what is stored of a number."""
    if how == BITS:
        return value
    if how in (INT32, CLOSED_ENUM):
        return (value << 32) >> 32
    if how == UINT32:
        return value & _TAG_MAX
    if how == BOOL:
        return np.int64(value != 0)
    if how == SINT32:
        value &= _TAG_MAX
        return (value >> 1) ^ -(value & 1)
    if how == SINT64:
        return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1)
    return value


@part
def _found(numbers: Array, begin: Int, stop: Int, number: Int) -> Int:
    """Return the position of `number` in the ascending `numbers[begin:stop]`, or -1."""
    low, high = np.int64(begin), np.int64(stop)
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and numbers[low] == number else np.int64(-1)


@part
def _clear(node: Int, slot: Int, program: MessageProgram, slots: MessageSlots) -> None:
    """Remove what was found of a node in its last slot, with all that is inside of it."""
    first, last = slots.first, slots.last
    for scope in range(slots.used.size):
        first[scope], last[scope] = 0, 0
    first[program.scopes[node]], last[program.scopes[node]] = slot, slot + 1
    for inside in range(node, program.stops[node]):
        scope, inner = program.scopes[inside], program.inner[inside]
        count = np.int64(0)
        for place in range(slots.base[inside] + first[scope], slots.base[inside] + last[scope]):
            if inner >= 0:
                count += slots.values[place]
            slots.present[place] = 0
            slots.values[place] = 0
        if inner >= 0:
            # They are the last slots of their scope: each list is complete before the next one begins.
            last[inner] = slots.used[inner]
            first[inner] = last[inner] - count
            slots.used[inner] = first[inner]


@loops.loop(
    UINT8S,
    INT32S,  # offsets
    NUMBER,
    NUMBER,
    TupleOf(MessageProgram, (*(INT32S,) * 17, INT64S)),
    TupleOf(
        MessageSlots,
        (
            *(UINT8S_OUT, INT64S_OUT, INT64S, INT64S_OUT, INT64S, FLAGS_OUT),
            *(UINT8S_OUT, INT64S_OUT, INT32S_OUT, INT64S_OUT, INT64S_OUT),  # faults
            *(INT64S_OUT, INT64S_OUT),
        ),
    ),
    results=1,
)
def parse_values(  # noqa: C901, PLR0912, PLR0915 - one state machine: a call per record costs a reference count per array
    text: Array,
    offsets: Array,
    first_row: Int,
    bytes_max: Int,
    program: MessageProgram,
    slots: MessageSlots,
) -> Int:
    """Fill `slots` from `first_row` on. Return the row for which there was no room, or the number of rows.

    A record with a fault has no values.
    """
    ends, groups = zeros(_LEVELS), zeros(_LEVELS)
    holders, outer_slots = zeros(_LEVELS), zeros(_LEVELS)
    # Taken out of their tuples once: each use of one in the loop would cost a reference count.
    wires = program.wires
    stored = program.stored
    packed = program.packed
    inner = program.inner
    target = program.target
    choice = program.choice
    is_entry_value = program.is_entry_value
    dense_starts = program.dense_starts
    dense_sizes = program.dense_sizes
    dense = program.dense
    sparse_starts = program.sparse_starts
    sparse_numbers = program.sparse_numbers
    sparse_nodes = program.sparse_nodes
    known_starts = program.known_starts
    known_stops = program.known_stops
    known = program.known
    present = slots.present
    values = slots.values
    base = slots.base
    used = slots.used
    capacity = slots.capacity
    unknown = np.int64(wires.size - 1)
    for row in range(first_row, offsets.size - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        begin, found, left = at, np.int64(0), np.int64(0)
        fault = NO_FAULT
        depth, elements, dropped = np.int64(0), np.int64(0), np.int64(-1)
        holder, slot, group = np.int64(0), np.int64(row), np.int64(0)
        if end - at > bytes_max:
            fault, found = TOO_LARGE, end - at
            end = at
        while True:
            closes = False
            node, number, wire, value = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
            begin = at
            if at >= end:
                if depth == 0:
                    break
                if group != 0:
                    fault = TRUNCATED
                    break
                closes = True
            else:
                tag = np.int64(text[at])
                at += 1
                if tag >= 128:
                    tag, at = _varint(text, begin, end)
                    if at == -1:
                        fault = TRUNCATED
                        break
                    if at < 0 or at - begin > 5 or tag > _TAG_MAX:
                        fault, found = BAD_TAG, np.int64(-1)
                        break
                number, wire = tag >> 3, tag & 7
                if number == 0 or wire > FIXED32 or (wire == END_GROUP and group != number):
                    fault, found = BAD_TAG, tag
                    break
                closes = wire == END_GROUP
            if closes:
                if dropped == depth:
                    # The entry of a map whose value is unknown is no entry.
                    _clear(holder, slot, program, slots)
                    used[inner[holder - 1]] -= 1
                    values[base[holder - 1] + outer_slots[depth - 1]] -= 1
                    dropped = np.int64(-1)
                depth -= 1
                end, group = ends[depth], groups[depth]
                holder, slot = holders[depth], outer_slots[depth]
                continue
            # ---- the node
            if number < dense_sizes[holder]:
                node = np.int64(dense[dense_starts[holder] + number])
            elif sparse_starts[holder + 1] > sparse_starts[holder]:
                edge = _found(
                    sparse_numbers, sparse_starts[holder], sparse_starts[holder + 1], number
                )
                node = np.int64(sparse_nodes[edge]) if edge >= 0 else np.int64(-1)
            # ---- the value, by its wire type alone
            if wire in (VARINT, LEN):
                position = at
                value = np.int64(text[at]) if at < end else np.int64(128)
                at += 1
                if value >= 128:
                    value, at = _varint(text, position, end)
                    if at < 0:
                        fault = TRUNCATED if at == -1 else LONG_NUMBER
                        break
                    if wire == LEN and at - position > 5:
                        fault = LONG_NUMBER
                        break
                if wire == LEN:
                    if value > _SIZE_MAX or value < 0 or value > end - at:
                        fault, found, left = TRUNCATED, value, end - at
                        break
                    value |= at << 32
                    at += value & _SIZE_MAX
            elif wire != GROUP:
                size = 8 if wire == FIXED64 else 4
                if size > end - at:
                    fault, found, left = TRUNCATED, np.int64(size), end - at
                    break
                value = _bits(text, at, size)
                at += size
            if node >= 0 and wire != wires[node]:
                if wire == LEN and packed[node]:
                    inside, scope, width = np.int64(target[node]), inner[node], wires[node]
                    how = stored[inside]
                    stop = at
                    at = value >> 32
                    place = base[inside] + used[scope]
                    room = capacity[scope] - used[scope]
                    count = np.int64(0)
                    while at < stop:
                        position = at
                        if width == VARINT:
                            value = np.int64(text[at])
                            at += 1
                            if value >= 128:
                                value, at = _varint(text, position, stop)
                                if at < 0:
                                    fault = TRUNCATED if at == -1 else LONG_NUMBER
                                    break
                        else:
                            size = 8 if width == FIXED64 else 4
                            if size > stop - at:
                                fault, found, left = TRUNCATED, np.int64(size), end - at
                                break
                            value = _bits(text, at, size)
                            at += size
                        value = _stored(how, value)
                        if how == CLOSED_ENUM and (
                            _found(known, known_starts[inside], known_stops[inside], value) < 0
                        ):
                            continue
                        if count >= room:
                            slots.full[scope] = True
                            fault = FULL
                            break
                        present[place + count] = 1
                        values[place + count] = value
                        count += 1
                        if count + elements > ELEMENTS_MAX:
                            fault = TOO_MANY
                            break
                    elements += count
                    used[scope] += count
                    values[base[node] + slot] += count
                    if fault != NO_FAULT:
                        begin = position
                        break
                    continue
                node = np.int64(-1)
            if node < 0:
                if wire == GROUP:
                    if depth >= DEPTH_MAX:
                        fault = TOO_DEEP
                        break
                    ends[depth], groups[depth] = end, group
                    holders[depth], outer_slots[depth] = holder, slot
                    depth += 1
                    holder, group = unknown, number
                continue
            inside = np.int64(target[node])
            how = stored[inside]
            if how < SPAN:
                value = _stored(how, value)
                if how == CLOSED_ENUM and (
                    _found(known, known_starts[inside], known_stops[inside], value) < 0
                ):
                    if is_entry_value[inside]:
                        dropped = depth
                    continue
            # ---- its slot
            within = slot
            if inner[node] >= 0:
                scope = inner[node]
                if elements >= ELEMENTS_MAX:
                    fault = TOO_MANY
                    break
                if used[scope] >= capacity[scope]:
                    slots.full[scope] = True
                    fault = FULL
                    break
                within = used[scope]
                used[scope] = within + 1
                elements += 1
                values[base[node] + slot] += 1
            elif choice[node] >= 0:
                place = base[choice[node]] + slot
                other = values[place]
                if other != node:
                    if other != 0:
                        _clear(other, slot, program, slots)
                    values[place] = node
            place = base[inside] + within
            present[place] = 1
            if how != MESSAGE:
                values[place] = value
                continue
            if depth >= DEPTH_MAX:
                fault = TOO_DEEP
                break
            ends[depth], groups[depth] = end, group
            holders[depth], outer_slots[depth] = holder, slot
            depth += 1
            holder, slot = inside, within
            group = np.int64(0)
            if wire == GROUP:
                group = number
            else:
                end = at
                at = value >> 32
        if fault != NO_FAULT:
            _clear(0, row, program, slots)
            if fault == FULL:
                return row
            slots.faults[row] = fault
            slots.fault_at[row] = begin
            slots.fault_nodes[row] = node if node >= 0 else holder
            slots.fault_found[row], slots.fault_left[row] = found, left
    return offsets.size - 1


def parse(
    program: MessageProgram, values: pa.BinaryArray, *, bytes_max: int
) -> tuple[Array, Array, MessageSlots]:
    """Return the bytes of a batch, the positions where its records begin, and what was found in them.

    Raises ManySlotsError if the records of the batch together have too many elements.
    """
    text, offsets = buffers(values)
    rows = len(values)
    scopes = int(program.inner.max()) + 1
    slots = empty(program, np.full(max(scopes, 1), max(rows, 16), np.int64), rows)
    slots.used[0] = rows
    row = 0
    while True:
        row = parse_values(text, offsets, row, bytes_max, program, slots)
        if row >= rows:
            return text, offsets, slots
        slots = grown(program, slots, row, rows)
