"""The columns of the lake's tables: once assigned, an id always means the same (name, type) (I11)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

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

    Raises ValueError if `name` is no primitive type.
    """
    name = name.replace(" ", "")
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return name
    if name not in PRIMITIVES:
        allowed = ", ".join(sorted(PRIMITIVES))
        raise ValueError(f"column type {name!r} is not one of {allowed}, decimal(precision,scale)")
    return name


def check_column_name(name: str) -> str:
    """Return a column name that every reader of Parquet, Iceberg and SQL accepts; raises ValueError."""
    if not _COLUMN_NAME.fullmatch(name):
        raise ValueError(
            f"column name {name!r} is not 1 to 128 of A-Z, a-z, 0-9 and _, beginning with no digit"
        )
    if name.lower() in _RESERVED:
        raise ValueError(
            f"column name {name!r} is one that Iceberg reserves: {', '.join(_RESERVED)}"
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
            raise ValueError(f"{self.id} is no column id")
        check_column_name(self.name)
        if check_type(self.type) != self.type:
            raise ValueError(f"column type {self.type!r} is not in its one spelling")


def check_columns(columns: Iterable[TableColumn]) -> tuple[TableColumn, ...]:
    """Return columns whose ids and names are each unique; raises ValueError."""
    kept = tuple(columns)
    for what, seen in (("id", [c.id for c in kept]), ("name", [c.name.lower() for c in kept])):
        if len(set(seen)) != len(seen):
            raise ValueError(f"two columns share one {what}")
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedColumn:
    """A column as a pipeline declares it, before it has an id."""

    name: str
    type: str
    required: bool


def allocate(
    known: Iterable[TableColumn], wanted: Iterable[WantedColumn], *, has_rows: bool
) -> tuple[TableColumn, ...]:
    """Return all columns of a table, with new ids for the new columns in `wanted`; known ids keep their meaning (I11).

    A column that is no longer wanted stays, for the rows that have it. Raises ValueError if a column has another name or
    type, if a required column is no longer declared, or if a required column is new and the table `has_rows`.
    """
    kept = {c.name.lower(): c for c in known}
    next_id = max((c.id for c in kept.values()), default=0) + 1
    declared = {w.name.lower(): w for w in wanted}
    out: list[TableColumn] = []
    for name, column in kept.items():
        want = declared.get(name)
        if want is None and column.required:
            raise ValueError(
                f"column {column.name!r} is required in the lake and no longer declared"
            )
        if want is not None and (want.name, want.type) != (column.name, column.type):
            raise ValueError(
                f"column {column.name!r} is {column.type} in the lake, and {want.name!r} is declared as {want.type}"
            )
        required = column.required and want is not None and want.required
        out.append(TableColumn(id=column.id, name=column.name, type=column.type, required=required))
    for name, want in declared.items():
        if name in kept:
            continue
        if want.required and has_rows:
            raise ValueError(
                f"column {want.name!r} is new to a table with rows and declared as required"
            )
        out.append(TableColumn(id=next_id, name=want.name, type=want.type, required=want.required))
        next_id += 1
    return check_columns(out)
