"""Decodes one JSON value into the declared columns by exact rules: slow, and the only source of reasons.

The kernels of `locate` and `read` decode whole batches, but only the values that they can prove. All other values are
decoded here, so these rules alone determine if a value becomes a row or a dead letter. The kinds of reasons are:

    tombstone  the value is null                    size       larger than VALUE_BYTES_MAX or ELEMENTS_MAX
    utf8       not UTF-8                            depth      nested deeper than DEPTH_MAX
    json       not JSON (RFC 8259)                  object     JSON, but not an object
    duplicate  a field that is read occurs twice    missing    a required field is absent
    null       a required field is null             type       another JSON kind than the column takes
    inexact    the type cannot hold it unrounded    range      too large or too small for the type
    time       no date or time by the parse rule    unicode    half of a surrogate pair in a string

A record becomes a dead letter of the kind `timestamp` if its own timestamp does not fit `_timestamp` (see
`tallystick.engine.records`). A whole number may be written as `1.0` or `1e3`: JSON has one kind of number, and nothing is
lost. A double or float takes any JSON number and rounds it to the nearest value. Fields that no column reads are ignored,
regardless of their content, if the value is JSON.
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tallystick.engine.decode.decoder import shorten
from tallystick.engine.decode.halves import ELEMENTS_MAX
from tallystick.engine.decode.json import instants
from tallystick.engine.decode.json.parsed import (
    JsonNumber,
    JsonObject,
    MismatchError,
    parsed_object,
    rest_text,
    shown,
    text_of,
)
from tallystick.format.types import LIST, MAP, STRUCT, decimal_size, fixed_bytes
from tallystick.pipeline import Column
from tallystick.pipeline.columns import JSON_TEXT, keeps_json_text
from tallystick.pipeline.paths import path_text

NUMBER_CHARS_MAX = 400
INT_BITS = {"int": 32, "long": 64}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME_OF_DAY = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_AN = re.compile(r"[aeio]")


class ExactRow:
    """A decoder of one value at a time into the declared columns, in their order.

    `rest`: the name of the column that gets the fields that no other column reads.
    """

    def __init__(self, columns: Sequence[Column], *, rest: str | None = None) -> None:
        self._elements = _Elements()
        self._columns = tuple(None if c.name == rest else _Part(c, self._elements) for c in columns)
        self._known = frozenset(c.path[0] for c in columns if c.name != rest)
        self._needs_text = rest is not None or any(map(keeps_json_text, columns))

    def decode(self, value: bytes) -> list[Any]:
        """Return one Python value per column; raises MismatchError.

        Times are microseconds, dates days, UUIDs bytes; a struct is a dict, a list a list, a map a list of pairs.
        """
        parsed = parsed_object(value, with_text=self._needs_text)
        self._elements.left = ELEMENTS_MAX
        return [self._rest(parsed) if part is None else part.read(parsed) for part in self._columns]

    def _rest(self, parsed: JsonObject) -> str:
        self._elements.take(sum(name not in self._known for name, _ in parsed.pairs))
        return rest_text(parsed, self._known)


class _Elements:
    """The number of elements and entries that may still be read of the record."""

    def __init__(self) -> None:
        self.left = ELEMENTS_MAX

    def take(self, count: int) -> None:
        """Count elements; raises MismatchError if the record has too many."""
        self.left -= count
        if self.left < 0:
            raise MismatchError("size", f"the record has more than {ELEMENTS_MAX} elements")


class _Part:
    """A column, or a part of a nested one: how its value is found in an object, and how it is converted.

    `place` is the place of a part as a dead letter names it; elements and entries are `[]`, without their position.
    """

    def __init__(self, column: Column, elements: _Elements, place: str | None = None) -> None:
        self._path = column.path
        name = column.path[0]
        self._only = name if len(column.path) == 1 and isinstance(name, str) else None
        self._required = column.required
        self.place = _name(path_text(column.path)) if place is None else place
        self.convert = _converter(column, self.place, elements)

    def read(self, parsed: JsonObject) -> Any:
        """Return the part's value in the object that its path begins in; raises MismatchError."""
        # Most paths are the name of one field, which the object usually has once.
        if self._only is not None and len(given := parsed.given(self._only)) == 1:
            inner, is_there = given[0], True
        else:
            inner, is_there = self._found(parsed)
        if inner is None:
            self.require_value("null" if is_there else "missing")
            return None
        return self.convert(inner)

    def require_value(self, why: str) -> None:
        """Raise MismatchError if null is not allowed."""
        if self._required:
            raise MismatchError(why, f"required and {why}", field=self.place)

    def _found(self, parsed: Any) -> tuple[Any, bool]:
        """Return the value at the path, and if it is there."""
        inner = parsed
        for number, step in enumerate(self._path):
            if inner is None:
                return None, False
            if isinstance(step, int):
                if not isinstance(inner, list):
                    raise self._other(inner, number, "is not an array")
                if step >= len(inner):
                    return None, False
                inner = inner[step]
                continue
            if not isinstance(inner, JsonObject):
                raise self._other(inner, number, "is not an object")
            given = inner.given(step)
            if len(given) > 1:
                raise MismatchError("duplicate", "occurs twice", field=self._upto(number + 1))
            if not given:
                return None, False
            inner = given[0]
        return inner, True

    def _other(self, value: Any, number: int, why: str) -> MismatchError:
        return MismatchError("type", f"{shown(value)} {why}", field=self._upto(number))

    def _upto(self, number: int) -> str:
        above = self.place[: len(self.place) - len(path_text(self._path))]
        return _name(above + path_text(self._path[:number]))


