"""A compiled kernel that finds the values of a layout's nodes in a batch of JSON values in one pass; `read` reads them.

The kernel finds only what it can prove. If a record has anything else, or is only unusual (an escaped key, a huge
number), it is marked `needs_exact` and goes to `exact`, whose rules alone decide. Positions are absolute in the batch's
byte buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.halves import ELEMENTS_MAX, check_slots
from tallystick.engine.decode.json.layout import (
    ELEMENTS,
    ENTRIES,
    FIELDS,
    LEAF,
    POSITIONS,
    Layout,
    LayoutArrays,
)
from tallystick.engine.decode.json.leaves import FoundField
from tallystick.engine.decode.json.scan import (
    ARRAY,
    DEPTH_MAX,
    ESCAPED,
    LEVELS,
    MISSING,
    OBJECT,
    PLAIN,
    Array,
    Int,
    blank,
    nested,
    scalar,
    string,
)
from tallystick.engine.decode.json.shape import (
    CLOSE,
    END,
    MISSES_MAX,
    NESTED,
    OPEN,
    PAUSE_ROWS,
    SCALAR,
    STEPS_MAX,
    add_step,
    has_shape,
)
from tallystick.runtime.compiled import (
    FLAGS,
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
from tallystick.runtime.intrinsics import address_of, byte_at, word_at, zeros

PROVEN, UNPROVEN, FULL = range(3)
SLOT_BYTES = 13
# The kinds of so many slots, of one byte each, fill a page of memory.
PAGE_SLOTS = 4_096
loops = LoopGroup(__name__)
# What the state machine does next: read a value, end one, begin an element or entry, or begin the first one.
_VALUE, _AFTER, _ITEM, _OPENED = range(4)


class FoundArrays(NamedTuple):
    """What was found: kind, begin and size of each node's value per slot, a node's slots from `base` on.

    `length`: of a list or map, the number of its slots in the inner scope, which follow those of the list before it.
    `used`: slots per scope; `full`: if a scope had no room for a record's slots; `before`: `used` before a record.
    """

    kinds: Array
    begins: Array
    sizes: Array
    length: Array
    base: Array
    used: Array
    capacity: Array
    full: Array
    before: Array


class Found:
    """The values of a batch, by node. A node's arrays have one element per slot of its scope."""

    def __init__(self, layout: Layout, text: Array, arrays: FoundArrays) -> None:
        self.text = text
        self._layout = layout
        self.arrays = arrays

    def slots(self, scope: int) -> int:
        """Return how many slots a scope has."""
        return int(self.arrays.used[scope])

    def of(self, node: int, what: str) -> Array:
        """Return `kinds`, `begins`, `sizes` or `length` of a node."""
        begin = int(self.arrays.base[node])
        values: Array = getattr(self.arrays, what)
        return values[begin : begin + self.slots(self._layout.nodes[node].scope)]

    def field(self, node: int, needs_exact: Array) -> FoundField:
        """Return the values of a node for a reader, which marks the slots that it cannot prove in `needs_exact`."""
        return FoundField(
            text=self.text,
            kinds=self.of(node, "kinds"),
            begins=self.of(node, "begins"),
            sizes=self.of(node, "sizes"),
            needs_exact=needs_exact,
        )


def locate(
    layout: Layout,
    values: pa.BinaryArray,
    needs_exact: Array,
    *,
    bytes_max: int,
    prefix: int = 0,
) -> Found:
    """Find the values of all nodes in a batch of records; mark the records that are not proven in `needs_exact`.

    The slots of scope 0 are the records that are not marked, in their order. `prefix`: the bytes of each value before its
    JSON text; a text longer than `bytes_max` is not proven. Raises ManySlotsError if the records of the batch have too
    many elements together.
    """
    text, offsets = _buffers(values)
    rows = len(values)
    capacity = np.full(layout.scopes, _room(rows), np.int64)
    found = _empty(layout, capacity)
    row = 0
    while True:
        row, _ = find_values(
            text, offsets, row, prefix, bytes_max, layout.arrays, found, needs_exact
        )
        if row >= rows:
            return Found(layout, text, found)
        found = _grown(layout, found, rows)


