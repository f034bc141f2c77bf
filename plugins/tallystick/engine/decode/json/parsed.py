"""JSON values as the exact rules take them: numbers as text, objects with all their pairs, and each value's own text.

Numbers are not rounded before the type of their column is known, and a field that occurs twice is kept twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.engine.decode.decoder import Reason, shorten

VALUE_BYTES_MAX = 16 << 20
DEPTH_MAX = 64
EXCERPT_CHARS_MAX = 40
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_SCAN_STRING = json.decoder.scanstring  # type: ignore[attr-defined]  # typeshed does not have it
_BLANK = re.compile(r"[ \n\r\t]*")


class MismatchError(ValueError):
    """A value that becomes a dead letter, with its reason."""

    def __init__(self, kind: str, detail: str, *, field: str | None = None) -> None:
        self.reason = Reason(kind=kind, detail=detail, field=field)
        # The text of the error is that of the reason, which is built only if it is read.
        super().__init__(self.reason)


class JsonNumber(str):
    """A number as text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a record's text. Nested values refer to one text, which would be copied once per level otherwise."""

    source: str
    begin: int
    end: int

    def __str__(self) -> str:
        return self.source[self.begin : self.end]


@dataclass(slots=True, eq=False)
class JsonObject:
    """An object. `text` and those of its `entries`: only if a column needs them."""

    pairs: list[tuple[str, Any]]
    text: Span | None = None
    entries: tuple[Span, ...] = ()
    _fields: dict[str, Any] | None = field(default=None, init=False, repr=False)

    def given(self, name: str) -> Sequence[Any]:
        """Return the values of the fields with a name: none if there is no such field, several if it is repeated."""
        # Each column searches its field here, so the pairs are not scanned for each of them.
        if self._fields is None:
            self._fields = dict(self.pairs)
        if len(self._fields) == len(self.pairs):
            return (self._fields[name],) if name in self._fields else ()
        return [value for other, value in self.pairs if other == name]


class _JsonArray(list[Any]):
    """An array with its text."""

    __slots__ = ("text",)

    def __init__(self, values: list[Any], text: Span) -> None:
        super().__init__(values)
        self.text = text


class _JsonString(str):
    """A string with its text, in quotes."""

    __slots__ = ("text",)

    text: Span

    def __new__(cls, value: str, text: Span) -> _JsonString:
        made = super().__new__(cls, value)
        made.text = text
        return made


def _no_constant(text: str) -> Any:
    message = f"{text} is not JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(
    object_pairs_hook=JsonObject,
    parse_int=JsonNumber,
    parse_float=JsonNumber,
    parse_constant=_no_constant,
)
# The methods of `_DECODER` take longer: they look for blanks, and for the line of an error where a value is missing.
_SCAN = _DECODER.scan_once  # type: ignore[attr-defined]  # typeshed does not have it


def parsed_object(value: bytes, *, with_text: bool) -> JsonObject:
    """Parse a value that is a JSON object; raises MismatchError. `with_text`: its values keep their text as written."""
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
        parsed, end = _SCAN(text, 0 if text.startswith("{") else _after_blank(text, 0))
    except StopIteration as error:
        raise MismatchError("json", f"Expecting value at character {error.value}") from error
    except json.JSONDecodeError as error:
        raise MismatchError("json", f"{error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise MismatchError("json", str(error)) from error
    if end < len(text) and (end := _after_blank(text, end)) < len(text):
        raise MismatchError("json", f"Extra data at character {end}")
    if not isinstance(parsed, JsonObject):
        raise MismatchError("object", f"expected an object, found {shown(parsed)}")
    if not with_text:
        return parsed
    found: JsonObject = _with_text(text, text.index("{"))[0]
    return found


def _too_deep(value: bytes) -> bool:
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False


def _with_text(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at `at`, with its text, and the position after it. `text` is valid JSON."""
    if text[at] == '"':
        found, end = _SCAN_STRING(text, at + 1)
        return _JsonString(found, Span(text, at, end)), end
    if text[at] not in "[{":
        value, end = _DECODER.raw_decode(text, at)
        return value, end
    closer = "]" if text[at] == "[" else "}"
    names: list[str] = []
    values: list[Any] = []
    entries: list[Span] = []
    end = _after_blank(text, at + 1)
    while text[end] != closer:
        begin = end
        if closer == "}":
            name, after = _SCAN_STRING(text, end + 1)
            names.append(name)
            end = _after_blank(text, _after_blank(text, after) + 1)
        value, end = _with_text(text, end)
        values.append(value)
        entries.append(Span(text, begin, end))
        end = _after_blank(text, end)
        if text[end] == ",":
            end = _after_blank(text, end + 1)
    end += 1
    if closer == "]":
        return _JsonArray(values, Span(text, at, end)), end
    pairs = list(zip(names, values, strict=True))
    return JsonObject(pairs, Span(text, at, end), tuple(entries)), end


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None  # it matches no blank, too
    return found.end()


def text_of(value: Any) -> str:
    """Return a value of an object that was parsed with text as it is written in the record."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value if isinstance(value, JsonNumber) else value.text)


def rest_text(parsed: JsonObject, known: Collection[str | int]) -> str:
    """Return the entries whose names are not in `known`, as they are written, as the text of a JSON object."""
    kept = (
        str(entry)
        for (name, _), entry in zip(parsed.pairs, parsed.entries, strict=True)
        if name not in known
    )
    return "{" + ",".join(kept) + "}"


def shown(value: Any) -> str:
    """Return a value in the form that the detail of a reason has."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        return shorten(value, EXCERPT_CHARS_MAX)
    if isinstance(value, str):
        return json.encoder.encode_basestring_ascii(shorten(value, EXCERPT_CHARS_MAX))
    return "an object" if isinstance(value, JsonObject) else "an array"
