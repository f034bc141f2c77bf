"""Encodes and decodes stored values by the type hints of their dataclasses.

    type hint                     JSON
    int, str, bool                the same; a boolean is not an integer
    Literal["a", "b"]             one of these strings
    datetime                      an instant like "2013-01-01T05:00:00.000Z"
    timedelta                     whole milliseconds
    T | None                      null or T; the field itself is not left out
    tuple[T, ...], Sequence[T]    a list
    Mapping[str, T]               an object; the values of Mapping[str, Any] are not validated
    a StoredValue                 an object with exactly its fields, or a list of them if it is AS_LIST
    NewType("N", T)               as T

A field is left out only if it is OMITTED and has its default. Decoding is strict: if another field is missing, if one is
unknown or has the wrong type, or if the class refuses a value, decoding raises Corrupt with the path of the field. A new
stored value is a dataclass; it needs no code here.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from tallystick.errors import InvalidPipeline
from tallystick.format import canonical, keys

NOT_STORED = {"stored": False}
"""The metadata of a dataclass field that is not part of the stored form; such a field has a default."""
OMITTED = {"omitted": True}
"""The metadata of a dataclass field that is left out if it has its default, and only then.

For a field that a format gets later: objects without it keep their bytes, and each value still has one stored form.
"""
_MS = timedelta(milliseconds=1)
_Convert = Callable[[Any], Any]


class StoredValue:
    """A value inside a stored object. Subclasses are frozen dataclasses with keyword-only fields.

    AS_LIST: the stored form is a list of the fields in their order, for values that an object contains by the thousand.
    """

    __slots__ = ()
    AS_LIST: ClassVar[bool] = False

    def to_json(self) -> Any:
        """Return the stored form."""
        return _coder_of(type(self)).write(self)

    @classmethod
    def from_json(cls, value: Any, where: str) -> Self:
        """Read the stored form; raises Corrupt with the object's name and the path of the field."""
        try:
            read: Self = _coder_of(cls).read(value)
        except _RefusedError as refused:
            raise canonical.corrupt(f"{where}{refused.path}", refused.why) from refused
        return read

    def to_text(self) -> str:
        """Return the stored form as text, to pass the value between processes."""
        return canonical.dumps({"value": self.to_json()}).decode()

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """Read the text that `to_text` returned; raises Corrupt with the value's name and the path of the field."""
        try:
            value = json.loads(text)["value"]
        except (ValueError, KeyError, TypeError) as error:
            raise canonical.corrupt(
                where, f"expected the text of a stored value ({error!r})"
            ) from error
        return cls.from_json(value, where)


class StoredObject(StoredValue):
    """A value that is one object on S3: canonical bytes that name their format and its version."""

    __slots__ = ()
    FORMAT: ClassVar[str]

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return canonical.dumps({"format": self.FORMAT, **self.to_json()})

    @classmethod
    def decode(cls, body: bytes, *, where: str) -> Self:
        """Read an object's bytes; raises Corrupt with the object's name and the path of the field."""
        return cls.from_json(canonical.loads(body, where=where, format_name=cls.FORMAT), where)


