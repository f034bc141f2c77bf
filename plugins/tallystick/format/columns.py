"""The columns of the lake's tables: once assigned, an id always means the same column (I11).

A column has one name at a time, and its type only widens. Its id is never used for another column, also after a drop. The
parts of a struct, a list or a map have ids of their own, for which the same holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tallystick.errors import listed
from tallystick.format.codec import StoredValue
from tallystick.format.types import (
    ELEMENT,
    KEY,
    LIST,
    MAP,
    NESTED,
    NESTING_MAX,
    STRUCT,
    VALUE,
    Typed,
    decimal_size,
    primitive_type,
    type_text,
)

_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Iceberg's MetadataColumns (spec, Reserved Field IDs). Spark's reader fails if a table declares one of these names.
_RESERVED = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
    *("_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id"),
)


def check_column_name(name: str) -> str:
    """Return a column name that every reader of Parquet, Iceberg and SQL accepts; raises ValueError."""
    if not _COLUMN_NAME.fullmatch(name):
        raise ValueError(
            f"column name: expected 1 to 128 of A-Z, a-z, 0-9 and _, not beginning with a digit, found {name!r}"
        )
    if name.lower() in _RESERVED:
        raise ValueError(
            f"column name: expected none that Iceberg reserves ({', '.join(_RESERVED)}), found {name!r}"
        )
    return name


def check_fields(column: Typed) -> None:
    """Refuse a column whose fields do not fit its type; raises ValueError.

    A struct has at least one field, with names that are unique regardless of case. A list has the field `element`, a map
    the fields `key`, required and of a primitive type, and `value`. Any other type has no fields.
    """
    names = [f.name for f in column.fields]
    if column.type == STRUCT:
        if not names:
            raise ValueError("expected a struct with at least one field, found none")
        lower = [name.lower() for name in names]
        if twice := next((n for n in names if lower.count(n.lower()) > 1), None):
            raise ValueError(
                f"expected unique names of the fields of a struct, found {twice!r} twice"
            )
    elif column.type in NESTED:
        wanted = [ELEMENT] if column.type == LIST else [KEY, VALUE]
        if names != wanted:
            raise ValueError(
                f"expected the fields {listed(wanted)} of a {column.type}, found {listed(names) or 'none'}"
            )
        key = column.fields[0]
        if column.type == MAP and (key.type in NESTED or not key.required):
            raise ValueError(
                f"expected a map's key required and of a primitive type, found {type_text(key)!r}"
            )
    elif names:
        raise ValueError(f"expected no fields of type {column.type!r}, found {listed(names)}")
    if _depth(column) > NESTING_MAX:
        raise ValueError(f"expected at most {NESTING_MAX} levels of nesting, found more")


def _depth(column: Typed) -> int:
    return 1 + max(map(_depth, column.fields)) if column.fields else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn(StoredValue):
    """One column of one table, or a part of one: Iceberg field id, name, type; null is refused if `required`.

    `fields` are the parts of a struct, a list or a map, each with an id of its own.
    """

    id: int
    name: str
    type: str
    required: bool
    fields: tuple[TableColumn, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.id < 2**31 - 1000:
            raise ValueError(f"expected a column id, found {self.id}")
        check_column_name(self.name)
        if self.type not in NESTED and primitive_type(self.type) != self.type:
            raise ValueError(
                f"column type: expected {primitive_type(self.type)!r}, found {self.type!r}"
            )
        check_fields(self)

    @property
    def text(self) -> str:
        """The column's whole type as text, without ids."""
        return type_text(self)


def with_parts(columns: Iterable[TableColumn]) -> Iterator[TableColumn]:
    """Yield each column, followed by all its parts at any depth."""
    for column in columns:
        yield column
        yield from with_parts(column.fields)


def is_part_of(column: TableColumn, there: TableColumn) -> bool:
    """Return True if `there` is the same column: id, name and type. It may have parts that `column` does not have."""
    if (column.id, column.name, column.type) != (there.id, there.name, there.type):
        return False
    parts = {f.id: f for f in there.fields}
    return all(f.id in parts and is_part_of(f, parts[f.id]) for f in column.fields)


def check_columns(columns: Iterable[TableColumn]) -> tuple[TableColumn, ...]:
    """Return columns whose ids, also those of their parts, and names are each unique; raises ValueError."""
    kept = tuple(columns)
    ids = [c.id for c in with_parts(kept)]
    for what, seen in (("id", ids), ("name", [c.name.lower() for c in kept])):
        if len(set(seen)) != len(seen):
            raise ValueError(f"expected unique column {what}s, found {listed(seen)}")
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerName(StoredValue):
    """A name that the column with this id had before it was renamed."""

    AS_LIST: ClassVar[bool] = True

    id: int
    name: str


def widens(old: str, new: str) -> bool:
    """Return True if every value of the type `old` is one of the other type `new` (Iceberg spec, Schema Evolution).

    These are int to long, float to double, and a decimal of the same scale and a higher precision.
    """
    if (old, new) in (("int", "long"), ("float", "double")):
        return True
    before, after = decimal_size(old), decimal_size(new)
    if before is None or after is None:
        return False
    return before[1] == after[1] and before[0] < after[0]


def successor(
    column: TableColumn,
    now: Sequence[TableColumn],
    dropped: Sequence[TableColumn],
    former_names: Collection[FormerName],
) -> TableColumn | None:
    """Return the one of `now` or `dropped` that a column, as it once was, has become; None if there is none (I11).

    It has the same id, a name that is or was the column's, and the same type or one that widens it. Each part of the
    column is a part of it, or was dropped.
    """
    found = next((c for c in (*now, *dropped) if c.id == column.id), None)
    if found is None:
        return None
    is_named = found.name == column.name or any(
        (f.id, f.name) == (column.id, column.name) for f in former_names
    )
    is_typed = found.type == column.type or widens(column.type, found.type)
    if not (is_named and is_typed):
        return None
    parts = (successor(part, found.fields, dropped, former_names) for part in column.fields)
    return found if all(part is not None for part in parts) else None
