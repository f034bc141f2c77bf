"""Strict canonical JSON: one value has one spelling, and whatever does not parse exactly is refused.

Bytes on S3 are an API. Encoding is deterministic (sorted keys, no spaces, UTF-8, no floats); decoding refuses
duplicate keys, floats, NaN, integers beyond 64 bits, deep nesting, unknown or missing fields and unknown formats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tallystick.errors import Corrupt

T = TypeVar("T")
INT_MAX = 2**63 - 1
DEPTH_MAX = 64
BODY_BYTES_MAX = 64 << 20


def encode(value: Mapping[str, Any]) -> bytes:
    """Return the one spelling of `value`; raises TypeError on what canonical JSON cannot hold (floats, bytes)."""
    _refuse_inexact(value)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _refuse_inexact(value: Any) -> None:
    # A dict is all that json takes, while the check for any Mapping is slow. Most values are texts: no call for them.
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is no JSON key")
            if type(inner) is not str:
                _refuse_inexact(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            if type(inner) is not str:
                _refuse_inexact(inner)
    elif isinstance(value, float):
        raise TypeError(f"{value!r} is a float: canonical JSON holds exact values only")
    elif isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX:
        raise TypeError(f"{value} does not fit 64 bits")


def corrupt(where: str, why: str) -> Corrupt:
    """Build the one error for an object that is not what it claims to be."""
    return Corrupt(
        f"{where}: {why}.",
        next_step="nothing was changed. Find out who wrote this object; restore it from a bucket version if there is "
        "one, or run a tallystick that knows this format.",
    )


def decode(body: bytes, *, where: str, format_name: str, later: Sequence[str] = ()) -> Fields:
    """Parse an object whose `format` is exactly `format_name`, or one of `later`; raises Corrupt naming `where`."""
    if len(body) > BODY_BYTES_MAX:
        raise corrupt(where, f"{len(body)} bytes are more than the {BODY_BYTES_MAX} allowed")
    if _depth_exceeds(body):
        raise corrupt(where, f"nested deeper than {DEPTH_MAX}")
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_float=_no_float,
            parse_constant=_no_float,
            parse_int=_int64,
        )
        spelling = encode(value) if isinstance(value, dict) else b""
    except (ValueError, RecursionError) as error:
        raise corrupt(where, f"not canonical JSON ({error})") from error
    if not isinstance(value, dict):
        raise corrupt(where, "not a JSON object")
    found = value.get("format")
    if found != format_name and found not in later:
        newer = isinstance(found, str) and found.rsplit("/", 1)[0] == format_name.rsplit("/", 1)[0]
        hint = " (written by another version of tallystick)" if newer else ""
        raise corrupt(where, f"format is {found!r}{hint}, this version reads {format_name!r}")
    if spelling != body:
        raise corrupt(where, "not canonical JSON (the same values have another spelling)")
    fields = Fields(value, where)
    fields.format_name = fields.take("format", str)
    return fields


def _depth_exceeds(body: bytes) -> bool:
    depth = 0
    in_string = escaped = False
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX:
        return False
    for byte in body:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"key {key!r} stands twice")
        out[key] = value
    return out


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is not exact")


def _int64(text: str) -> int:
    value = int(text) if len(text) < 21 else INT_MAX + 1
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueError(f"{text[:40]} does not fit 64 bits")
    return value


class Fields:
    """Takes the fields of one JSON object one by one; what is missing, extra or of another type is refused."""

    def __init__(self, value: Mapping[str, Any], where: str) -> None:
        self._left = dict(value)
        self.where = where
        self.format_name = ""

    def take(self, name: str, kind: type[T]) -> T:
        """Return field `name`, which must be a `kind` (bool is no int)."""
        if name not in self._left:
            raise corrupt(self.where, f"field {name!r} is missing")
        value = self._left.pop(name)
        return self._typed(name, value, kind)

    def take_or_none(self, name: str, kind: type[T]) -> T | None:
        """Return field `name`, which must be a `kind` or null; the field itself must be there."""
        if name in self._left and self._left[name] is None:
            del self._left[name]
            return None
        return self.take(name, kind)

    def take_list(self, name: str, parse: Callable[[Any, str], T]) -> tuple[T, ...]:
        """Return field `name`, a list whose items go through `parse(item, where)`."""
        items = self.take(name, list)
        return tuple(parse(item, f"{self.where}.{name}[{i}]") for i, item in enumerate(items))

    def take_map(self, name: str, parse: Callable[[Any, str], T]) -> dict[str, T]:
        """Return field `name`, an object whose values go through `parse(value, where)`."""
        items = self.take(name, dict)
        return {key: parse(item, f"{self.where}.{name}[{key!r}]") for key, item in items.items()}

    def take_fields(self, name: str) -> Fields:
        """Return field `name`, an object, to be taken apart in turn."""
        return Fields(self.take(name, dict), f"{self.where}.{name}")

    def take_fields_or_none(self, name: str) -> Fields | None:
        """Return field `name`, an object or null."""
        value = self.take_or_none(name, dict)
        return None if value is None else Fields(value, f"{self.where}.{name}")

    def done(self) -> None:
        """Refuse what was not taken: a field that this version does not know may change what the rest means."""
        if self._left:
            raise corrupt(self.where, f"unknown field {sorted(self._left)[0]!r}")

    def _typed(self, name: str, value: Any, kind: type[T]) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise corrupt(self.where, f"field {name!r} is {_kind(value)}, not {_kind(kind())}")
        return value


def fields(value: Any, where: str) -> Fields:
    """Treat `value` as an object's fields; raises Corrupt where it is none."""
    if not isinstance(value, dict):
        raise corrupt(where, f"{_kind(value)} where an object belongs")
    return Fields(value, where)


def integer(value: Any, where: str) -> int:
    """Treat `value` as an integer; raises Corrupt where it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise corrupt(where, f"{_kind(value)} where an integer belongs")
    return value


def text(value: Any, where: str) -> str:
    """Treat `value` as a string; raises Corrupt where it is none."""
    if not isinstance(value, str):
        raise corrupt(where, f"{_kind(value)} where a string belongs")
    return value


def integers(value: Any, where: str, *, count: int) -> tuple[int, ...]:
    """Treat `value` as a list of exactly `count` integers; raises Corrupt where it is none."""
    if not isinstance(value, list) or len(value) != count:
        raise corrupt(where, f"a list of {count} integers belongs here")
    return tuple(integer(item, where) for item in value)


def built(where: str, build: Callable[[], T]) -> T:
    """Run a constructor whose own check raises ValueError, and say where it failed."""
    try:
        return build()
    except ValueError as error:
        raise corrupt(where, str(error)) from error


def _kind(value: Any) -> str:
    names: Sequence[tuple[type, str]] = (
        (bool, "a boolean"),
        (int, "an integer"),
        (str, "a string"),
        (list, "a list"),
        (dict, "an object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "null")
