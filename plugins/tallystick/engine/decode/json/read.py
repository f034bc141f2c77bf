"""Compiled kernels that read the values found by `locate` into the buffers of Arrow columns, one column at a time.

They follow the same rule as `locate`: if a value is not proven (another kind, too many digits, an uncommon form of a
time), its row is marked `needs_exact` for `exact`. `text` has the batch's bytes; `kinds`, `begins`, `sizes` and
`needs_exact` are arrays over rows, or over the elements of lists.
"""

from __future__ import annotations

import numpy as np

from tallystick.engine.decode.json.scan import (
    ESCAPED,
    FRACTION,
    INTEGER,
    MISSING,
    NULL,
    PLAIN,
    Array,
    Int,
    hex_digit,
)
from tallystick.runtime.compiled import (
    FLAG,
    INT32S,
    INT32S_OUT,
    INT64S_OUT,
    NUMBER,
    UINT8S,
    UINT8S_OUT,
    ArrayOf,
    LoopGroup,
    part,
)
from tallystick.runtime.intrinsics import (
    address_of,
    byte_at,
    copy_bytes,
    prefetch,
    word_at,
    zeros,
)
from tallystick.tables.calendar import END_US, FIRST_US

NUMBER_CHARS_MAX = 32
loops = LoopGroup(__name__)
# The text of a batch is larger than a core's cache, and each column begins at its first record again. So each loop asks
# for the values of later rows. (Where there is no value, the begin is any number.)
_AHEAD = 16
# Of a batch: its text, and by row kind, begin and size.
FIELD = (UINT8S, UINT8S, INT32S, INT32S)
_POWERS = np.array([10.0**n for n in range(23)])
# Ten times this plus nine still fits 64 bits.
_APPENDABLE_MAX = 922_337_203_685_477_579
# Eight copies of a zero, and the halves of 64 bits that hold numbers of two, four and eight digits.
_ZEROS = np.uint64(0x3030_3030_3030_3030)
_PAIRS = np.uint64(0x00FF_00FF_00FF_00FF)
_FOURS = np.uint64(0x0000_FFFF_0000_FFFF)
_EIGHT = np.uint64(0x0000_0000_FFFF_FFFF)
_ALL_BITS = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@part
def _append(value: Int, byte: Int) -> Int:
    """Return `value` with one more decimal digit, or -1 if `byte` is not a digit or the result might not fit 64 bits."""
    if byte < 48 or byte > 57 or value > _APPENDABLE_MAX:
        return np.int64(-1)
    return value * 10 + np.int64(byte) - 48


@part
def _eight_digits(word: Int, size: Int) -> Int:
    """Return the number that the last `size` of eight characters are, from one to eight digits.

    Pairs of digits become numbers below 100, pairs of these below 10,000, and so on: three multiplications.
    """
    kept = _ALL_BITS << np.uint64(64 - 8 * size)
    digits = (word & kept) - (_ZEROS & kept)
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _PAIRS
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _FOURS
    return np.int64((fours * np.uint64(10_000) + (fours >> np.uint64(32))) & _EIGHT)


@part
def _whole(text: Int, at: Int, end: Int) -> Int:
    """Return the number of up to 16 digits, with a sign or without, that `locate` has proven. `end` is at least 16."""
    negative = byte_at(text, at) == 45
    size = end - at - (1 if negative else 0)
    value = _eight_digits(word_at(text, end - 8), min(size, 8))
    if size > 8:
        value += _eight_digits(word_at(text, end - 16), size - 8) * 100_000_000
    return -value if negative else value


@part
def _scaled(text: Int, at: Int, end: Int, scale: Int) -> tuple[bool, Int]:
    """Return (proven, number times 10**scale); proven only if the number has no exponent and the result fits 64 bits."""
    if end - at > NUMBER_CHARS_MAX:
        return False, np.int64(0)
    value = np.int64(0)
    negative = at < end and byte_at(text, at) == 45
    if negative:
        at += 1
    first = at
    while at < end and byte_at(text, at) != 46:
        value = _append(value, byte_at(text, at))
        if value < 0:
            return False, value
        at += 1
    # No digit, a leading zero, or a point without digits: possible in a string, but not in a JSON number.
    if at == first or (at - first > 1 and byte_at(text, first) == 48) or at + 1 == end:
        return False, value
    for i in range(at + 1, end):
        if scale > 0:
            value = _append(value, byte_at(text, i))
            if value < 0:
                return False, value
            scale -= 1
        elif byte_at(text, i) != 48:
            return False, value
    while scale > 0 and value != 0:
        value = _append(value, 48)
        if value < 0:
            return False, value
        scale -= 1
    return True, -value if negative else value


