"""Column types as text: Iceberg's primitive types, and struct, list and map of types at any depth.

    type      primitive | decimal(precision,scale) | fixed[length]
            | list<[optional] type> | map<type, [optional] type> | struct<name: [optional] type, ...>

A type has one canonical text. `struct` without fields is a struct whose fields are declared apart. In a tree of
types, a list has one field named `element`, and a map has the fields `key` and `value` (Iceberg spec, Nested Types).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PRIMITIVES = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "string",
        "uuid",
        "binary",
    }
)
STRUCT, LIST, MAP = "struct", "list", "map"
NESTED = frozenset({STRUCT, LIST, MAP})
ELEMENT, KEY, VALUE = "element", "key", "value"
NESTING_MAX = 32
"""The most levels of nesting of a type, so that no reader of it exhausts its stack."""
FIXED_BYTES_MAX = 1 << 20
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_FIXED = re.compile(r"fixed\[(\d{1,7})\]")
_TOKEN = re.compile(r"\s*(decimal\s*\([^()<>]*\)|fixed\s*\[[^\[\]]*\]|[^\s<>,:()\[\]]+|[<>,:])")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeField:
    """A named type in a tree of types; null is allowed unless it is `required`."""

    name: str
    type: str
    required: bool = True
    fields: tuple[TypeField, ...] = ()


class Typed(Protocol):
    """A named type in any tree of types: a declared column, a column of a table, or a part of one."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def required(self) -> bool: ...
    @property
    def fields(self) -> Sequence[Typed]: ...


def primitive_type(name: str) -> str:
    """Return the canonical text of a primitive type (Iceberg spec, Primitive Types); raises ValueError for any other."""
    name = "".join(name.split())
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return f"decimal({precision},{scale})"
    if (fixed := _FIXED.fullmatch(name)) and 1 <= int(fixed[1]) <= FIXED_BYTES_MAX:
        return f"fixed[{int(fixed[1])}]"
    if name not in PRIMITIVES:
        allowed = ", ".join(sorted(PRIMITIVES))
        raise ValueError(
            f"column type: expected one of {allowed}, decimal(precision,scale), fixed[length], list<type>, "
            f"map<type, type>, struct<name: type, ...>, found {name!r}"
        )
    return name


def fixed_bytes(kind: str) -> int | None:
    """Return the length of a fixed type; None for any other type."""
    found = _FIXED.fullmatch(kind)
    return int(found[1]) if found else None


def decimal_size(kind: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type; None for any other type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def parse_type(text: str, *, name: str = "", required: bool = True) -> TypeField:
    """Return the tree of a type's text; raises ValueError with the place that is not understood."""
    parser = _TypeParser(text)
    found = parser.type(name, required, depth=0)
    parser.end()
    return found


def type_text(column: Typed) -> str:
    """Return the canonical text of a column's type, for messages and for comparison, e.g. `struct<os: string>`."""
    inner = [("" if f.required else "optional ") + type_text(f) for f in column.fields]
    if column.type == STRUCT and column.fields:
        return f"struct<{', '.join(f'{f.name}: {t}' for f, t in zip(column.fields, inner, strict=True))}>"
    return f"{column.type}<{', '.join(inner)}>" if inner else column.type


class _TypeParser:
    """A reader of one type's text by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"column type: expected a type, found {text[at:].strip()[:40]!r}")
            self._tokens.append(found[1])
            at = found.end()
        self._at = 0

    def type(self, name: str, required: bool, *, depth: int) -> TypeField:
        if depth > NESTING_MAX:
            raise ValueError(
                f"column type: expected at most {NESTING_MAX} levels of nesting, found more"
            )
        word = self._next("a type")
        fields: tuple[TypeField, ...] = ()
        if word == LIST:
            self._take("<", word)
            fields = (self._inner(ELEMENT, depth),)
            self._take(">", word)
        elif word == MAP:
            self._take("<", word)
            key = self.type(KEY, True, depth=depth + 1)
            self._take(",", word)
            fields = (key, self._inner(VALUE, depth))
            self._take(">", word)
        elif word == STRUCT:
            fields = self._fields(depth)
        else:
            word = primitive_type(word)
        return TypeField(name=name, type=word, required=required, fields=fields)

    def end(self) -> None:
        if self._at < len(self._tokens):
            rest = " ".join(self._tokens[self._at :])
            raise ValueError(f"column type: expected the end of {self._text!r}, found {rest!r}")

    def _fields(self, depth: int) -> tuple[TypeField, ...]:
        if self._peek() != "<":
            return ()
        found: list[TypeField] = []
        self._take("<", STRUCT)
        while True:
            name = self._next("the name of a field")
            self._take(":", f"field {name}")
            found.append(self._inner(name, depth))
            if self._peek() != ",":
                self._take(">", STRUCT)
                return tuple(found)
            self._take(",", STRUCT)

    def _inner(self, name: str, depth: int) -> TypeField:
        required = True
        if self._peek() in ("optional", "required"):
            required = self._next("optional or required") == "required"
        return self.type(name, required, depth=depth + 1)

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self, what: str) -> str:
        found = self._peek()
        if found is None:
            raise ValueError(f"column type: expected {what} at the end of {self._text!r}")
        self._at += 1
        return found

    def _take(self, token: str, after: str) -> None:
        found = self._peek()
        if found != token:
            shown = "the end" if found is None else repr(found)
            raise ValueError(
                f"column type: expected {token!r} in {after} of {self._text!r}, found {shown}"
            )
        self._at += 1