def _converter(column: Column, place: str, elements: _Elements) -> Callable[[Any], Any]:
    """Return the rule of a column: it converts a parsed JSON value, or raises MismatchError."""
    if column.type == STRUCT:
        return _Struct(column, place, elements).read
    if column.type == LIST:
        return _List(column, place, elements).read
    if column.type == MAP:
        return _Map(column, place, elements).read
    return _Rule(column, place).choose()


def converter(column: Column) -> Callable[[Any], Any]:
    """Return the rule of a column: it converts a parsed JSON value, or raises MismatchError."""
    return _converter(column, _name(column.field), _Elements())


def text_converter(column: Column, place: str) -> Callable[[Any], Any]:
    """Return the rule of a primitive column for formats whose values are all texts: numbers are in strings, too."""
    return _Rule(column, place, is_key=True).choose()


class _Struct:
    def __init__(self, column: Column, place: str, elements: _Elements) -> None:
        self._place = place
        self._parts = tuple(
            (p.name, _Part(p, elements, f"{place}.{p.field}")) for p in column.fields
        )

    def read(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, JsonObject):
            raise MismatchError("type", f"{shown(value)} is not an object", field=self._place)
        return {name: part.read(value) for name, part in self._parts}


class _List:
    def __init__(self, column: Column, place: str, elements: _Elements) -> None:
        self._place = place
        self._elements = elements
        self._element = _Part(column.fields[0], elements, f"{place}[]")

    def read(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MismatchError("type", f"{shown(value)} is not an array", field=self._place)
        self._elements.take(len(value))
        return [_inside(self._element, element) for element in value]


class _Map:
    def __init__(self, column: Column, place: str, elements: _Elements) -> None:
        self._place = place
        self._elements = elements
        key, value = column.fields
        self._key = _Rule(key, place, is_key=True).choose()
        self._value = _Part(value, elements, f"{place}[]")

    def read(self, value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, JsonObject):
            raise MismatchError("type", f"{shown(value)} is not an object", field=self._place)
        self._elements.take(len(value.pairs))
        pairs = [(self._key(name), _inside(self._value, inner)) for name, inner in value.pairs]
        if len({key for key, _ in pairs}) != len(pairs):
            raise MismatchError("duplicate", "a key occurs twice", field=self._place)
        return pairs


def _inside(part: _Part, value: Any) -> Any:
    if value is None:
        part.require_value("null")
        return None
    return part.convert(value)


def _name(field: str) -> str:
    return shorten(field, 80)


def _nearest_float(literal: str, near: float) -> float:
    """Return the float nearest to a number, or infinity beyond the largest float; `near` is the nearest double.

    If `near` is halfway between two floats and the number is not, rounding twice can give the wrong float. So a double
    that is inexact and even is first moved to the next double towards the number: rounding to odd keeps the information
    that the second rounding needs (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    if near == 0 or math.isinf(near):
        return near
    exact, found = Decimal(literal), Decimal(near)
    if exact != found and not struct.unpack("<Q", struct.pack("<d", near))[0] & 1:
        near = math.nextafter(near, math.inf if exact > found else -math.inf)
    try:
        # struct raises OverflowError beyond the largest float, and rounds as C does, like numpy and Arrow.
        return float(struct.unpack("<f", struct.pack("<f", near))[0])
    except OverflowError:
        return math.inf


class _Rule:
    """The rule that converts a parsed JSON value to a column's value, or raises MismatchError with the reason."""

    def __init__(self, column: Column, place: str, *, is_key: bool = False) -> None:
        self._column = column
        self._name = place
        self._is_key = is_key
        self._kind = column.type
        self._article = "an" if _AN.match(column.type) else "a"
        self._is_not = f"is not {self._article} {self._kind}"
        self._decimal = decimal_size(column.type)

    def choose(self) -> Callable[[Any], Any]:
        """Return the method for the column's type."""
        if self._decimal:
            return self.decimal
        if self._column.parse == JSON_TEXT:
            return self.json_text
        simple = {
            "boolean": self.boolean,
            "string": self.string,
            "binary": self.binary,
            "uuid": self.uuid,
            "time": self.time_of_day,
            "int": self.integer,
            "long": self.integer,
            "float": self.rounded,
            "double": self.rounded,
        }
        if fixed_bytes(self._kind):
            return self.binary
        return simple.get(self._kind, self.time)

    def refuse(self, why: str, value: Any, detail: str | None = None) -> MismatchError:
        """Build the error; its reason has the kind, the field, the value and the problem."""
        return MismatchError(why, f"{shown(value)} {detail or self._is_not}", field=self._name)

    def number(self, value: Any) -> JsonNumber:
        """Return a JSON number as text; refuse any other value. A map's key is a string with the syntax of a number."""
        if self._is_key and isinstance(value, str) and _NUMBER.fullmatch(value):
            return JsonNumber(value)
        if not isinstance(value, JsonNumber):
            raise self.refuse("type", value)
        return value

    def text(self, value: Any) -> str:
        """Return a JSON string; refuse any other value."""
        if not isinstance(value, str) or isinstance(value, JsonNumber):
            raise self.refuse("type", value)
        return value

    def boolean(self, value: Any) -> bool:
        """Return true or false; refuse any other value. A map's key is a string."""
        if self._is_key and value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.refuse("type", value)
        return value

    def string(self, value: Any) -> str:
        """Return any text that UTF-8 can encode, including U+0000."""
        found = self.text(value)
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise MismatchError("unicode", "half of a surrogate pair", field=self._name) from error
        return found

    def binary(self, value: Any) -> bytes:
        """Decode base64 that has its padding, no other characters, and only zero pad bits (RFC 4648, 3.5 and 4)."""
        found = self.text(value)
        try:
            literal = found.encode("ascii")
            content = binascii.a2b_base64(literal, strict_mode=True)
        except ValueError as error:
            raise self.refuse("type", value, "is not base64") from error
        if binascii.b2a_base64(content, newline=False) != literal:
            raise self.refuse("type", value, "is not base64")
        length = fixed_bytes(self._kind)
        if length is not None and len(content) != length:
            raise self.refuse("range", value, f"has {len(content)} bytes, not {length}")
        return content

    def uuid(self, value: Any) -> bytes:
        """Return the 16 bytes of 8-4-4-4-12 hexadecimal digits in either case (RFC 9562, section 4)."""
        found = self.text(value)
        if not _UUID.fullmatch(found):
            raise self.refuse("type", value)
        return bytes.fromhex(found.replace("-", ""))

    def time_of_day(self, value: Any) -> int:
        """Return microseconds since midnight of `HH:MM[:SS[.ffffff]]`."""
        found = _TIME_OF_DAY.fullmatch(self.text(value))
        if not found:
            raise self.refuse("time", value, "is not a time of day like 05:15:00")
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        if hour > 23 or minute > 59 or second > 59:
            raise self.refuse("time", value, "has an invalid time of day")
        fraction = (found[4] or "").ljust(9, "0")
        if fraction[6:] != "000":
            raise self.refuse("inexact", value, "is finer than a microsecond")
        return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6])

    def json_text(self, value: Any) -> str:
        """Return the value as it is written in the record."""
        return text_of(value)

    def integer(self, value: Any) -> int:
        """Return a whole number that fits the type."""
        literal = self.number(value)
        # Most integers are written without a fraction and an exponent, and short.
        is_plain = len(literal) < 20 and literal.lstrip("-").isdecimal()
        whole = int(literal) if is_plain else self._scaled(literal, 0)
        if not -(1 << INT_BITS[self._kind] - 1) <= whole < 1 << INT_BITS[self._kind] - 1:
            raise self.refuse("range", value, f"does not fit {self._article} {self._kind}")
        return whole

    def decimal(self, value: Any) -> Decimal:
        """Return a number, or a string in the syntax of a JSON number, as a decimal; never convert through a double."""
        precision, scale = self._decimal or (0, 0)
        literal = value if isinstance(value, JsonNumber) else JsonNumber(self.text(value))
        if not _NUMBER.fullmatch(literal):
            raise self.refuse("type", value)
        unscaled = self._scaled(literal, scale)
        if abs(unscaled) >= 10**precision:
            raise self.refuse("range", value, f"does not fit a {self._kind}")
        sign, digits, _ = Decimal(unscaled).as_tuple()
        return Decimal((sign, digits, -scale))

    def rounded(self, value: Any) -> float:
        """Return the double or float that is nearest to the number; refuse a number beyond the largest one."""
        literal = self.number(value)
        found = float(literal)
        if self._kind == "float":
            found = _nearest_float(literal, found)
        if math.isinf(found):
            raise self.refuse("range", value, f"does not fit a {self._kind}")
        return found

    def time(self, value: Any) -> int:
        """Return days or microseconds since 1970, by the column's parse rule."""
        numbers = instants.takes_numbers(self._column)
        literal = self.number(value) if numbers else self.text(value)
        try:
            return instants.parser(self._column)(str(literal))
        except instants.NoInstantError as error:
            raise self.refuse(error.kind, value, str(error)) from error

    def _scaled(self, literal: str, scale: int) -> int:
        """Return the number times 10**scale; refuse it if that is not whole. It may still be out of the type's range."""
        value = JsonNumber(literal)
        if len(literal) > NUMBER_CHARS_MAX:
            raise self.refuse("range", value, f"has {len(literal)} characters")
        try:
            sign, digits, exponent = Decimal(literal).as_tuple()
        except InvalidOperation as error:  # the exponent is beyond the limits of the decimal module
            raise self.refuse("range", value, "has an exponent out of range") from error
        unscaled, shift = int("".join(map(str, digits))), int(exponent) + scale
        if unscaled == 0:
            return 0
        if shift > 80:
            raise self.refuse("range", value, "is out of range")
        if shift >= 0:
            return (-unscaled if sign else unscaled) * int(10**shift)
        power = int(10 ** min(-shift, len(digits)))
        if -shift > len(digits) or unscaled % power:
            what = f"has more than {scale} decimals" if scale else "is not a whole number"
            raise self.refuse("inexact", value, what)
        return (-unscaled if sign else unscaled) // power