@loops.loop(*FIELD, NUMBER, FLAG, NUMBER, NUMBER, INT64S_OUT, UINT8S_OUT)
def read_scaled(
    content: Array,
    kinds: Array,
    begins: Array,
    sizes: Array,
    scale: Int,
    strings: bool,
    low: Int,
    high: Int,
    out: Array,
    needs_exact: Array,
) -> None:
    """Read numbers (if `strings`, also from strings) times 10**scale into `out`; mark those outside [low, high]."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        proven, value = False, np.int64(0)
        at, end = np.int64(begins[row]), np.int64(begins[row]) + sizes[row]
        if kind == INTEGER and scale == 0 and sizes[row] <= 16 and end >= 16:
            proven, value = True, _whole(text, at, end)
        elif kind in (INTEGER, FRACTION) or (strings and kind == PLAIN):
            proven, value = _scaled(text, at, end, scale)
        if proven and low <= value <= high:
            out[row] = value
        else:
            needs_exact[row] = 1


@loops.loop(*FIELD, ArrayOf("<f8"), UINT8S_OUT, UINT8S_OUT)
def read_doubles(
    content: Array,
    kinds: Array,
    begins: Array,
    sizes: Array,
    out: Array,
    hard: Array,
    needs_exact: Array,
) -> None:
    """Read numbers into `out` if one correctly rounded operation suffices (Clinger 1990); mark the others `hard`."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        if kind not in (INTEGER, FRACTION):
            needs_exact[row] = 1
            continue
        at, end = begins[row], begins[row] + sizes[row]
        negative = byte_at(text, at) == 45
        if negative:
            at += 1
        mantissa, exponent, point, exact = np.int64(0), 0, False, True
        while at < end and byte_at(text, at) != 101 and byte_at(text, at) != 69:
            if byte_at(text, at) == 46:
                point = True
            else:
                if mantissa > 900719925474098:
                    exact = False
                    break
                mantissa = mantissa * 10 + np.int64(byte_at(text, at)) - 48
                if point:
                    exponent -= 1
            at += 1
        # An exponent in the text is rare: such numbers take the slow path, as do long mantissas.
        if not exact or at < end or exponent < -22:
            hard[row] = 1
            continue
        value = np.float64(mantissa) / _POWERS[-exponent]
        out[row] = -value if negative else value


@part
def _plain_escape(what: Int) -> Int:
    """Return the byte of a two-character escape whose second character is `what`."""
    if what == 98:
        return 8
    if what == 102:
        return 12
    if what == 110:
        return 10
    if what == 114:
        return 13
    if what == 116:
        return 9
    return what


@part
def _code_unit(text: Int, at: Int) -> Int:
    """Return the value of the four hexadecimal digits at `at`."""
    code = np.int64(0)
    for i in range(at, at + 4):
        code = code * 16 + hex_digit(byte_at(text, i))
    return code


