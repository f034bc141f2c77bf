"""A compiled kernel that finds the fields of CSV lines, and one that copies their texts.

Grammar: RFC 4180, one line per record. A quote inside of a quoted field is written twice; outside of quotes it is not
allowed. Positions are absolute in the batch's byte buffer.
"""

from __future__ import annotations

import numpy as np

from tallystick.engine.decode.json.scan import Array, Int
from tallystick.runtime.compiled import (
    INT32S,
    INT32S_OUT,
    NUMBER,
    UINT8S,
    UINT8S_OUT,
    ArrayOf,
    LoopGroup,
    part,
)

loops = LoopGroup(__name__)

# The kinds of a field: absent, without quotes, in quotes, in quotes with quotes inside.
NOTHING, BARE, QUOTED, DOUBLED = range(4)
# Verdicts.
OK, FEWER, MORE, UNCLOSED, AFTER_QUOTE, BARE_QUOTE, LINES = range(7)


@part
def _quoted(text: Array, at: Int, end: Int, quote: Int) -> tuple[Int, Int, Int]:
    """Return (position of the closing quote, kind, verdict) of the field whose content begins at `at`."""
    kind = QUOTED
    while at < end:
        if text[at] != quote:
            at += 1
        elif at + 1 < end and text[at + 1] == quote:
            kind = DOUBLED
            at += 2
        else:
            return at, kind, OK
    return at, kind, UNCLOSED


@part
def _bare(text: Array, at: Int, end: Int, separator: Int, quote: Int) -> tuple[Int, Int]:
    """Return (position after the field without quotes that begins at `at`, verdict)."""
    verdict = OK
    while at < end and text[at] != separator:
        if text[at] == quote:
            verdict = BARE_QUOTE
        elif text[at] == 10 or text[at] == 13:
            verdict = LINES
        at += 1
    return at, verdict


@part
def _line_end(text: Array, begin: Int, end: Int) -> Int:
    """Return where a line ends: one line end is no part of the last field."""
    if end > begin and text[end - 1] == 10:
        end -= 1
        if end > begin and text[end - 1] == 13:
            end -= 1
    return end


@loops.loop(
    UINT8S,
    INT32S,  # offsets
    NUMBER,
    NUMBER,
    ArrayOf("|u1", 2),  # kinds
    ArrayOf("<i4", 2),  # begins
    ArrayOf("<i4", 2),  # sizes
    UINT8S_OUT,  # verdicts
    INT32S_OUT,  # found
)
def find_fields(
    text: Array,
    offsets: Array,
    separator: Int,
    quote: Int,
    kinds: Array,
    begins: Array,
    sizes: Array,
    verdicts: Array,
    found: Array,
) -> None:
    """Fill kind, begin and size of each field (first index) of each line, its verdict, and the fields that it has.

    `quote`: the byte of a quote, or -1. Lines whose verdict is not OK are passed over.
    """
    wanted = kinds.shape[0]
    for row in range(offsets.size - 1):
        if verdicts[row] != OK:
            continue
        at = np.int64(offsets[row])
        end = _line_end(text, at, np.int64(offsets[row + 1]))
        number, verdict = 0, OK
        while verdict == OK:
            if at < end and text[at] == quote:
                begin = at + 1
                at, kind, verdict = _quoted(text, begin, end, quote)
                size = at - begin
                at += 1
                if verdict == OK and at < end and text[at] != separator:
                    verdict = AFTER_QUOTE
            else:
                kind, begin = BARE, at
                at, verdict = _bare(text, at, end, separator, quote)
                size = at - begin
            if verdict == OK and number < wanted:
                kinds[number, row], begins[number, row], sizes[number, row] = kind, begin, size
            number += 1
            if at >= end:
                break
            at += 1
        if verdict == OK and number != wanted:
            verdict = FEWER if number < wanted else MORE
        found[row] = number
        verdicts[row] = verdict
        if verdict != OK:
            for field in range(wanted):
                kinds[field, row], sizes[field, row] = NOTHING, 0


@loops.loop(UINT8S, NUMBER, UINT8S, INT32S, INT32S, INT32S_OUT)
def measure_fields(
    text: Array, quote: Int, kinds: Array, begins: Array, sizes: Array, offsets: Array
) -> None:
    """Fill the Arrow offsets of one field's texts: a quote that is written twice counts once."""
    offsets[0] = 0
    for row in range(kinds.size):
        size = np.int64(sizes[row])
        if kinds[row] == DOUBLED:
            twice = 0
            for at in range(begins[row], begins[row] + sizes[row]):
                if text[at] == quote:
                    twice += 1
            size -= twice // 2
        offsets[row + 1] = offsets[row] + size


@loops.loop(UINT8S, NUMBER, UINT8S, INT32S, INT32S, UINT8S_OUT)
def copy_fields(
    text: Array, quote: Int, kinds: Array, begins: Array, offsets: Array, out: Array
) -> None:
    """Copy the texts that `measure_fields` measured to `out`."""
    for row in range(kinds.size):
        at = np.int64(begins[row])
        for to in range(offsets[row], offsets[row + 1]):
            out[to] = text[at]
            at += 2 if kinds[row] == DOUBLED and text[at] == quote else 1
