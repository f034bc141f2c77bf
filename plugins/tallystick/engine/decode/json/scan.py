"""Compiled kernels for the grammar of JSON: each returns the position after what it reads, or -1.

Grammar: RFC 8259; UTF-8: RFC 3629, section 4. Positions are absolute in the batch's byte buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.runtime.compiled import part
from tallystick.runtime.intrinsics import (
    byte_at,
    lowest_bit,
    other_than_digits,
    special_bytes,
    word_at,
    zeros,
)

Array = npt.NDArray[Any]
Int = Any  # A Python int outside of compiled code, int64 inside.

# The kinds of a value.
MISSING, NULL, TRUE, FALSE, INTEGER, FRACTION, PLAIN, ESCAPED, OBJECT, ARRAY = range(10)
DEPTH_MAX = 64
LEVELS = DEPTH_MAX + 1

# ASCII characters of a string that are neither a quote, a backslash nor a control character.
_PLAIN = np.zeros(256, np.bool_)
_PLAIN[32:128] = True
_PLAIN[[34, 92]] = False

# Eight copies of a byte, to look at eight characters at once.
_ONES = np.uint64(0x0101_0101_0101_0101)
_SPACES = np.uint64(0x2020_2020_2020_2020)
_QUOTES = np.uint64(0x2222_2222_2222_2222)
_SLASHES = np.uint64(0x5C5C_5C5C_5C5C_5C5C)
_HIGH_BITS = np.uint64(0x8080_8080_8080_8080)


@part
def blank(text: Int, at: Int, end: Int) -> Int:
    while at < end and (
        byte_at(text, at) == 32
        or byte_at(text, at) == 10
        or byte_at(text, at) == 13
        or byte_at(text, at) == 9
    ):
        at += 1
    return at


@part
def hex_digit(byte: Int) -> Int:
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return -1


@part
def _utf8(text: Int, at: Int, end: Int) -> Int:
    """Return the length of the multi-byte character at `at`, or 0 if it is invalid."""
    first = byte_at(text, at)
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
    elif 0xF0 <= first <= 0xF4:
        size = 4
    else:
        return 0
    if at + size > end:
        return 0
    second = byte_at(text, at + 1)
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return 0
    for i in range(at + 2, at + size):
        if byte_at(text, i) & 0xC0 != 0x80:
            return 0
    return size


@part
def plain_until(text: Int, at: Int, end: Int) -> Int:
    """Return the position of the first character of text[at:end] that is not plain, or `end`.

    A subtraction sets the high bit of a byte that is smaller than what is subtracted (Hacker's Delight, section 6-1). It
    may also set that of the bytes after it, of which only the first counts.
    """
    while at + 32 <= end:
        special = special_bytes(text, at)
        if special:
            return at + lowest_bit(special)
        at += 32
    while at + 8 <= end:
        word = word_at(text, at)
        quote, slash = word ^ _QUOTES, word ^ _SLASHES
        found = (
            word
            | ((word - _SPACES) & ~word)
            | ((quote - _ONES) & ~quote)
            | ((slash - _ONES) & ~slash)
        ) & _HIGH_BITS
        if found:
            return at + (lowest_bit(found) >> 3)
        at += 8
    while at < end and _PLAIN[byte_at(text, at)]:
        at += 1
    return at


@part
def string(text: Int, at: Int, end: Int) -> tuple[Int, bool]:
    """Return (position after the closing quote or -1, has escapes) of the string whose first character is at `at`."""
    escaped = False
    while at < end:
        # Most characters are plain ones.
        at = plain_until(text, at, end)
        if at >= end:
            return -1, escaped
        byte = byte_at(text, at)
        if byte == 34:
            return at + 1, escaped
        if byte == 92:
            escaped = True
            if at + 1 >= end:
                return -1, escaped
            what = byte_at(text, at + 1)
            if what == 117:
                if at + 6 > end:
                    return -1, escaped
                for i in range(at + 2, at + 6):
                    if hex_digit(byte_at(text, i)) < 0:
                        return -1, escaped
                at += 6
            elif what in (34, 92, 47, 98, 102, 110, 114, 116):
                at += 2
            else:
                return -1, escaped
        elif byte < 32:
            return -1, escaped
        else:
            size = _utf8(text, at, end)
            if size == 0:
                return -1, escaped
            at += size
    return -1, escaped


@part
def _digits_until(text: Int, at: Int, end: Int) -> Int:
    """Return the position of the first character of text[at:end] that is no digit, or `end`."""
    while at + 16 <= end:
        others = other_than_digits(text, at)
        if others:
            return at + lowest_bit(others)
        at += 16
    while at < end and 48 <= byte_at(text, at) <= 57:
        at += 1
    return at


@part
def _number(text: Int, at: Int, end: Int) -> tuple[Int, bool]:
    """Return (position after the number or -1, is written as an integer)."""
    if byte_at(text, at) == 45:
        at += 1
    if at >= end or byte_at(text, at) < 48 or byte_at(text, at) > 57:
        return -1, False
    if byte_at(text, at) == 48:
        at += 1
    else:
        at = _digits_until(text, at, end)
    whole = True
    if at < end and byte_at(text, at) == 46:
        whole = False
        at += 1
        first = at
        at = _digits_until(text, at, end)
        if at == first:
            return -1, False
    if at < end and (byte_at(text, at) == 101 or byte_at(text, at) == 69):
        whole = False
        at += 1
        if at < end and (byte_at(text, at) == 43 or byte_at(text, at) == 45):
            at += 1
        first = at
        while at < end and 48 <= byte_at(text, at) <= 57:
            at += 1
        if at == first:
            return -1, False
    return at, whole


@part
def _word(text: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (position after true, false or null, or -1; its kind)."""
    if (
        at + 4 <= end
        and byte_at(text, at) == 116
        and byte_at(text, at + 1) == 114
        and byte_at(text, at + 2) == 117
        and byte_at(text, at + 3) == 101
    ):
        return at + 4, TRUE
    if (
        at + 4 <= end
        and byte_at(text, at) == 110
        and byte_at(text, at + 1) == 117
        and byte_at(text, at + 2) == 108
        and byte_at(text, at + 3) == 108
    ):
        return at + 4, NULL
    if (
        at + 5 <= end
        and byte_at(text, at) == 102
        and byte_at(text, at + 1) == 97
        and byte_at(text, at + 2) == 108
        and byte_at(text, at + 3) == 115
        and byte_at(text, at + 4) == 101
    ):
        return at + 5, FALSE
    return -1, MISSING


@part
def scalar(text: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (position after the scalar at `at` or -1, its kind)."""
    byte = byte_at(text, at)
    if byte == 34:
        after, escaped = string(text, at + 1, end)
        return after, ESCAPED if escaped else PLAIN
    if byte == 45 or 48 <= byte <= 57:
        after, whole = _number(text, at, end)
        return after, INTEGER if whole else FRACTION
    return _word(text, at, end)


@part
def key(text: Int, at: Int, end: Int) -> Int:
    """Return the position after the colon of the key whose quote is expected at `at`, or -1."""
    if at >= end or byte_at(text, at) != 34:
        return -1
    at, _ = string(text, at + 1, end)
    if at < 0:
        return -1
    at = blank(text, at, end)
    return at + 1 if at < end and byte_at(text, at) == 58 else -1


@part
def nested(text: Int, at: Int, end: Int, depth: Int) -> Int:  # noqa: C901, PLR0912 - a state machine, read best from top to bottom
    """Return the position after the array or object that opens at `at`, `depth` levels down, or -1."""
    closers = zeros(LEVELS)
    outside = depth
    while True:
        at = blank(text, at, end)
        if at >= end:
            return -1
        if byte_at(text, at) == 123 or byte_at(text, at) == 91:
            depth += 1
            if depth > DEPTH_MAX:
                return -1
            closers[depth] = (
                byte_at(text, at) + 2
            )  # In ASCII each closing bracket is two after its opening one.
            at = blank(text, at + 1, end)
            if at >= end:
                return -1
            if byte_at(text, at) != closers[depth]:
                if closers[depth] == 125:
                    at = key(text, at, end)
                    if at < 0:
                        return -1
                continue
        else:
            at, _ = scalar(text, at, end)
            if at < 0:
                return -1
            at = blank(text, at, end)
            if at >= end:
                return -1
        while byte_at(text, at) == closers[depth]:
            depth -= 1
            at += 1
            if depth == outside:
                return at
            at = blank(text, at, end)
            if at >= end:
                return -1
        if byte_at(text, at) != 44:
            return -1
        at = blank(text, at + 1, end)
        if closers[depth] == 125:
            at = key(text, at, end)
            if at < 0:
                return -1