@part
def _code_point(text: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (character of the \\u escape whose digits begin at `at`, position after it); -1 for half a pair."""
    code = _code_unit(text, at)
    at += 4
    if code < 0xD800 or code > 0xDFFF:
        return code, at
    if code > 0xDBFF or at + 6 > end or byte_at(text, at) != 92 or byte_at(text, at + 1) != 117:
        return np.int64(-1), at
    low = _code_unit(text, at + 2)
    if low < 0xDC00 or low > 0xDFFF:
        return np.int64(-1), at
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), at + 6


@part
def _put_utf8(code: Int, out: Array, to: Int) -> Int:
    """Write a character's UTF-8 to out[to:], unless `out` is empty, and return its size."""
    size = 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
    if out.size > 0:
        if size == 1:
            out[to] = code
        else:
            out[to] = (0xF00 >> size & 0xFF) | code >> 6 * (size - 1)
        for i in range(1, size):
            out[to + i] = 0x80 | (code >> 6 * (size - 1 - i)) & 0x3F
    return size


@part
def _unescaped(text: Int, at: Int, end: Int, out: Array, to: Int) -> Int:
    """Write text[at:end] without its escapes to out[to:] and return its size, or -1 for half a surrogate pair.

    If `out` is empty, only count.
    """
    first = to
    while at < end:
        byte = byte_at(text, at)
        if byte == 92 and byte_at(text, at + 1) == 117:
            code, at = _code_point(text, at + 2, end)
            if code < 0:
                return -1
            to += _put_utf8(code, out, to)
            continue
        if byte == 92:
            byte = _plain_escape(byte_at(text, at + 1))
            at += 1
        if out.size > 0:
            out[to] = byte
        at += 1
        to += 1
    return to - first


@loops.loop(*FIELD, INT32S_OUT, UINT8S_OUT)
def measure_strings(
    content: Array, kinds: Array, begins: Array, sizes: Array, offsets: Array, needs_exact: Array
) -> None:
    """Fill the Arrow offsets of a string column (int32, one more than rows); mark other values `needs_exact`."""
    text = address_of(content)
    nothing = zeros(0)
    total = np.int64(0)
    offsets[0] = 0
    for row in range(kinds.size):
        kind = kinds[row]
        if not needs_exact[row]:
            if kind == PLAIN:
                total += sizes[row]
            elif kind == ESCAPED:
                size = _unescaped(text, begins[row], begins[row] + sizes[row], nothing, 0)
                if size < 0:
                    needs_exact[row] = 1
                else:
                    total += size
            elif kind not in (MISSING, NULL):
                needs_exact[row] = 1
        offsets[row + 1] = total


@loops.loop(UINT8S, UINT8S, INT32S, INT32S, INT32S, UINT8S_OUT)
def copy_strings(
    text: Array, kinds: Array, begins: Array, offsets: Array, sizes: Array, out: Array
) -> None:
    """Copy the bytes that `measure_strings` measured into `out`."""
    address = address_of(text)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(address, begins[row + _AHEAD])
        to = np.int64(offsets[row])
        if offsets[row + 1] == offsets[row]:
            continue
        begin = begins[row]
        if kinds[row] == PLAIN:
            copy_bytes(out, to, text, np.int64(begin), np.int64(sizes[row]))
        else:
            _unescaped(address, begin, begin + sizes[row], out, to)


@part
def _digits(text: Int, at: Int, count: Int) -> Int:
    value = np.int64(0)
    for i in range(at, at + count):
        if byte_at(text, i) < 48 or byte_at(text, i) > 57:
            return np.int64(-1)
        value = value * 10 + np.int64(byte_at(text, i)) - 48
    return value


@part
def _day(text: Int, at: Int) -> tuple[bool, Int]:
    """Return (proven, days since 1970) of the ten characters `YYYY-MM-DD` at `at` (Gregorian, years 1 to 9999)."""
    year, month, day = _digits(text, at, 4), _digits(text, at + 5, 2), _digits(text, at + 8, 2)
    if (
        byte_at(text, at + 4) != 45
        or byte_at(text, at + 7) != 45
        or year < 1
        or month < 1
        or month > 12
        or day < 1
    ):
        return False, np.int64(0)
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month - 1] + (1 if leap else 0):
        return False, np.int64(0)
    # If years begin in March, the leap day is the last day: days_from_civil by Howard Hinnant.
    shifted = year - (1 if month <= 2 else 0)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return True, 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468


@loops.loop(*FIELD, INT32S_OUT, UINT8S_OUT)
def read_dates(
    content: Array, kinds: Array, begins: Array, sizes: Array, out: Array, needs_exact: Array
) -> None:
    """Read ISO 8601 dates as days since 1970."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        proven, day = False, np.int64(0)
        if kind == PLAIN and sizes[row] == 10:
            proven, day = _day(text, begins[row])
        if proven:
            out[row] = day
        else:
            needs_exact[row] = 1


@part
def _clock(text: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (microseconds since midnight of `HH:MM:SS[.ffffff]` at `at`, or -1; the position after it)."""
    if end - at < 8 or byte_at(text, at + 2) != 58 or byte_at(text, at + 5) != 58:
        return np.int64(-1), at
    hour, minute, second = _digits(text, at, 2), _digits(text, at + 3, 2), _digits(text, at + 6, 2)
    if min(hour, minute, second) < 0 or hour > 23 or minute > 59 or second > 59:
        return np.int64(-1), at
    micros = (hour * 60 + minute) * 60_000_000 + second * 1_000_000
    at += 8
    if at < end and byte_at(text, at) == 46:
        at += 1
        unit, first = np.int64(100_000), at
        while at < end and 48 <= byte_at(text, at) <= 57 and unit > 0:
            micros += unit * (np.int64(byte_at(text, at)) - 48)
            unit //= 10
            at += 1
        if at == first:
            return np.int64(-1), at
    return micros, at


@part
def _time(text: Int, at: Int, end: Int, zoned: bool) -> tuple[bool, Int]:
    """Return (proven, microseconds since 1970) of `YYYY-MM-DDTHH:MM:SS[.ffffff][Z|+HH:MM]`."""
    if end - at < 19 or (byte_at(text, at + 10) != 84 and byte_at(text, at + 10) != 32):
        return False, np.int64(0)
    proven, day = _day(text, at)
    micros, at = _clock(text, at + 11, end)
    if not proven or micros < 0:
        return False, np.int64(0)
    micros += day * 86_400_000_000
    if not zoned:
        return at == end, micros
    if end - at == 1 and byte_at(text, at) == 90:
        return True, micros
    if (
        end - at == 6
        and (byte_at(text, at) == 43 or byte_at(text, at) == 45)
        and byte_at(text, at + 3) == 58
    ):
        hours, minutes = _digits(text, at + 1, 2), _digits(text, at + 4, 2)
        if 0 <= hours <= 23 and 0 <= minutes <= 59:
            shift = (hours * 60 + minutes) * 60_000_000
            return True, micros - shift if byte_at(text, at) == 43 else micros + shift
    return False, np.int64(0)


