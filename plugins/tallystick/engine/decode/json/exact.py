"""Decodes one JSON value into the declared columns by exact rules: slow, and the only source of reasons.

The kernels of `scan` and `read` decode whole batches, but only the values that they can prove. All other values are
decoded here, so these rules alone determine if a value becomes a row or a dead letter. The kinds of reasons are:

    tombstone  the value is null                    size       the value is larger than VALUE_BYTES_MAX
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
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from tallystick.engine.decode.decoder import Reason, shorten
from tallystick.engine.decode.json import instants
from tallystick.pipeline import Column
from tallystick.tables.schema import decimal_size

VALUE_BYTES_MAX = 16 << 20
DEPTH_MAX = 64
EXCERPT_CHARS_MAX = 40
NUMBER_CHARS_MAX = 400
INT_BITS = {"int": 32, "long": 64}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_AN = re.compile(r"[aeiou]")


class MismatchError(ValueError):
    """A value that becomes a dead letter, with its reason."""

    def __init__(self, kind: str, detail: str, *, field: str | None = None) -> None:
        self.reason = Reason(kind=kind, detail=detail, field=field)
        super().__init__(str(self.reason))


class _Number(str):
    """A number as text: it is not rounded before the column's type is known."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _JsonObject:
    pairs: list[tuple[str, Any]]


def _no_constant(text: str) -> Any:
    message = f"{text} is not JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_JsonObject,
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_no_constant,
)


class ExactRow:
    """A decoder of one value at a time into the declared columns, in their order."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._fields = frozenset(c.field for c in columns)
        self._columns = tuple((c.field, c.required, _Rule(c).choose()) for c in columns)

    def decode(self, value: bytes) -> list[Any]:
        """Return one Python value per column (times as microseconds, dates as days); raises MismatchError."""
        found: dict[str, Any] = {}
        twice: set[str] = set()
        for name, inner in _parse(value).pairs:
            if name in self._fields:
                if name in found:
                    twice.add(name)
                found[name] = inner
        row: list[Any] = []
        for name, required, convert in self._columns:
            if name in twice:
                raise MismatchError("duplicate", "occurs twice", field=_name(name))
            inner = found.get(name)
            if inner is None:
                if required:
                    kind = "null" if name in found else "missing"
                    raise MismatchError(kind, f"required and {kind}", field=_name(name))
                row.append(None)
            else:
                row.append(convert(inner))
        return row

    def converter(self, index: int) -> Callable[[Any], Any]:
        """Return the rule of one column: it converts a parsed JSON value, or raises MismatchError."""
        return self._columns[index][2]


def _name(field: str) -> str:
    return shorten(field, 80)


def _parse(value: bytes) -> _JsonObject:
    if len(value) > VALUE_BYTES_MAX:
        raise MismatchError(
            "size", f"the value has {len(value)} bytes, more than {VALUE_BYTES_MAX}"
        )
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise MismatchError("utf8", f"byte {error.start} is not UTF-8") from error
    if _too_deep(value):
        raise MismatchError("depth", f"nested deeper than {DEPTH_MAX}")
    try:
        parsed = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise MismatchError("json", f"{error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise MismatchError("json", str(error)) from error
    if not isinstance(parsed, _JsonObject):
        raise MismatchError("object", f"expected an object, found {_shown(parsed)}")
    return parsed


def _too_deep(value: bytes) -> bool:
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Number):
        return shorten(value, EXCERPT_CHARS_MAX)
    if isinstance(value, str):
        return json.dumps(shorten(value, EXCERPT_CHARS_MAX))
    return "an object" if isinstance(value, _JsonObject) else "an array"


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

    def __init__(self, column: Column) -> None:
        self._column = column
        self._name = _name(column.field)
        self._kind = column.type
        self._article = "an" if _AN.match(column.type) else "a"
        self._decimal = decimal_size(column.type)

    def choose(self) -> Callable[[Any], Any]:
        """Return the method for the column's type."""
        if self._decimal:
            return self.decimal
        simple = {
            "boolean": self.boolean,
            "string": self.string,
            "binary": self.binary,
            "int": self.integer,
            "long": self.integer,
            "float": self.rounded,
            "double": self.rounded,
        }
        return simple.get(self._kind, self.time)

    def refuse(self, why: str, value: Any, detail: str | None = None) -> MismatchError:
        """Build the error; its reason has the kind, the field, the value and the problem."""
        wrong = detail or f"is not {self._article} {self._kind}"
        return MismatchError(why, f"{_shown(value)} {wrong}", field=self._name)

    def number(self, value: Any) -> _Number:
        """Return a JSON number as text; refuse any other value."""
        if not isinstance(value, _Number):
            raise self.refuse("type", value)
        return value

    def text(self, value: Any) -> str:
        """Return a JSON string; refuse any other value."""
        if not isinstance(value, str) or isinstance(value, _Number):
            raise self.refuse("type", value)
        return value

    def boolean(self, value: Any) -> bool:
        """Return true or false; refuse any other value."""
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
        return content

    def integer(self, value: Any) -> int:
        """Return a whole number that fits the type."""
        whole = self._scaled(self.number(value), 0)
        if not -(1 << INT_BITS[self._kind] - 1) <= whole < 1 << INT_BITS[self._kind] - 1:
            raise self.refuse("range", value, f"does not fit {self._article} {self._kind}")
        return whole

    def decimal(self, value: Any) -> Decimal:
        """Return a number, or a string in the syntax of a JSON number, as a decimal; never convert through a double."""
        precision, scale = self._decimal or (0, 0)
        literal = value if isinstance(value, _Number) else _Number(self.text(value))
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
        value = _Number(literal)
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
