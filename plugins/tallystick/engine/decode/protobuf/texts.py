"""Compiled kernels over spans of a batch's bytes, which are `begin << 32 | size`."""

from __future__ import annotations

import numpy as np

from tallystick.engine.decode.protobuf.parse import Int
from tallystick.engine.decode.protobuf.program import Array
from tallystick.runtime.compiled import (
    FLAG,
    FLAGS_OUT,
    INT32S_OUT,
    INT64S,
    UINT8S,
    UINT8S_OUT,
    LoopGroup,
    part,
)
from tallystick.runtime.intrinsics import copy_bytes

loops = LoopGroup(__name__)

_SIZE = (1 << 32) - 1
# In maps up to this size each key is compared with the later ones, which takes less time than sorting them.
PAIRWISE_MAX = 16


@loops.loop(INT64S, INT32S_OUT)
def measure_texts(spans: Array, offsets: Array) -> None:
    """Fill the Arrow offsets of a column of spans."""
    total = np.int64(0)
    offsets[0] = 0
    for slot in range(spans.size):
        total += spans[slot] & _SIZE
        offsets[slot + 1] = total


@loops.loop(UINT8S, INT64S, UINT8S_OUT)
def copy_texts(text: Array, spans: Array, out: Array) -> None:
    """Copy the spans of `text` one after another into `out`."""
    to = np.int64(0)
    for slot in range(spans.size):
        begin, size = spans[slot] >> 32, spans[slot] & _SIZE
        copy_bytes(out, to, text, begin, size)
        to += size


@part
def _same(text: Array, one: Int, other: Int, is_text: bool) -> bool:
    """Return True for equal keys: numbers, or spans with the same bytes."""
    if one == other:
        return True
    if not is_text or (one ^ other) & _SIZE:
        return False
    first, second, last = one >> 32, other >> 32, (one >> 32) + (one & _SIZE)
    while first < last and text[first] == text[second]:
        first += 1
        second += 1
    return bool(first == last)


@loops.loop(UINT8S, INT64S, FLAG, INT64S, FLAGS_OUT, results=1)
def mark_replaced(text: Array, keys: Array, is_text: bool, lengths: Array, replaced: Array) -> Int:
    """Mark the entries whose key a later entry of the same map has. Return how many maps were too large to compare."""
    first, large = np.int64(0), 0
    for one in range(lengths.size):
        count = lengths[one]
        if count > PAIRWISE_MAX:
            large += 1
        else:
            for i in range(first, first + count - 1):
                for j in range(i + 1, first + count):
                    if _same(text, keys[i], keys[j], is_text):
                        replaced[i] = True
                        break
        first += count
    return large