@loops.loop(*FIELD, FLAG, INT64S_OUT, UINT8S_OUT)
def read_times(
    content: Array,
    kinds: Array,
    begins: Array,
    sizes: Array,
    zoned: bool,
    out: Array,
    needs_exact: Array,
) -> None:
    """Read ISO 8601 times, with (`zoned`) or without an offset from UTC, as microseconds since 1970."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        proven, micros = False, np.int64(0)
        if kind == PLAIN:
            proven, micros = _time(text, begins[row], begins[row] + sizes[row], zoned)
        if proven and FIRST_US <= micros < END_US:
            out[row] = micros
        else:
            needs_exact[row] = 1


@loops.loop(*FIELD, INT64S_OUT, UINT8S_OUT)
def read_times_of_day(
    content: Array, kinds: Array, begins: Array, sizes: Array, out: Array, needs_exact: Array
) -> None:
    """Read times of day, `HH:MM:SS[.ffffff]`, as microseconds since midnight."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        end = begins[row] + sizes[row]
        micros, after = np.int64(-1), end
        if kind == PLAIN:
            micros, after = _clock(text, begins[row], end)
        if micros >= 0 and after == end:
            out[row] = micros
        else:
            needs_exact[row] = 1


@loops.loop(*FIELD, ArrayOf("|u1", 2), UINT8S_OUT)
def read_uuids(
    content: Array, kinds: Array, begins: Array, sizes: Array, out: Array, needs_exact: Array
) -> None:
    """Read UUIDs, 8-4-4-4-12 hexadecimal digits in either case (RFC 9562, section 4), as 16 bytes."""
    text = address_of(content)
    for row in range(kinds.size):
        if row + _AHEAD < kinds.size:
            prefetch(text, begins[row + _AHEAD])
        kind = kinds[row]
        if kind in (MISSING, NULL) or needs_exact[row]:
            continue
        if kind != PLAIN or sizes[row] != 36 or not _uuid(text, begins[row], out, row):
            needs_exact[row] = 1


@part
def _uuid(text: Int, at: Int, out: Array, row: Int) -> bool:
    digit = 0
    for i in range(36):
        byte = byte_at(text, at + i)
        if i in (8, 13, 18, 23):
            if byte != 45:
                return False
            continue
        value = hex_digit(byte)
        if value < 0:
            return False
        if digit & 1:
            out[row, digit >> 1] |= value
        else:
            out[row, digit >> 1] = value << 4
        digit += 1
    return True


@loops.loop(UINT8S, INT32S, INT32S, UINT8S_OUT)
def copy_spans(text: Array, begins: Array, offsets: Array, out: Array) -> None:
    """Copy a span of `text` per row; `offsets` are the Arrow offsets of the copies in `out`."""
    for row in range(begins.size):
        to = np.int64(offsets[row])
        copy_bytes(out, to, text, np.int64(begins[row]), np.int64(offsets[row + 1]) - to)


@loops.loop(INT32S, INT32S, INT32S, INT32S_OUT)
def measure_rest(begins: Array, ends: Array, lengths: Array, offsets: Array) -> None:
    """Fill the Arrow offsets of a column of JSON objects, each of `lengths` entries, which are the spans of the text."""
    entry = 0
    offsets[0] = 0
    for row in range(lengths.size):
        size = np.int64(2)
        for i in range(lengths[row]):
            size += ends[entry] - begins[entry] + (1 if i else 0)
            entry += 1
        offsets[row + 1] = offsets[row] + size


@loops.loop(UINT8S, INT32S, INT32S, INT32S, INT32S, UINT8S_OUT)
def copy_rest(
    text: Array, begins: Array, ends: Array, lengths: Array, offsets: Array, out: Array
) -> None:
    """Write the JSON objects that `measure_rest` measured into `out`: their entries, separated by commas."""
    entry = 0
    for row in range(lengths.size):
        to = np.int64(offsets[row])
        out[to] = 123
        to += 1
        for i in range(lengths[row]):
            if i:
                out[to] = 44
                to += 1
            for at in range(begins[entry], ends[entry]):
                out[to] = text[at]
                to += 1
            entry += 1
        out[to] = 125