class _RefusedError(Exception):
    """The error for a value that does not match its hint; each enclosing value prepends its step to `path`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""

    def inside(self, step: str) -> _RefusedError:
        self.path = f"{step}{self.path}"
        return self


class _Coder:
    """Converts one type of value in both directions; `plain` if the value is its own stored form."""

    __slots__ = ("plain", "read", "write")

    def __init__(self, write: _Convert, read: _Convert, *, plain: bool = False) -> None:
        self.write = write
        self.read = read
        self.plain = plain


def _coder_of(cls: Any) -> _Coder:
    return _coder(cls)


@cache
def _coder(hint: Hashable) -> _Coder:
    """Return the coder for a type hint; raises TypeError if the table in the module docstring has no row for it."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, StoredValue):
        return _list_coder(hint) if hint.AS_LIST else _object_coder(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hasattr(hint, "__supertype__"):
        return _coder(hint.__supertype__)
    if origin is Literal:
        return _literal_coder(inner)
    if origin in (Union, types.UnionType):
        return _union_coder(inner)
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return _sequence_coder(_coder(inner[0]))
    if origin is Sequence:
        return _sequence_coder(_coder(inner[0]))
    if origin is Mapping and inner[0] is str:
        return _mapping_coder(None if inner[1] is Any else _coder(inner[1]))
    raise TypeError(f"{hint!r}: no stored form is defined")


def _same(value: Any) -> Any:
    return value


def _scalar(kind: type) -> _Coder:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _RefusedError(f"expected {_named(kind)}, found {kind_of(value)}")
        return value

    return _Coder(_same, read, plain=True)


def _instant_coder() -> _Coder:
    def read(value: Any) -> datetime:
        try:
            return keys.parse_instant(_SCALARS[str].read(value))
        except ValueError as error:
            raise _RefusedError(str(error)) from error

    return _Coder(keys.instant, read)


def _duration_coder() -> _Coder:
    return _Coder(lambda value: value // _MS, lambda value: _SCALARS[int].read(value) * _MS)


def _literal_coder(allowed: tuple[Any, ...]) -> _Coder:
    def read(value: Any) -> Any:
        if type(value) is not str or value not in allowed:
            found = repr(value[:80]) if type(value) is str else kind_of(value)
            raise _RefusedError(f"expected one of {', '.join(allowed)}, found {found}")
        return value

    return _Coder(_same, read, plain=True)


def _union_coder(members: tuple[Any, ...]) -> _Coder:
    """Return the coder of `T | None`, or of a union of plain types, which JSON distinguishes as Python does."""
    kinds = [member for member in members if member is not types.NoneType]
    if len(kinds) == 1 and len(members) == 2:
        inner = _coder(kinds[0])
        return _Coder(
            lambda value: None if value is None else inner.write(value),
            lambda value: None if value is None else inner.read(value),
            plain=inner.plain,
        )
    if any(member not in (int, str, bool, types.NoneType) for member in members):
        raise TypeError(f"the union of {members} has no stored form")
    names = " or ".join(_named(member) for member in members)

    def read(value: Any) -> Any:
        if type(value) not in members:
            raise _RefusedError(f"expected {names}, found {kind_of(value)}")
        return value

    return _Coder(_same, read, plain=True)


def _sequence_coder(item: _Coder) -> _Coder:
    def write(value: Sequence[Any]) -> list[Any]:
        return list(value) if item.plain else [item.write(one) for one in value]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _RefusedError(f"expected a list, found {kind_of(value)}")
        out: list[Any] = []
        try:
            for one in value:
                out.append(item.read(one))
        except _RefusedError as refused:
            raise refused.inside(f"[{len(out)}]") from None
        return tuple(out)

    return _Coder(write, read)


def _mapping_coder(item: _Coder | None) -> _Coder:
    def write(value: Mapping[str, Any]) -> dict[str, Any]:
        if item is None or item.plain:
            return dict(value)
        return {key: item.write(one) for key, one in value.items()}

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _RefusedError(f"expected an object, found {kind_of(value)}")
        if item is None:
            return value
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, one in value.items():
                out[key] = item.read(one)
        except _RefusedError as refused:
            raise refused.inside(f"[{key!r}]") from None
        return out

    return _Coder(write, read)


def _fields_of(cls: type[StoredValue]) -> list[tuple[str, _Coder]]:
    hints = get_type_hints(cls)
    stored = [one.name for one in fields(cls) if one.metadata.get("stored", True)]  # type: ignore[arg-type]
    return [(name, _coder(hints[name])) for name in stored]


def _omitted(cls: type[StoredValue]) -> dict[str, Any]:
    """Return the defaults of the fields that are left out if they have them."""
    return {
        one.name: one.default
        for one in fields(cls)  # type: ignore[arg-type]
        if one.metadata.get("omitted", False)
    }


def _refuse_defaults(omitted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for name, default in omitted.items():
        if name in found and found[name] == default:
            raise _RefusedError("expected no field with its default, found one").inside(f".{name}")


def _built(cls: type[StoredValue], values: dict[str, Any]) -> StoredValue:
    try:
        return cls(**values)
    except ValueError as error:
        raise _RefusedError(str(error)) from error
    except InvalidPipeline as error:
        raise _RefusedError(error.message.rstrip(".")) from error


def _object_coder(cls: type[StoredValue]) -> _Coder:
    # On first use: a class can have fields of its own type.
    @cache
    def fields_of() -> tuple[list[tuple[str, _Coder]], set[str]]:
        inner = _fields_of(cls)
        return inner, {name for name, _ in inner}

    @cache
    def writers() -> tuple[list[str], list[tuple[str, _Convert]]]:
        inner, _ = fields_of()
        plain = [name for name, coder in inner if coder.plain]
        return plain, [(name, coder.write) for name, coder in inner if not coder.plain]

    omitted = _omitted(cls)

    def write(value: Any) -> dict[str, Any]:
        plain, others = writers()
        out = {name: getattr(value, name) for name in plain}
        for name, convert in others:
            out[name] = convert(getattr(value, name))
        for name, default in omitted.items():
            if getattr(value, name) == default:
                del out[name]
        return out

    def read(value: Any) -> StoredValue:
        inner, names = fields_of()
        if type(value) is not dict:
            raise _RefusedError(f"expected an object, found {kind_of(value)}")
        if value.keys() != names and value.keys() | omitted.keys() != names:
            raise _other_fields(names - omitted.keys(), names, value)
        out: dict[str, Any] = {}
        name = ""
        try:
            for name, coder in inner:
                if name in value:
                    out[name] = coder.read(value[name])
        except _RefusedError as refused:
            raise refused.inside(f".{name}") from None
        _refuse_defaults(omitted, out)
        return _built(cls, out)

    return _Coder(write, read)


def _other_fields(required: set[str], names: set[str], found: Mapping[str, Any]) -> _RefusedError:
    missing, unknown = sorted(required - found.keys()), sorted(found.keys() - names)
    return _RefusedError(
        f"missing field {missing[0]!r}" if missing else f"unknown field {unknown[0]!r}"
    )


def _list_coder(cls: type[StoredValue]) -> _Coder:
    inner = _fields_of(cls)
    names = ", ".join(name for name, _ in inner)

    if len(inner) < 2:
        raise TypeError(f"{cls.__name__}, a list of one value, has no stored form")
    converts = None if all(coder.plain for _, coder in inner) else [c.write for _, c in inner]
    values = attrgetter(*(name for name, _ in inner))

    def write(value: Any) -> list[Any]:
        found = values(value)
        if converts is None:
            return list(found)
        return [convert(one) for convert, one in zip(converts, found, strict=True)]

    def read(value: Any) -> StoredValue:
        if type(value) is not list or len(value) != len(inner):
            found = f"{len(value)} values" if type(value) is list else kind_of(value)
            raise _RefusedError(f"expected a list of {names}, found {found}")
        out: dict[str, Any] = {}
        name = ""
        try:
            for (name, coder), one in zip(inner, value, strict=True):
                out[name] = coder.read(one)
        except _RefusedError as refused:
            raise refused.inside(f".{name}") from None
        return _built(cls, out)

    return _Coder(write, read)


_NAMES: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    str: "a string",
    list: "a list",
    dict: "an object",
    types.NoneType: "null",
}


def _named(kind: type) -> str:
    return _NAMES[kind]


def kind_of(value: Any) -> str:
    """Return the JSON type of a value, with its article."""
    return _NAMES.get(type(value), type(value).__name__)


_SCALARS: dict[Any, _Coder] = {
    int: _scalar(int),
    str: _scalar(str),
    bool: _scalar(bool),
    datetime: _instant_coder(),
    timedelta: _duration_coder(),
}
