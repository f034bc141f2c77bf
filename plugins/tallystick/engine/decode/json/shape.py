"""Compiled kernels that read records of the shape of an earlier one: the same bytes between the values.

A producer mostly writes the fields of all records in the same order with the same spaces. So the text between two values
of a record that `locate` has proven is compared as a whole with that of the next record, and only the values are read.
If all of it is equal, the record is proven by the same grammar; otherwise `locate` reads it from its beginning.

A shape is a list of steps, at most `STEPS_MAX`, in four arrays: what is read (`whats`), the node that it belongs to, or
-1 (`nodes`), and the text before it, which is in the record from which the shape was taken (`froms`, `lengths`).
"""

from __future__ import annotations

import numpy as np

from tallystick.engine.decode.json.scan import (
    ARRAY,
    ESCAPED,
    FRACTION,
    INTEGER,
    OBJECT,
    PLAIN,
    Array,
    Int,
    nested,
    scalar,
)
from tallystick.runtime.compiled import part
from tallystick.runtime.intrinsics import (
    byte_at,
    lowest_bit,
    other_than_digits,
    special_bytes,
    word_at,
)

STEPS_MAX = 128
# After so many more records of another shape than of the same one, the next rows are read without shapes.
MISSES_MAX = 32
PAUSE_ROWS = 2_048
# What a step reads after its text: a scalar; nothing, if an object begins or has ended, or the record has ended; or an
# array or object as a whole, at the depth that is added to NESTED.
SCALAR, OPEN, CLOSE, END, NESTED = range(5)


@part
def _is_same(text: Int, at: Int, start: Int, size: Int, limit: Int) -> bool:
    """Return True if text[at:] and text[start:] begin with the same `size` bytes; `limit` is the end of all text."""
    if size >= 8:
        done = np.int64(0)
        while done + 8 <= size:
            if word_at(text, at + done) != word_at(text, start + done):
                return False
            done += 8
        # The last word begins in the one before it.
        return bool(word_at(text, at + size - 8) == word_at(text, start + size - 8))
    if at + 8 <= limit and start + 8 <= limit:
        differing = word_at(text, at) ^ word_at(text, start)
        return bool(size == 0 or differing << np.uint64(64 - 8 * size) == 0)
    for i in range(size):  # noqa: SIM110 - numba compiles no generator
        if byte_at(text, at + i) != byte_at(text, start + i):
            return False
    return True


@part
def _short(text: Int, at: Int, end: Int, limit: Int) -> tuple[Int, Int]:
    """As `scalar`, by one look at 32 or 16 bytes if they have a string without escapes, or a number without exponent.

    The bytes after the record may be looked at, but not those after `limit`, the end of all text.
    """
    byte = byte_at(text, at)
    if byte == 34:
        if at + 33 <= limit:
            special = special_bytes(text, at + 1)
            if special:
                last = at + 1 + lowest_bit(special)
                if last < end and byte_at(text, last) == 34:
                    return last + 1, PLAIN
        return scalar(text, at, end)
    first = at + 1 if byte == 45 else at
    if first + 16 <= limit:
        others = other_than_digits(text, first)
        if others:
            size = lowest_bit(others)
            after = first + size
            if after < end and size > 0 and (size == 1 or byte_at(text, first) != 48):
                following = byte_at(text, after)
                if following == 46:
                    others >>= np.uint64(size + 1)
                    if others:
                        size = lowest_bit(others)
                        after += 1 + size
                        if after < end and size > 0:
                            following = byte_at(text, after)
                            if following not in (101, 69):
                                return after, FRACTION
                elif following not in (101, 69):
                    return after, INTEGER
    return scalar(text, at, end)


@part
def add_step(
    steps: Int,
    what: Int,
    node: Int,
    start: Int,
    length: Int,
    whats: Array,
    nodes: Array,
    froms: Array,
    lengths: Array,
) -> Int:
    """Add a step to a shape of `steps` steps. Return their number, or -1 if there is no room for it."""
    if steps >= STEPS_MAX:
        return np.int64(-1)
    whats[steps], nodes[steps], froms[steps], lengths[steps] = what, node, start, length
    return steps + 1


@part
def has_shape(
    text: Int,
    limit: Int,
    at: Int,
    end: Int,
    slot: Int,
    steps: Int,
    whats: Array,
    nodes: Array,
    froms: Array,
    lengths: Array,
    provable: Array,
    base: Array,
    kinds: Array,
    begins: Array,
    sizes: Array,
) -> bool:
    """Return True if text[at:end] has the shape; its values are then in `slot`. If not, some of them may be, too."""
    for step in range(steps):
        length = lengths[step]
        if at + length > end or not _is_same(text, at, froms[step], length, limit):
            return False
        at += length
        what, node = whats[step], nodes[step]
        place = base[node] + slot if node >= 0 else np.int64(0)
        if what == OPEN:
            # The text of the next step begins with the bracket.
            kinds[place] = OBJECT
            begins[place] = at
            continue
        if what == CLOSE:
            sizes[place] = at - begins[place]
            continue
        if what == END:
            continue
        if at >= end:
            return False
        begin, quoted = at, np.int64(0)
        if what == SCALAR:
            at, kind = _short(text, at, end, limit)
            if kind in (PLAIN, ESCAPED):
                quoted = np.int64(1)
        elif byte_at(text, at) in (123, 91):
            kind = np.int64(OBJECT if byte_at(text, at) == 123 else ARRAY)
            at = nested(text, at, end, what - NESTED)
        else:
            return False
        if at < 0 or (node >= 0 and not provable[node] >> kind & 1):
            return False
        if node >= 0:
            kinds[place] = kind
            begins[place] = begin + quoted
            sizes[place] = at - begin - 2 * quoted
    return bool(at == end)
