"""Avro schemas as trees of types (Avro 1.12 specification, "Schema Declaration" and "Logical Types").

A logical type that does not fit its type is ignored, as the specification requires. Names are resolved: in a recursive
schema, the tree of a named type contains itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import InvalidPipeline

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
RECORD, ENUM, FIXED, ARRAY, MAP, UNION = "record", "enum", "fixed", "array", "map", "union"
# Limits of one schema, so that no schema makes a program of any size.
TEXT_CHARS_MAX = 4 << 20
DEPTH_MAX = 64
FIELDS_MAX = 10_000
FIXED_BYTES_MAX = 1 << 20
_ON_LONG = ("timestamp", "local-timestamp")
_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "uuid": ("string", FIXED),
    "decimal": ("bytes", FIXED),
    **{f"{name}-{unit}": ("long",) for name in _ON_LONG for unit in ("millis", "micros", "nanos")},
}


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. `name` is the full name of a record, an enum or a fixed.

    `parts`: the fields of a record by name, in order; the branches of a union by the name of their type; the elements of
    an array or the values of a map by an empty name. `logical`: a logical type that fits the type; `precision` and
    `scale`: those of a decimal; `size`: the bytes of a fixed.
    """

    kind: str
    name: str = ""
    parts: list[tuple[str, AvroType]] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def branches(self) -> list[tuple[str, AvroType]]:
        """The branches of a union that are not null."""
        return [(name, part) for name, part in self.parts if part.kind != "null"]


def avro_schema(text: str, references: Iterable[str] = ()) -> AvroType:
    """Return the type that a schema declares; `references` are schemas whose names it uses, in the order of their use.

    Raises InvalidPipeline with the place of the problem.
    """
    known: dict[str, AvroType] = {}
    for reference in references:
        _parsed(reference, known)
    return _parsed(text, known)


def _parsed(text: str, known: dict[str, AvroType]) -> AvroType:
    if len(text) > TEXT_CHARS_MAX:
        raise _invalid(f"expected at most {TEXT_CHARS_MAX} characters, found {len(text)}")
    try:
        declared = json.loads(text)
    except (ValueError, RecursionError):
        # A registry also has primitive schemas, whose text can be a bare name.
        declared = text.strip()
    return _SchemaParser(known).read(declared, "", 0)


def _invalid(problem: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"Avro schema: {problem}.",
        hint="correct the schema: the Avro specification, section Schema Declaration.",
    )


class _SchemaParser:
    def __init__(self, known: dict[str, AvroType]) -> None:
        self._known = known
        self._fields = 0

    def read(self, declared: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise _invalid(f"expected types nested at most {DEPTH_MAX} deep, found more")
        if isinstance(declared, str):
            return self._named(declared, namespace)
        if isinstance(declared, list):
            return self._union(declared, namespace, depth)
        if not isinstance(declared, Mapping) or "type" not in declared:
            raise _invalid(f"expected a type, found {_excerpt(declared)}")
        kind = declared["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace, depth + 1)
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind), declared)
        if kind in (ARRAY, MAP):
            inner = declared.get("items" if kind == ARRAY else "values")
            return AvroType(kind, parts=[("", self.read(inner, namespace, depth + 1))])
        if kind in (RECORD, "error", ENUM, FIXED):
            return self._declared(RECORD if kind == "error" else kind, declared, namespace, depth)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        # A name without dots is in the enclosing namespace; some writers mean the one without a namespace.
        inside = name if "." in name or not namespace else f"{namespace}.{name}"
        if (found := self._known.get(inside, self._known.get(name))) is not None:
            return found
        raise _invalid(
            f"expected the name of a type, found {_excerpt(name)}, which is not declared"
        )

    def _union(self, declared: list[Any], namespace: str, depth: int) -> AvroType:
        found = [self.read(part, namespace, depth + 1) for part in declared]
        if any(part.kind == UNION for part in found):
            raise _invalid("expected no union directly in a union, found one")
        full = [part.name or part.kind for part in found]
        if not found or len(set(full)) != len(full):
            raise _invalid(f"expected a union of different types, found {full}")
        short = [name.rsplit(".", 1)[-1] for name in full]
        names = [s if short.count(s) == 1 else f for s, f in zip(short, full, strict=True)]
        return AvroType(UNION, parts=list(zip(names, found, strict=True)))

    def _declared(
        self, kind: str, declared: Mapping[str, Any], namespace: str, depth: int
    ) -> AvroType:
        name = declared.get("name")
        if not isinstance(name, str) or not name:
            raise _invalid(f"expected the name of a {kind}, found {_excerpt(name)}")
        inside = declared.get("namespace", namespace) or ""
        if not isinstance(inside, str):
            raise _invalid(f"expected the namespace of {name}, found {_excerpt(inside)}")
        full = name if "." in name or not inside else f"{inside}.{name}"
        if full in self._known:
            raise _invalid(f"expected each name once, found {full!r} twice")
        found = AvroType(kind, full)
        self._known[full] = found
        if kind == ENUM:
            found.symbols = _symbols(declared.get("symbols"), full)
        elif kind == FIXED:
            size = declared.get("size")
            if isinstance(size, bool) or not isinstance(size, int):
                raise _invalid(f"expected the size of {full}, found {_excerpt(size)}")
            if not 0 < size <= FIXED_BYTES_MAX:
                raise _invalid(f"expected 1 to {FIXED_BYTES_MAX} bytes of {full}, found {size}")
            found.size = size
            _with_logical(found, declared)
        else:
            self._add_fields(found, declared.get("fields"), full.rpartition(".")[0], depth)
        return found

    def _add_fields(self, record: AvroType, declared: Any, namespace: str, depth: int) -> None:
        if not isinstance(declared, list):
            raise _invalid(f"expected the fields of {record.name}, found {_excerpt(declared)}")
        names: set[str] = set()
        for one in declared:
            name = one.get("name") if isinstance(one, Mapping) else None
            if not isinstance(name, str) or "type" not in one:
                raise _invalid(f"expected a field of {record.name}, found {_excerpt(one)}")
            if name in names:
                raise _invalid(f"expected each field of {record.name} once, found {name!r} twice")
            names.add(name)
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise _invalid(f"expected at most {FIELDS_MAX} fields, found more")
            record.parts.append((name, self.read(one["type"], namespace, depth + 1)))


def _symbols(declared: Any, name: str) -> tuple[str, ...]:
    if not isinstance(declared, list) or not all(isinstance(s, str) for s in declared):
        raise _invalid(f"expected the symbols of {name}, found {_excerpt(declared)}")
    if not 0 < len(declared) <= FIELDS_MAX or len(set(declared)) != len(declared):
        raise _invalid(f"expected 1 to {FIELDS_MAX} different symbols of {name}")
    return tuple(declared)


def _with_logical(found: AvroType, declared: Mapping[str, Any]) -> AvroType:
    logical = declared.get("logicalType")
    if not isinstance(logical, str) or found.kind not in _LOGICAL.get(logical, ()):
        return found
    if logical == "decimal":
        precision, scale = _whole(declared.get("precision")), _whole(declared.get("scale", 0))
        if not 0 <= scale <= precision <= 38 or precision == 0:
            return found
        found.precision, found.scale = precision, scale
    if logical == "uuid" and found.kind == FIXED and found.size != 16:
        return found
    found.logical = logical
    return found


def _whole(value: Any) -> int:
    """Return a whole number, or -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
