"""The columns of the lake's tables: once assigned, an id always means the same (name, type) (I11)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

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
class DeclaredColumn:
    """A column as a pipeline declares it, before it has an id."""

    name: str
    type: str
    required: bool


def allocate(
    known: Iterable[TableColumn], declared: Iterable[DeclaredColumn], *, has_rows: bool
) -> tuple[TableColumn, ...]:
    """Return all columns of a table, with new ids for new columns in `declared`; known ids keep their meaning (I11).

    A column that is no longer declared stays, for the rows that have it. Raises ValueError if a column has another name
    or type, if a required column is no longer declared, or if a required column is new and the table `has_rows`.
    """
    kept = {c.name.lower(): c for c in known}
    next_id = max((c.id for c in kept.values()), default=0) + 1
    by_name = {d.name.lower(): d for d in declared}
    out: list[TableColumn] = []
    for name, column in kept.items():
        declaration = by_name.get(name)
        if declaration is None and column.required:
            raise ValueError(
                f"column {column.name!r} is required in the lake but no longer declared"
            )
        if declaration is not None and (declaration.name, declaration.type) != (
            column.name,
            column.type,
        ):
            raise ValueError(
                f"column {column.name!r}: expected {column.name} {column.type} as in the lake, found "
                f"{declaration.name} {declaration.type} in the declaration"
            )
        required = column.required and declaration is not None and declaration.required
        out.append(TableColumn(id=column.id, name=column.name, type=column.type, required=required))
    for name, declaration in by_name.items():
        if name in kept:
            continue
        if declaration.required and has_rows:
            raise ValueError(
                f"column {declaration.name!r} is new in a table with rows and declared as required"
            )
        out.append(
            TableColumn(
                id=next_id,
                name=declaration.name,
                type=declaration.type,
                required=declaration.required,
            )
        )
        next_id += 1
    return check_columns(out)
