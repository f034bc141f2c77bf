"""The columns of the lake's tables: once assigned, an id always means the same column (I11).

A column has one name at a time, and its type only widens. Its id is never used for another column, also after a drop.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from tallystick.errors import listed
from tallystick.format.codec import StoredValue

PRIMITIVES = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamptz",
        "string",
        "binary",
    }
)
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Iceberg's MetadataColumns (spec, Reserved Field IDs). Spark's reader fails if a table declares one of these names.
_RESERVED = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
    *("_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id"),
)


def check_type(name: str) -> str:
    """Return the canonical name of an Iceberg primitive type (Iceberg spec, Primitive Types).

    Raises ValueError if `name` is not a primitive type.
    """
    name = name.replace(" ", "")
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return name
    if name not in PRIMITIVES:
        allowed = ", ".join(sorted(PRIMITIVES))
        raise ValueError(
            f"column type: expected one of {allowed}, decimal(precision,scale), found {name!r}"
        )
    return name


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn(StoredValue):
    """One column of one table: Iceberg field id, name, type string; null is refused if `required`."""

    id: int
    name: str
    type: str
    required: bool

    def __post_init__(self) -> None:
        if not 1 <= self.id < 2**31 - 1000:
            raise ValueError(f"expected a column id, found {self.id}")
        check_column_name(self.name)
        if check_type(self.type) != self.type:
            raise ValueError(
                f"column type: expected {check_type(self.type)!r}, found {self.type!r}"
            )


def check_columns(columns: Iterable[TableColumn]) -> tuple[TableColumn, ...]:
    """Return columns whose ids and names are each unique; raises ValueError."""
    kept = tuple(columns)
    for what, seen in (("id", [c.id for c in kept]), ("name", [c.name.lower() for c in kept])):
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
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is None or after is None:
        return False
    return before[2] == after[2] and int(before[1]) < int(after[1])


def successor(
    column: TableColumn, now: Iterable[TableColumn], former_names: Collection[FormerName]
) -> TableColumn | None:
    """Return the one of `now` that a column, as it once was, has become; None if there is none (I11).

    It has the same id, a name that is or was the column's, and the same type or one that widens it.
    """
    found = next((c for c in now if c.id == column.id), None)
    if found is None:
        return None
    is_named = found.name == column.name or any(
        (f.id, f.name) == (column.id, column.name) for f in former_names
    )
    is_typed = found.type == column.type or widens(column.type, found.type)
    return found if is_named and is_typed else None