def _room(rows: int) -> int:
    """Return for how many slots per node a batch of records has room at first: of a large batch, for whole pages.

    The values of all nodes of a record are then at the same place of their pages. A processor compares only that part of
    the addresses to find out if a load, of text, has to wait for a store.
    """
    return -(-rows // PAGE_SLOTS) * PAGE_SLOTS if rows >= PAGE_SLOTS else max(rows, 16)


def _empty(layout: Layout, capacity: Array) -> FoundArrays:
    sizes = capacity[layout.arrays.scopes]
    base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(base[-1])
    has_inner = bool((layout.arrays.inner >= 0).any())
    inner_total = total if has_inner else 0
    return FoundArrays(
        kinds=np.zeros(total, np.uint8),
        begins=np.empty(total, np.int32),
        sizes=np.empty(total, np.int32),
        length=np.zeros(inner_total, np.int32),
        base=base,
        used=np.zeros(layout.scopes, np.int64),
        capacity=capacity,
        full=np.zeros(layout.scopes, np.bool_),
        before=np.zeros(layout.scopes, np.int64),
    )


def _grown(layout: Layout, found: FoundArrays, rows: int) -> FoundArrays:
    """Return the same with room for four times as many slots in each scope that had no room."""
    capacity = np.where(found.full, found.capacity * 4, found.capacity)
    check_slots(int(capacity[layout.arrays.scopes].sum()) * SLOT_BYTES, rows)
    larger = _empty(layout, capacity)
    larger.used[:] = found.used
    for node in layout.nodes:
        old, new = int(found.base[node.number]), int(larger.base[node.number])
        count = int(found.used[node.scope])
        for before, after in zip(found[:4], larger[:4], strict=True):
            after[new : new + count] = before[old : old + count]
    return larger


def _buffers(values: pa.BinaryArray) -> tuple[Array, Array]:
    _, offsets, content = values.buffers()
    text = (
        np.frombuffer(content, np.uint8)
        if content is not None and content.size
        else np.zeros(1, np.uint8)
    )
    if offsets is None or not offsets.size:
        return text, np.zeros(1, np.int32)
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return text, starts


@part
def _is_named(text: Int, first: Int, end: Int, names: Int, start: Int, size: Int) -> bool:
    """Return True if the name that begins at text[first] is the one of `size` bytes at names[start], without escapes."""
    if first + size >= end or byte_at(text, first + size) != 34:
        return False
    done = np.int64(0)
    while done + 8 <= size:
        if word_at(text, first + done) != word_at(names, start + done):
            return False
        done += 8
    for i in range(done, size):  # noqa: SIM110 - numba compiles no generator
        if byte_at(text, first + i) != byte_at(names, start + i):
            return False
    return True


@part
def _edge(
    text: Int,
    first: Int,
    last: Int,
    names: Int,
    name_starts: Array,
    begin: Int,
    stop: Int,
    guess: Int,
) -> Int:
    """Return the edge, of those from `begin` to `stop`, of the field text[first:last], trying `guess` first, or -1."""
    for step in range(stop - begin):
        edge = guess + step
        if edge >= stop:
            edge -= stop - begin
        start = name_starts[edge]
        if name_starts[edge + 1] - start != last - first:
            continue
        same = True
        for i in range(last - first):
            if byte_at(text, first + i) != byte_at(names, start + i):
                same = False
                break
        if same:
            return edge
    return -1


@part
def _position(at: Array, begin: Int, stop: Int, position: Int) -> Int:
    """Return the edge, of those from `begin` to `stop`, of the element at a position, or -1."""
    for edge in range(begin, stop):
        if at[edge] == position:
            return edge
    return -1


@part
def _forget(record: Int, before: Array, layout: LayoutArrays, found: FoundArrays) -> None:
    """Remove what was found of a record that is not proven, or for which there was no room."""
    for node in range(layout.modes.size):
        scope = layout.scopes[node]
        begin, end = (record, record + 1) if scope == 0 else (before[scope], found.used[scope])
        for slot in range(begin, end):
            place = found.base[node] + slot
            found.kinds[place] = MISSING
            if layout.inner[node] >= 0:
                found.length[place] = 0
    for scope in range(1, found.used.size):
        found.used[scope] = before[scope]


@loops.loop(
    UINT8S,  # content
    INT32S,  # offsets
    NUMBER,
    NUMBER,
    NUMBER,
    TupleOf(
        LayoutArrays,
        # The names and whether they are plain come before the positions.
        (*(INT32S,) * 10, INT64S, UINT8S, FLAGS, INT32S),
    ),
    TupleOf(
        FoundArrays,
        (
            UINT8S_OUT,
            INT32S_OUT,
            INT32S_OUT,
            INT32S_OUT,
            INT64S,
            INT64S_OUT,
            INT64S,
            FLAGS_OUT,
            INT64S_OUT,
        ),
    ),
    UINT8S_OUT,  # needs_exact
    results=2,
)
def find_values(  # noqa: C901, PLR0912, PLR0915 - one state machine: a call per record costs a reference count per array
    content: Array,
    offsets: Array,
    first_row: Int,
    prefix: Int,
    bytes_max: Int,
    layout: LayoutArrays,
    found: FoundArrays,
    needs_exact: Array,
) -> tuple[Int, Int]:
    """Fill `found` from `first_row` on; return the row for which there was no room, or the number of rows, and the hits.

    Hits are records that were read by the shape of an earlier one. Rows marked `needs_exact` are skipped, and rows that
    are not proven are marked.
    """
    nodes, slots = zeros(LEVELS), zeros(LEVELS)
    starts, counts = zeros(LEVELS), zeros(LEVELS)
    # The shape of an earlier record. `recorded`: the steps of this record, -1 if it gives no shape.
    step_whats, step_nodes = zeros(STEPS_MAX), zeros(STEPS_MAX)
    step_froms, step_lengths = zeros(STEPS_MAX), zeros(STEPS_MAX)
    steps: Int = np.int64(0)
    recorded: Int = np.int64(0)
    hits: Int = np.int64(0)
    balance: Int = np.int64(0)
    mark: Int = np.int64(0)
    missed: Any = False
    next_shape: Int = np.int64(first_row)
    # Taken out of their tuples once: each use of one in the loop would cost a reference count.
    text = address_of(content)
    modes = layout.modes
    provable = layout.provable
    others = layout.others
    inner = layout.inner
    target = layout.target
    key = layout.key
    rest = layout.rest
    edge_starts = layout.edge_starts
    edge_nodes = layout.edge_nodes
    name_starts = layout.name_starts
    names = address_of(layout.names)
    plain = layout.plain
    positions = layout.at
    kinds = found.kinds
    begins = found.begins
    sizes = found.sizes
    length = found.length
    base = found.base
    used = found.used
    capacity = found.capacity
    full = found.full
    before = found.before
    # A record that is not proven leaves its slot to the next one.
    record = used[0]
    for row in range(first_row, offsets.size - 1):
        if needs_exact[row]:
            continue
        at, end = np.int64(offsets[row]) + prefix, np.int64(offsets[row + 1])
        if end - at > bytes_max:
            needs_exact[row] = 1
            continue
        for scope in range(1, before.size):
            before[scope] = used[scope]
        if steps > 0:
            if has_shape(
                text,
                content.size,
                at,
                end,
                record,
                steps,
                step_whats,
                step_nodes,
                step_froms,
                step_lengths,
                provable,
                base,
                kinds,
                begins,
                sizes,
            ):
                hits += 1
                record += 1
                balance = max(balance - 1, -MISSES_MAX)
                missed = False
                continue
            _forget(record, before, layout, found)
            balance += 1
            if balance > MISSES_MAX:
                steps, balance = np.int64(0), np.int64(0)
                next_shape = row + PAUSE_ROWS
        # One record of another shape is no reason for another shape; two in a row are.
        recorded = np.int64(-1)
        if row >= next_shape and (steps == 0 or missed):
            steps, recorded = np.int64(0), np.int64(0)
        missed = steps > 0
        mark = at
        outcome = UNPROVEN  # it remains so if the loop ends before the object does
        depth, elements = 0, 0
        at = blank(text, at, end)
        node, slot, begin = np.int64(0), record, np.int64(at)
        state = _VALUE
        is_object = at < end and byte_at(text, at) == 123
        while is_object:
            if state == _VALUE:
                begin = at
                byte = byte_at(text, at)
                place = np.int64(0)
                if node >= 0:
                    place = base[node] + slot
                    if kinds[place] != MISSING:
                        break
                if byte in (123, 91):
                    mode = modes[node] if node >= 0 else LEAF
                    opens = (
                        mode in (FIELDS, ENTRIES) if byte == 123 else mode in (ELEMENTS, POSITIONS)
                    )
                    if node >= 0:
                        kind = np.int64(OBJECT if byte == 123 else ARRAY)
                        if not provable[node] >> kind & 1:
                            break
                        kinds[place] = kind
                        begins[place] = begin
                    if recorded >= 0:
                        # The elements of lists and maps differ in number: no shape has them.
                        if mode != (FIELDS if opens else LEAF):
                            recorded = np.int64(-1)
                        else:
                            recorded = add_step(
                                recorded,
                                OPEN if opens else NESTED + depth,
                                node,
                                mark,
                                begin - mark,
                                step_whats,
                                step_nodes,
                                step_froms,
                                step_lengths,
                            )
                            mark = begin
                    if opens:
                        depth += 1
                        if depth > DEPTH_MAX:
                            break
                        nodes[depth], slots[depth], starts[depth] = node, slot, begin
                        counts[depth] = edge_starts[node] if mode == FIELDS else 0
                        at += 1
                        state = _OPENED
                    else:
                        at = nested(text, at, end, depth)
                        if at < 0:
                            break
                        if node >= 0:
                            sizes[place] = at - begin
                        mark = at
                        state = _AFTER
                else:
                    at, kind = scalar(text, at, end)
                    if at < 0 or (node >= 0 and not provable[node] >> kind & 1):
                        break
                    if node >= 0:
                        quoted = 1 if kind in (PLAIN, ESCAPED) else 0
                        kinds[place] = kind
                        begins[place] = begin + quoted
                        sizes[place] = at - begin - 2 * quoted
                    if recorded >= 0:
                        recorded = add_step(
                            recorded,
                            SCALAR,
                            node,
                            mark,
                            begin - mark,
                            step_whats,
                            step_nodes,
                            step_froms,
                            step_lengths,
                        )
                        mark = at
                    state = _AFTER
            elif state == _AFTER:
                if node >= 0 and others[node] >= 0:
                    recorded = np.int64(-1)
                    node = others[node]
                    at = begin
                    state = _VALUE
                    continue
                at = blank(text, at, end)
                if depth == 0:
                    outcome = PROVEN if at == end else UNPROVEN
                    break
                if at >= end:
                    break
                if byte_at(text, at) == 44:
                    at = blank(text, at + 1, end)
                    state = _ITEM
                    continue
                node, slot, begin = nodes[depth], slots[depth], starts[depth]
                mode = modes[node]
                if byte_at(text, at) != (125 if mode in (FIELDS, ENTRIES) else 93):
                    break
                at += 1
                sizes[base[node] + slot] = at - begin
                depth -= 1
                if recorded >= 0:
                    recorded = add_step(
                        recorded,
                        CLOSE,
                        node,
                        mark,
                        at - mark,
                        step_whats,
                        step_nodes,
                        step_froms,
                        step_lengths,
                    )
                    mark = at
            elif state == _OPENED:
                at = blank(text, at, end)
                if at >= end:
                    break
                mode = modes[node]
                if byte_at(text, at) == (125 if mode in (FIELDS, ENTRIES) else 93):
                    at += 1
                    sizes[base[node] + slot] = at - begin
                    depth -= 1
                    if recorded >= 0:
                        recorded = add_step(
                            recorded,
                            CLOSE,
                            node,
                            mark,
                            at - mark,
                            step_whats,
                            step_nodes,
                            step_froms,
                            step_lengths,
                        )
                        mark = at
                    state = _AFTER
                else:
                    state = _ITEM
            else:
                outer, slot = nodes[depth], slots[depth]
                mode = modes[outer]
                if mode in (FIELDS, ENTRIES):
                    if at >= end or byte_at(text, at) != 34:
                        break
                    first = at + 1
                    edge = np.int64(-1)
                    if mode == FIELDS:
                        # Fields mostly come in the same order: the grammar of most names need not be checked.
                        guess = counts[depth]
                        if guess < edge_starts[outer + 1] and plain[guess]:
                            start = name_starts[guess]
                            size = name_starts[guess + 1] - start
                            if _is_named(text, first, end, names, start, size):
                                edge = guess
                    if edge >= 0:
                        last = first + size
                        at = last + 1
                    else:
                        at, escaped = string(text, first, end)
                        if at < 0 or escaped:
                            break
                        last = at - 1
                    at = blank(text, at, end)
                    if at >= end or byte_at(text, at) != 58:
                        break
                    at = blank(text, at + 1, end)
                    holder = outer
                    node = np.int64(-1)
                    if mode == FIELDS:
                        if edge < 0:
                            edge = _edge(
                                text,
                                first,
                                last,
                                names,
                                name_starts,
                                edge_starts[outer],
                                edge_starts[outer + 1],
                                counts[depth],
                            )
                        holder = np.int64(-1)
                        if edge >= 0:
                            node = np.int64(edge_nodes[edge])
                            counts[depth] = (
                                edge + 1
                                if edge + 1 < edge_starts[outer + 1]
                                else edge_starts[outer]
                            )
                        else:
                            holder = np.int64(rest[outer])
                    if holder >= 0:
                        recorded = np.int64(-1)
                        elements += 1
                        if elements > ELEMENTS_MAX:
                            break
                        within = slot
                        scope = inner[holder]
                        slot = used[scope]
                        if slot >= capacity[scope]:
                            full[scope] = True
                            outcome = FULL
                            break
                        used[scope] = slot + 1
                        length[base[holder] + within] += 1
                        place = base[key[holder]] + slot
                        kinds[place] = PLAIN
                        begins[place] = first
                        sizes[place] = last - first
                        node = np.int64(target[holder])
                elif mode == ELEMENTS:
                    elements += 1
                    if elements > ELEMENTS_MAX:
                        break
                    within = slot
                    scope = inner[outer]
                    slot = used[scope]
                    if slot >= capacity[scope]:
                        full[scope] = True
                        outcome = FULL
                        break
                    used[scope] = slot + 1
                    length[base[outer] + within] += 1
                    node = np.int64(target[outer])
                else:
                    edge = _position(
                        positions, edge_starts[outer], edge_starts[outer + 1], counts[depth]
                    )
                    node = np.int64(edge_nodes[edge]) if edge >= 0 else np.int64(-1)
                    counts[depth] += 1
                if at >= end:
                    break
                state = _VALUE
        if outcome != PROVEN:
            _forget(record, before, layout, found)
            if outcome == FULL:
                break
            needs_exact[row] = 1
            continue
        record += 1
        if recorded >= 0:
            recorded = add_step(
                recorded,
                END,
                -1,
                mark,
                end - mark,
                step_whats,
                step_nodes,
                step_froms,
                step_lengths,
            )
            steps = max(recorded, 0)
    else:
        row = offsets.size - 1
    used[0] = record
    return row, hits
