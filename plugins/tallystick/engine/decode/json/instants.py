"""Applies the parse rules of date, timestamp and timestamptz columns: text or number to days or microseconds since 1970.

    iso8601 (default)   2013-01-01 · 2013-01-01T05:15[:00[.123456]][Z|+01:00|+0100|+01], a space may replace the T
    epoch_s/_ms/_us     a JSON number; not finer than a microsecond
    epoch_days          a whole JSON number, for a date
    anything else       a strptime format of Python (`tallystick.pipeline.time_formats` checks it)

A timestamptz needs an offset, in the text or as a literal `Z` at the end of the format. A timestamp must not have one.
Nothing is rounded: digits beyond a microsecond must be zeros, and a date must not have a time of day. Years 1 to 9999.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from tallystick.pipeline import Column
from tallystick.pipeline.time_formats import EPOCH_DAYS, EPOCH_FACTORS
from tallystick.tables.calendar import (
    DAY_US,
    END_DAY,
    END_US,
    EPOCH_ORDINAL,
    FIRST_DAY,
    FIRST_US,
)

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)


class NoInstantError(ValueError):
    """A text or number that is not a valid time of the column; `kind` is the kind of the dead letter's reason."""

    def __init__(self, why: str, kind: str = "time") -> None:
        super().__init__(why)
        self.kind = kind


def takes_numbers(column: Column) -> bool:
    """Return True if the column is read from a JSON number, False if from a string."""
    return column.parse in EPOCH_FACTORS or column.parse == EPOCH_DAYS


def parser(column: Column) -> Callable[[str], int]:
    """Return the function that converts text to days (date) or microseconds (timestamps), or raises NoInstantError."""
    rule = "iso8601" if column.parse is None else column.parse
    if rule in EPOCH_FACTORS:
        return lambda text: _epoch(text, rule, column.type)
    if rule == EPOCH_DAYS:
        return _epoch_days
    if rule == "iso8601":
        return (
            _iso_date
            if column.type == "date"
            else lambda text: _iso_time(text, zoned=column.type == "timestamptz")
        )
    return lambda text: _formatted(text, rule, column.type)


def _epoch(text: str, rule: str, kind: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise NoInstantError("lies outside the years 1 to 9999", "range") from error
    if not number:
        return 0
    if number.adjusted() > 20:
        raise NoInstantError("lies outside the years 1 to 9999", "range")
    sign, digits, exponent = number.as_tuple()
    # Zeros at the end do not change the value, so they do not count.
    significant = "".join(map(str, digits)).rstrip("0")
    if number.adjusted() < -6 or len(significant) > 27:
        raise NoInstantError("is finer than a microsecond", "inexact")
    dropped = len(digits) - len(significant)
    number = Decimal((sign, tuple(map(int, significant)), int(exponent) + dropped))
    # Within these bounds, the 28 digits of the decimal context lose only zeros, so the comparison below is exact.
    exact = number * EPOCH_FACTORS[rule]
    micros = int(exact)
    if micros != exact:
        raise NoInstantError("is finer than a microsecond", "inexact")
    return _as_kind(_in_range(micros), kind)


def _epoch_days(text: str) -> int:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise NoInstantError("lies outside the years 1 to 9999", "range") from error
    if not number:
        return 0
    if number.adjusted() > 9:
        raise NoInstantError("lies outside the years 1 to 9999", "range")
    if number != (days := int(number)):
        raise NoInstantError("has a time of day, which a date cannot hold", "inexact")
    if not FIRST_DAY <= days < END_DAY:
        raise NoInstantError("lies outside the years 1 to 9999", "range")
    return days


def _iso_date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if not found:
        raise NoInstantError("is not a date like 2013-01-31")
    return _day(int(found[1]), int(found[2]), int(found[3]))


def _iso_time(text: str, *, zoned: bool) -> int:
    found = _TIME.fullmatch(text)
    if not found:
        raise NoInstantError(
            "is not an ISO 8601 time like 2013-01-31T05:15:00Z"
            if zoned
            else "is not an ISO 8601 time"
        )
    year, month, day, hour, minute = (int(found[i]) for i in range(1, 6))
    second, fraction, offset = int(found[6] or 0), (found[7] or "").ljust(9, "0"), found[8]
    if hour > 23 or minute > 59 or second > 59:
        raise NoInstantError("has an invalid time of day")
    if fraction[6:] != "000":
        raise NoInstantError("is finer than a microsecond", "inexact")
    if zoned != bool(offset):
        raise NoInstantError(
            "has no offset from UTC" if zoned else "has an offset, which a timestamp cannot hold"
        )
    micros = (
        _day(year, month, day) * DAY_US
        + ((hour * 60 + minute) * 60 + second) * 1_000_000
        + int(fraction[:6])
    )
    return _in_range(micros - _offset_us(offset))


def _offset_us(offset: str | None) -> int:
    if not offset or offset == "Z":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[-2:]) if len(offset) > 3 else 0
    if hours > 23 or minutes > 59:
        raise NoInstantError("has an invalid offset from UTC")
    return (-1 if offset[0] == "-" else 1) * (hours * 60 + minutes) * 60_000_000


def _day(year: int, month: int, day: int) -> int:
    try:
        return date(year, month, day).toordinal() - EPOCH_ORDINAL
    except ValueError as error:
        raise NoInstantError("is not a day of the calendar") from error


@lru_cache(maxsize=65_536)
def _formatted(text: str, rule: str, kind: str) -> int:
    try:
        found = datetime.strptime(text, rule)  # noqa: DTZ007 - the rule determines if there is an offset
    except ValueError as error:
        raise NoInstantError(f"does not match {rule!r}") from error
    if kind == "timestamptz" and found.tzinfo is None:
        found = found.replace(tzinfo=UTC)  # a rule without %z ends in a literal Z
    zero = datetime(1970, 1, 1, tzinfo=UTC if found.tzinfo else None)
    return _as_kind(_in_range((found - zero) // timedelta(microseconds=1)), kind)


def _in_range(micros: int) -> int:
    if not FIRST_US <= micros < END_US:
        raise NoInstantError("lies outside the years 1 to 9999", "range")
    return micros


def _as_kind(micros: int, kind: str) -> int:
    if kind != "date":
        return micros
    if micros % DAY_US:
        raise NoInstantError("has a time of day, which a date cannot hold", "inexact")
    return micros // DAY_US
