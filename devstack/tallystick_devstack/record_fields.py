"""Takes a record's timestamp and key from fields of its JSON line, with the rules that a Column has for its `parse`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tallystick.engine.decode.json.instants import NoInstantError, parser
from tallystick.errors import InvalidRequest
from tallystick.pipeline import Column
from tallystick.pipeline.time_formats import EPOCH_FACTORS, rule_problem

ISO: Final = "iso8601"
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_UNITS: Final = {
    ISO: "ISO 8601",
    "epoch_s": "seconds since 1970",
    "epoch_ms": "milliseconds since 1970",
    "epoch_us": "microseconds since 1970",
}
# The types that a text may fit, in this order; that many milliseconds are that many of its units. Without an offset: UTC.
_ZONED, _PLAIN, _DAY = ("timestamptz", 1, 1000), ("timestamp", 1, 1000), ("date", 86_400_000, 1)
_DECIMALS: Final = {"epoch_s": 6, "epoch_ms": 3, "epoch_us": 0}
_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_MS = 365 * 86_400_000
_EPOCH_HINT = f"--time-format {', '.join(EPOCH_FACTORS)}"
_TEXT_MAX = 80


class BadLineError(ValueError):
    """A line without a usable value of a field; the text is the reason, `hint` what to do if every line is like it."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


