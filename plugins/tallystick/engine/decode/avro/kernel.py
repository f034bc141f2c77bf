"""A compiled kernel that runs a program over a batch of Avro records: values into slots, and a verdict per record.

Nothing is allocated by a length in a record: it is compared with the bytes that remain. Positions are absolute in the
batch's byte buffer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.json.scan import Array, Int
from tallystick.runtime.compiled import (
    FLAGS_OUT,
    INT32S,
    INT32S_OUT,
    INT64S,
    INT64S_OUT,
    NUMBER,
    UINT8S,
    UINT8S_OUT,
    ArrayOf,
    LoopGroup,
    TupleOf,
    part,
)
from tallystick.runtime.intrinsics import copy_bytes as copy
from tallystick.runtime.intrinsics import zeros

loops = LoopGroup(__name__)

# Instructions. SKIP passes over bytes of a known number.
END, NULL_VALUE, BOOLEAN, INT, LONG, SKIP, BYTES, FIXED_BYTES, ENUM_INDEX, FLOAT, DOUBLE = range(11)
PRESENT, UNION_INDEX, JUMP, ARRAY_BEGIN, MAP_BEGIN, NEXT, CALL, RETURN = range(11, 19)
# Verdicts. FULL is none: a scope has no room for the record's slots.
OK, TRUNCATED, VARINT, NEGATIVE, BRANCH, SYMBOL, BOOL = range(7)
DEPTH, SIZE, TRAILING, BLOCK, EMPTY, FULL = range(7, 13)
DEPTH_MAX = 64
_LEVELS = DEPTH_MAX + 1
# Elements that have no bytes cost time, and a record needs no bytes to have many of them.
EMPTY_MAX = 10_000
# 10**38, the first number that is no decimal of 38 digits, in halves of 64 bits.
_LIMIT_HIGH, _LIMIT_LOW = np.uint64(0x4B3B4CA85A86C47A), np.uint64(0x098A224000000000)


class ProgramArrays(NamedTuple):
    """Instructions as arrays: code, two arguments, and the node that gets the value, or -1 if it is not read.

    `inner`: per node, the scope of a list's elements or a map's entries; `keys`: the node of a map's keys. `jumps`: the
    instructions of the branches of unions.
    """

    code: Array
    a: Array
    b: Array
    node: Array
    jumps: Array
    scopes: Array
    inner: Array
    keys: Array


class SlotArrays(NamedTuple):
    """What was read: if a slot of a node has a value, and the value; a node's slots begin at `base`.

    A value is a whole number, the bits of a float or double, or the begin of bytes (upper half) with their size.
    `length`: of a list or map, the number of its slots in the inner scope. `used`: slots per scope; `before`: `used`
    before a record.
    """

    present: Array
    values: Array
    length: Array
    base: Array
    used: Array
    capacity: Array
    full: Array
    before: Array


class VerdictArrays(NamedTuple):
    """Per record: the verdict, the position where it was reached, and the instruction. Others than OK are skipped."""

    code: Array
    at: Array
    instruction: Array


@part
def _varint(text: Array, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (position after a zigzag number of at most 64 bits, or minus its verdict; the number)."""
    if at >= end:
        return np.int64(-TRUNCATED), np.int64(0)
    byte = np.uint64(text[at])
    at += 1
    found = byte & np.uint64(127)
    shift = np.uint64(7)
    while byte > np.uint64(127):
        if at >= end:
            return np.int64(-TRUNCATED), np.int64(0)
        byte = np.uint64(text[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return np.int64(-VARINT), np.int64(0)
        found |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
    half = np.int64(found >> np.uint64(1))
    return np.int64(at), -half - 1 if found & np.uint64(1) else half


@part
def _forget(row: Int, before: Array, program: ProgramArrays, slots: SlotArrays) -> None:
    """Remove what was read of a record that is dead, or for which there was no room."""
    for node in range(program.scopes.size):
        scope = program.scopes[node]
        begin, end = (
            (np.int64(row), np.int64(row) + 1) if scope == 0 else (before[scope], slots.used[scope])
        )
        for slot in range(begin, end):
            place = slots.base[node] + slot
            slots.present[place] = 0
            if program.inner[node] >= 0:
                slots.length[place] = 0
    for scope in range(1, slots.used.size):
        slots.used[scope] = before[scope]


@loops.loop(
    UINT8S,
    INT32S,  # offsets
    NUMBER,
    NUMBER,
    TupleOf(ProgramArrays, (INT32S,) * 8),
    TupleOf(
        SlotArrays,
        (UINT8S_OUT, INT64S_OUT, INT32S_OUT, INT64S, INT64S_OUT, INT64S, FLAGS_OUT, INT64S_OUT),
    ),
    TupleOf(VerdictArrays, (UINT8S_OUT, INT32S_OUT, INT32S_OUT)),
    results=1,
)
def read_records(  # noqa: C901, PLR0912, PLR0915 - one state machine: a call per record costs a reference count per array
    text: Array,
    offsets: Array,
    first_row: Int,
    prefix: Int,
    program: ProgramArrays,
    slots: SlotArrays,
    verdicts: VerdictArrays,
) -> Int:
    """Run the program from `first_row` on. Return the row for which there was no room, or the number of rows.

    `prefix`: the bytes of each record before its Avro content.
    """
    code, arg_a, arg_b, nodes = program.code, program.a, program.b, program.node
    jumps, inner, keys = program.jumps, program.inner, program.keys
    present, values, length, base = slots.present, slots.values, slots.length, slots.base
    used, capacity, full = slots.used, slots.capacity, slots.full
    verdict_code, verdict_at, verdict_pc = verdicts.code, verdicts.at, verdicts.instruction
    before = slots.before
    returns, left = zeros(_LEVELS), zeros(_LEVELS)
    outer, block_end = zeros(_LEVELS), zeros(_LEVELS)
    begun = zeros(_LEVELS)
    for row in range(first_row, offsets.size - 1):
        if verdict_code[row] != OK:
            continue
        at, end = np.int64(offsets[row]) + prefix, np.int64(offsets[row + 1])
        for scope in range(1, before.size):
            before[scope] = used[scope]
        slot = np.int64(row)
        depth, budget, pc, empty = 0, ELEMENTS_MAX, np.int64(0), 0
        verdict = np.int64(OK)
        while True:
            op, node = code[pc], nodes[pc]
            if op in (INT, LONG):
                after, number = _varint(text, at, end)
                if after < 0:
                    verdict = -after
                    break
                at = after
                if op == INT and not -0x80000000 <= number <= 0x7FFFFFFF:
                    verdict = np.int64(VARINT)
                    break
                if node >= 0:
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = number
                pc += 1
            elif op == BYTES:
                after, number = _varint(text, at, end)
                if after < 0:
                    verdict = -after
                    break
                if number < 0:
                    verdict = np.int64(NEGATIVE)
                    break
                if number > end - after:
                    verdict = np.int64(TRUNCATED)
                    break
                if node >= 0:
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = (after << 32) | number
                at = after + number
                pc += 1
            elif op == UNION_INDEX:
                after, number = _varint(text, at, end)
                if after < 0:
                    verdict = -after
                    break
                if not 0 <= number < arg_b[pc]:
                    verdict = np.int64(BRANCH)
                    break
                at = after
                pc = np.int64(jumps[arg_a[pc] + number])
            elif op == JUMP:
                pc = np.int64(arg_a[pc])
            elif op == ENUM_INDEX:
                after, number = _varint(text, at, end)
                if after < 0:
                    verdict = -after
                    break
                if not 0 <= number < arg_a[pc]:
                    verdict = np.int64(SYMBOL)
                    break
                at = after
                if node >= 0:
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = number
                pc += 1
            elif op in (DOUBLE, FLOAT):
                size = 8 if op == DOUBLE else 4
                if end - at < size:
                    verdict = np.int64(TRUNCATED)
                    break
                if node >= 0:
                    bits = np.uint64(0)
                    for i in range(size):
                        bits |= np.uint64(text[at + i]) << np.uint64(8 * i)
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = np.int64(bits)
                at += size
                pc += 1
            elif op == BOOLEAN:
                if at >= end:
                    verdict = np.int64(TRUNCATED)
                    break
                if text[at] > 1:
                    verdict = np.int64(BOOL)
                    break
                if node >= 0:
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = text[at]
                at += 1
                pc += 1
            elif op in (FIXED_BYTES, SKIP):
                if end - at < arg_a[pc]:
                    verdict = np.int64(TRUNCATED)
                    break
                if node >= 0:
                    place = base[node] + slot
                    present[place] = 1
                    values[place] = (at << 32) | np.int64(arg_a[pc])
                at += arg_a[pc]
                pc += 1
            elif op == PRESENT:
                present[base[node] + slot] = 1
                pc += 1
            elif op in (ARRAY_BEGIN, MAP_BEGIN):
                if depth == DEPTH_MAX:
                    verdict = np.int64(DEPTH)
                    break
                if node >= 0:
                    present[base[node] + slot] = 1
                depth += 1
                left[depth], outer[depth], block_end[depth], begun[depth] = 0, slot, -1, -1
                pc = np.int64(arg_a[pc])
            elif op == NEXT:
                if begun[depth] == at:
                    empty += 1
                    if empty > EMPTY_MAX:
                        verdict = np.int64(EMPTY)
                        break
                if left[depth] == 0:
                    if block_end[depth] >= 0 and at != block_end[depth]:
                        verdict = np.int64(BLOCK)
                        break
                    block_end[depth] = -1
                    after, number = _varint(text, at, end)
                    if after < 0:
                        verdict = -after
                        break
                    at = after
                    if number == 0:
                        slot = outer[depth]
                        depth -= 1
                        pc += 1
                        continue
                    if number < 0:
                        # A block with its size in bytes. It is not passed over by its size: whether the bytes are those
                        # of a record must not depend on the columns that are read.
                        after, size = _varint(text, at, end)
                        if after < 0:
                            verdict = -after
                            break
                        if size < 0 or number < -ELEMENTS_MAX:
                            verdict = np.int64(NEGATIVE if size < 0 else SIZE)
                            break
                        if size > end - after:
                            verdict = np.int64(TRUNCATED)
                            break
                        at = after
                        block_end[depth] = after + size
                        number = -number
                    if number > budget:
                        verdict = np.int64(SIZE)
                        break
                    budget -= number
                    left[depth] = number
                left[depth] -= 1
                if node >= 0:
                    scope = inner[node]
                    slot = used[scope]
                    if slot >= capacity[scope]:
                        full[scope] = True
                        verdict = np.int64(FULL)
                        break
                    used[scope] = slot + 1
                    length[base[node] + outer[depth]] += 1
                begun[depth] = at
                if arg_b[pc] == MAP_BEGIN:
                    after, number = _varint(text, at, end)
                    if after < 0:
                        verdict = -after
                        break
                    if number < 0:
                        verdict = np.int64(NEGATIVE)
                        break
                    if number > end - after:
                        verdict = np.int64(TRUNCATED)
                        break
                    if node >= 0:
                        place = base[keys[node]] + slot
                        present[place] = 1
                        values[place] = (after << 32) | number
                    at = after + number
                pc = np.int64(arg_a[pc])
            elif op == NULL_VALUE:
                pc += 1
            elif op == CALL:
                if depth == DEPTH_MAX:
                    verdict = np.int64(DEPTH)
                    break
                depth += 1
                returns[depth] = pc + 1
                pc = np.int64(arg_a[pc])
            elif op == RETURN:
                pc = returns[depth]
                depth -= 1
            else:
                if at != end:
                    verdict = np.int64(TRAILING)
                break
        if verdict != OK:
            _forget(row, before, program, slots)
            if verdict == FULL:
                return row
            verdict_code[row] = verdict
            verdict_at[row] = at - offsets[row]
            verdict_pc[row] = pc
    return offsets.size - 1


@loops.loop(UINT8S, INT64S, INT32S, UINT8S_OUT)
def copy_bytes(text: Array, spans: Array, offsets: Array, out: Array) -> None:
    """Copy the bytes of a column to `out`; `offsets` are their Arrow offsets."""
    for row in range(spans.size):
        to, begin = np.int64(offsets[row]), spans[row] >> 32
        copy(out, to, text, begin, np.int64(offsets[row + 1]) - to)


@part
def _has_39_digits(low: Int, high: Int) -> bool:
    """Return True if a number of 128 bits has more than 38 digits."""
    if high >> np.uint64(63):
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == 0 else 0)
    return bool(high > _LIMIT_HIGH or (high == _LIMIT_HIGH and low >= _LIMIT_LOW))


@loops.loop(UINT8S, INT64S, UINT8S, ArrayOf("<i8", 2), FLAGS_OUT)
def read_decimals(text: Array, spans: Array, present: Array, out: Array, bad: Array) -> None:
    """Read big-endian two's complement numbers as Arrow's 128 bits, in little-endian halves; mark those of 39 digits."""
    for row in range(spans.size):
        if not present[row]:
            continue
        begin, size = spans[row] >> 32, spans[row] & 0xFFFFFFFF
        negative = size > 0 and text[begin] > 127
        fill = np.uint64(255 if negative else 0)
        # Leading bytes that only repeat the sign are allowed.
        while size > 16 and np.uint64(text[begin]) == fill:
            begin += 1
            size -= 1
        if size > 16 or (size == 16 and (text[begin] > 127) != negative):
            bad[row] = 1
            continue
        for half in range(2):
            bits = np.uint64(0)
            for i in range(8):
                number = half * 8 + i
                byte = np.uint64(text[begin + size - 1 - number]) if number < size else fill
                bits |= byte << np.uint64(8 * i)
            out[row, half] = np.int64(bits)
        if _has_39_digits(np.uint64(out[row, 0]), np.uint64(out[row, 1])):
            bad[row] = 1
