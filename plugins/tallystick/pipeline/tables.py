"""Tables as a user declares them: columns, partitioning, and how partial rows combine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tallystick.errors import listed
from tallystick.format import keys
from tallystick.format.codec import StoredValue
from tallystick.pipeline.columns import LINEAGE, Column, refuse, several, unique

DEAD_LETTERS = "dead_letters"
_TRANSFORM = re.compile(
    r"(?:(year|month|day|hour)\(([A-Za-z_][A-Za-z0-9_]*)\)|([A-Za-z_][A-Za-z0-9_]*))"
)
Combine = Literal["sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Table(StoredValue):
    """One output table.

    By default a table is record-level: each row comes from one record and has its lineage columns, which are added here.
    With `keys` the table aggregates: it has one row per key and interval, without lineage columns. With `combine` each
    other column is combined by sum, min or max. An Arrow job needs `combine`, because its rows are partial. A DataFrame
    job returns one row per key, regardless of what it computes.
    `partition_by`: column names or year(c), month(c), day(c), hour(c) (Iceberg spec, Partition Transforms).
    """

    name: str
    columns: Sequence[Column]
    partition_by: Sequence[str] = ()
    keys: Sequence[str] = ()
    combine: Mapping[str, Combine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        if self.name == DEAD_LETTERS:
            raise refuse(
                f"table name {DEAD_LETTERS} is reserved for tallystick.",
                "choose another name.",
            )
        object.__setattr__(self, "columns", unique(self.columns, f"table {self.name}"))
        for name in ("partition_by", "keys"):
            object.__setattr__(
                self, name, several(getattr(self, name), f"table {self.name}: {name}")
            )
        object.__setattr__(self, "combine", dict(self.combine))
        self._check_combine()
        self._check_partition()

    @property
    def aggregates(self) -> bool:
        """True if a row can come from several records, so that rows have no lineage."""
        return bool(self.keys)

    @property
    def written(self) -> tuple[Column, ...]:
        """All columns of the stored table, including lineage."""
        return tuple(self.columns) if self.aggregates else (*self.columns, *LINEAGE)

    def _check_combine(self) -> None:
        names = {c.name for c in self.columns}
        if unknown := sorted(set(self.keys) - names):
            raise refuse(
                f"table {self.name}: expected keys to be columns, found {unknown[0]!r}.",
                f"use some of {listed(sorted(names))}.",
            )
        if len(set(self.keys)) != len(self.keys):
            raise refuse(
                f"table {self.name}: expected each key once, found {listed(self.keys)}.",
                "name each key once.",
            )
        if not self.combine:
            return
        wanted = set(self.keys) | set(self.combine)
        if wanted != names or set(self.keys) & set(self.combine) or not self.keys:
            raise refuse(
                f"table {self.name}: expected keys and combine to name each of the columns "
                f"({listed(sorted(names))}) once, found ({listed(self.keys)}) and ({listed(self.combine)}).",
                "name each column either in keys or in combine.",
            )
        for name, how in self.combine.items():
            kind = next(c.type for c in self.columns if c.name == name)
            if how not in ("sum", "min", "max"):
                raise refuse(
                    f"table {self.name}: expected combine by sum, min or max, found {name!r} by {how!r}.",
                    "use one of the three.",
                )
            if how == "sum" and not (
                kind in {"int", "long", "double"} or kind.startswith("decimal")
            ):
                raise refuse(
                    f"table {self.name}: expected a number for sum, found {name!r} of type {kind}.",
                    "use min or max, or a numeric type.",
                )

    def _check_partition(self) -> None:
        kinds = {c.name: c.type for c in self.written}
        if len(set(self.partition_by)) != len(self.partition_by):
            raise refuse(
                f"table {self.name}: expected each partition rule once, found {listed(self.partition_by)}.",
                "remove the duplicate.",
            )
        for rule in self.partition_by:
            transform, column = partition_rule(rule)
            kind = kinds.get(column)
            derived = column if transform == "identity" else f"{column}_{transform}"
            if derived != column and derived in kinds:
                raise refuse(
                    f"table {self.name}: the partition field {derived!r} of partition_by {rule!r} has the name of a "
                    "column.",
                    "rename the column.",
                )
            if kind is None:
                raise refuse(
                    f"table {self.name}: expected partition_by a column, found {rule!r}.",
                    f"use one of {listed(sorted(kinds))}.",
                )
            in_time = {"timestamptz", "timestamp", "date"} - (
                {"date"} if transform == "hour" else set()
            )
            plain = {"string", "int", "long", "date"}
            if kind not in (in_time if transform != "identity" else plain):
                raise refuse(
                    f"table {self.name}: partition_by {rule!r} does not apply to a {kind} column.",
                    "use year, month, day or hour of a time, or a plain string, int, long or date column.",
                )


def partition_rule(rule: str) -> tuple[str, str]:
    """Return (transform, column) of a partition rule, e.g. ("day", "departure"); raises InvalidPipeline."""
    found = _TRANSFORM.fullmatch(rule.replace(" ", ""))
    if not found:
        raise refuse(
            f"partition_by: unknown rule {rule!r}.",
            "use a column, or year(c), month(c), day(c), hour(c).",
        )
    return (found[1], found[2]) if found[1] else ("identity", found[3])