class _Number(str):
    """A JSON number as it is written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The timestamps that a topic accepts at a moment, `first_ms <= t <= last_ms`."""

    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, before_max_ms: int, after_max_ms: int, *, now_ms: int) -> TimeRange:
        """Return the range of a topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms."""
        # librdkafka takes 0 for "not set" and would use the current time.
        return cls(first_ms=max(1, now_ms - before_max_ms), last_ms=now_ms + after_max_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a line: `time` with its rule, and `key`. None: not taken from the line."""

    time: str | None = None
    time_format: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.time_format is None:
            return
        if self.time is None:
            raise InvalidRequest(
                f"--time-format {self.time_format}: expected --time with it, found none.",
                hint="name the field with --time FIELD.",
            )
        problem = rule_problem(self.time_format, "timestamptz")
        if problem and rule_problem(self.time_format, "timestamp"):
            raise InvalidRequest(
                f"--time-format: {self.time_format!r} {problem}.",
                hint=f"use {ISO}, {', '.join(EPOCH_FACTORS)}, or a strptime format with a year, e.g. "
                "'%d/%b/%Y:%H:%M:%S %z'.",
            )

    @property
    def needed(self) -> bool:
        """True if a line has to be parsed."""
        return self.time is not None or self.key is not None

    @property
    def rule(self) -> str:
        """The rule of the time: that of `time_format`, ISO 8601 if it is not set."""
        return self.time_format or ISO

    @property
    def unit(self) -> str:
        """How the time is read, as text."""
        return _UNITS.get(self.rule) or f"the format {self.rule}"

    def reader(self, allowed: TimeRange) -> Callable[[bytes], tuple[int | None, bytes | None]]:
        """Return the function from a line to its timestamp in milliseconds and its key. It raises BadLineError."""
        instant = _instant_reader(self.rule, allowed)

        def read(line: bytes) -> tuple[int | None, bytes | None]:
            content = parsed(line)
            at = None
            if self.time is not None:
                at = instant(self.time, _value(content, self.time))
            return at, None if self.key is None else _key(self.key, _value(content, self.key))

        return read


def parsed(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a line, its numbers as they are written. Raises BadLineError if it is none."""
    try:
        content = json.loads(
            line, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise BadLineError(f"byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadLineError(f"it is {_named(content)}, not an object")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _value(content: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field; of `a.b`, the field b of the object a, unless there is a field with that name."""
    if field in content:
        return content[field]
    found: Any = content
    for name in field.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def _instant_reader(rule: str, allowed: TimeRange) -> Callable[[str, Any], int]:
    numbers = rule in EPOCH_FACTORS
    readers = [
        (parser(Column("time", kind, parse=None if rule == ISO else rule)), ms, units)
        for kind, ms, units in ((_ZONED, _PLAIN, _DAY) if rule == ISO else (_ZONED, _PLAIN))
        if rule_problem(rule, kind) is None
    ][: None if rule == ISO else 1]

    def read(field: str, value: Any) -> int:
        if value is None:
            raise BadLineError(f"it has no value in field {field!r}")
        if not isinstance(value, str):
            raise BadLineError(f"field {field!r} is {_named(value)}, not a time")
        if isinstance(value, _Number) and not numbers:
            why = f"field {field!r} is the number {value}, which is not {_UNITS.get(rule, 'text')}"
            raise BadLineError(why, _unit_hint(value) or f"name its unit: {_EPOCH_HINT}.")
        if numbers and not isinstance(value, _Number) and not _DECIMAL.fullmatch(value):
            raise BadLineError(f"field {field!r} is {_quoted(value)}, which is not a number")
        text = _cut(rule, value)
        first: NoInstantError | None = None
        for reader, ms, units in readers:
            try:
                at_ms = reader(text) * ms // units
            except NoInstantError as error:
                first = first or error
                continue
            # A number of 1970 is nearly always one of another unit.
            if numbers and at_ms < _YEAR_MS and (hint := _unit_hint(text)):
                raise BadLineError(f"field {field!r}: {value} is {_moment(at_ms)}", hint)
            return _allowed(field, value, at_ms, allowed)
        hint = (
            _unit_hint(text)
            if numbers
            else "name the format of the field with --time-format, e.g. '%b %d %Y' for Mar 01 2026."
        )
        raise BadLineError(f"field {field!r}: {_quoted(value)} {first}", hint)

    return read


def _unit_hint(number: str) -> str | None:
    """Return the rules by which a number would be a time from 1971 to 2100, as a hint; None if there is none."""
    found = []
    for rule, factor in EPOCH_FACTORS.items():
        try:
            at = _EPOCH + timedelta(microseconds=float(number) * factor)
        except (OverflowError, ValueError):
            continue
        if 1971 <= at.year <= 2100:
            found.append(f"--time-format {rule} (then it is {at:%Y-%m-%d %H:%M:%S})")
    return f"name its unit: {' or '.join(found)}." if found else None


def _cut(rule: str, text: str) -> str:
    """Return the text without digits beyond a microsecond: a column refuses them, a Kafka timestamp has milliseconds."""
    if rule == ISO:
        return _FINER.sub(r"\1", text)
    whole, point, decimals = text.partition(".")
    if rule not in _DECIMALS or not decimals.isdecimal():
        return text
    kept = decimals[: _DECIMALS[rule]]
    return f"{whole}{point}{kept}" if kept else whole


def _allowed(field: str, value: str, at_ms: int, allowed: TimeRange) -> int:
    if allowed.first_ms <= at_ms <= allowed.last_ms:
        return at_ms
    if at_ms > allowed.last_ms:
        why = f"is after {_moment(allowed.last_ms)}, the topic's limit (message.timestamp.after.max.ms)"
    elif at_ms <= 0:
        why = "is not after 1970-01-01T00:00:00Z, and Kafka has no earlier timestamps"
    else:
        why = f"is before {_moment(allowed.first_ms)}, the topic's limit (message.timestamp.before.max.ms)"
    raise BadLineError(f"field {field!r}: {_quoted(value)} {why}")


def _moment(at_ms: int) -> str:
    return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%dT%H:%M:%SZ}"


def _key(field: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not isinstance(value, str):
        raise BadLineError(f"field {field!r} is {_named(value)}, which cannot be a key")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadLineError(f"field {field!r} is not Unicode text (a lone surrogate)") from None


def _named(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Number):
        return "a number"
    return {bool: "a boolean", str: "a string", list: "an array", dict: "an object"}[type(value)]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}...")


def field_names(line: bytes) -> list[str]:
    """Return the names of a line's fields; none if it is not a JSON object."""
    try:
        return list(parsed(line))
    except BadLineError:
        return []
