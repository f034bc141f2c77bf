"""Tables as a user declares them: columns, partitioning, and how partial rows combine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tallystick.errors import listed
from tallystick.format import keys
from tallystick.format.codec import NOT_STORED, StoredValue
from tallystick.format.partition_rules import RULES, PartitionRule
from tallystick.format.partition_rules import partition_rule as parsed_rule
from tallystick.format.upkeep import SORTABLE, Upkeep, is_sortable
from tallystick.pipeline.columns import LINEAGE, Column, refuse, several, unique

DEAD_LETTERS = "dead_letters"
_NUMBERS = ("int", "long", "decimal")
# The types of column that each transform applies to (Iceberg spec, Partition Transforms): the type's name up to a `(`.
_APPLIES: dict[str, tuple[str, ...]] = {
    "identity": ("string", "int", "long", "date"),
    **dict.fromkeys(("year", "month", "day"), ("timestamptz", "timestamp", "date")),
    "hour": ("timestamptz", "timestamp"),
    "bucket": (*_NUMBERS, "string", "binary", "date", "timestamp", "timestamptz", "uuid", "fixed"),
    "truncate": (*_NUMBERS, "string", "binary"),
}
Combine = Literal["sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Table(StoredValue):
    """One output table.

    By default a table is record-level: each row comes from one record and has its lineage columns, which are added here.
    With `keys` the table aggregates: it has one row per key and interval, without lineage columns. With `combine` each
    other column is combined by sum, min or max. An Arrow job needs `combine`, because its rows are partial. A DataFrame
    job returns one row per key, regardless of what it computes.
    `partition_by`: column names, or year(c), month(c), day(c), hour(c), bucket(n, c) for n buckets, or truncate(n, c) for
    the first n characters or bytes, or a number rounded down to a multiple of n (Iceberg spec, Partition Transforms).
    Other rules apply to new files; the files that are there keep theirs.
    `dropped`: names of columns, or paths of fields (`device.os`), that the table had and is not to have any more. Readers
    of the current table do not see them, and older rows keep their values only in older snapshots. A column that is not
    declared and not dropped stays in the table, null in new rows, if it is optional.
    `topic`: only rows of this topic are in the table, and a job returns it only for the topic's records. Without
    `columns`, the table has those of the topic.
    `upkeep`: what is kept of its history, how its files are written, and its sort order, in place of all of the
    pipeline's upkeep.
    """

    name: str
    columns: Sequence[Column] = ()
    partition_by: Sequence[str] = ()
    keys: Sequence[str] = ()
    combine: Mapping[str, Combine] = field(default_factory=dict)
    dropped: Sequence[str] = field(default=(), metadata=NOT_STORED)
    topic: str | None = None
    upkeep: Upkeep | None = field(default=None, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        keys.check_name(self.name, "table")
        if self.name == DEAD_LETTERS:
            raise refuse(
                f"table name {DEAD_LETTERS} is reserved for tallystick.",
                "choose another name.",
            )
        if self.topic is not None:
            keys.check_topic(self.topic)
        columns = () if self.follows else unique(self.columns, f"table {self.name}")
        object.__setattr__(self, "columns", columns)
        for name in ("partition_by", "keys", "dropped"):
            object.__setattr__(
                self, name, several(getattr(self, name), f"table {self.name}: {name}")
            )
        object.__setattr__(self, "combine", dict(self.combine))
        if self.follows:
            self._check_following()
            return
        self._check_combine()
        self._check_partition()
        self._check_dropped()
        self._check_sort_order()

    @property
    def follows(self) -> bool:
        """True if the table has the columns of its topic."""
        return self.topic is not None and not self.columns

    @property
    def aggregates(self) -> bool:
        """True if a row can come from several records, so that rows have no lineage."""
        return bool(self.keys)

    @property
    def written(self) -> tuple[Column, ...]:
        """All columns of the stored table, including lineage."""
        return tuple(self.columns) if self.aggregates else (*self.columns, *LINEAGE)

    def _check_following(self) -> None:
        if self.keys or self.combine:
            raise refuse(
                f"table {self.name}: expected columns, because it has keys, found only topic={self.topic!r}.",
                "declare the columns of the table.",
            )
        for rule in self.partition_by:
            partition_rule(rule)

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
        nested = {c.name: c.text for c in self.columns if c.fields}
        if both := next((n for n in (*self.keys, *self.combine) if n in nested), None):
            raise refuse(
                f"table {self.name}: expected keys and combine of primitive types, found {both!r} of type "
                f"{nested[both]}.",
                "use a column of one of its parts, e.g. with source= the path to it.",
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
        kinds = {c.name: c.text for c in self.written}
        rules = [partition_rule(rule) for rule in self.partition_by]
        # In one form, so that another way to write the same rule is no change of the table.
        object.__setattr__(self, "partition_by", tuple(str(rule) for rule in rules))
        once = [(rule.sized[0], rule.column) for rule in rules]
        if len(set(once)) != len(once):
            raise refuse(
                f"table {self.name}: expected each partition rule once for a column, found {listed(self.partition_by)}.",
                "remove one of them.",
            )
        for rule in rules:
            kind = kinds.get(rule.column)
            if rule.transform != "identity" and rule.field_name in kinds:
                raise refuse(
                    f"table {self.name}: the partition field {rule.field_name!r} of partition_by {str(rule)!r} has the "
                    "name of a column.",
                    "rename the column.",
                )
            if kind is None:
                raise refuse(
                    f"table {self.name}: expected partition_by a column, found {str(rule)!r}.",
                    f"use one of {listed(sorted(kinds))}.",
                )
            allowed = _APPLIES[rule.sized[0]]
            if re.split(r"[(<\[]", kind)[0] not in allowed:
                raise refuse(
                    f"table {self.name}: partition_by {str(rule)!r} does not apply to a {kind} column.",
                    f"use a column of one of these types: {listed(allowed)}; or another rule: {RULES}.",
                )

    def _check_dropped(self) -> None:
        names = set(_declared_names(self.written))
        if kept := [name for name in self.dropped if name.lower() in names]:
            raise refuse(
                f"table {self.name}: expected dropped columns that are not declared, found {kept[0]!r}.",
                "remove it from dropped or from the columns.",
            )

    def _check_sort_order(self) -> None:
        kinds = {c.name: c.text for c in self.written}
        for name in self.upkeep.sort_by if self.upkeep is not None else ():
            kind = kinds.get(name)
            if kind is None:
                raise refuse(
                    f"table {self.name}: expected sort_by a column, found {name!r}.",
                    f"use one of {listed(sorted(kinds))}.",
                )
            if not is_sortable(kind):
                raise refuse(
                    f"table {self.name}: sort_by {name!r} does not apply to a {kind} column.",
                    f"use a column of one of these types: {listed(SORTABLE)}.",
                )


def _declared_names(columns: Sequence[Column], above: str = "") -> Iterator[str]:
    """Yield the names that the columns and their parts have and had, in lower case, parts by their path."""
    for column in columns:
        yield f"{above}{column.name}".lower()
        if column.renamed_from is not None:
            yield f"{above}{column.renamed_from}".lower()
        yield from _declared_names(column.fields, f"{above}{column.name}.")


def partition_rule(rule: str) -> PartitionRule:
    """Parse a partition rule; raises InvalidPipeline."""
    try:
        return parsed_rule(rule)
    except ValueError as error:
        raise refuse(f"partition_by: {error}.", f"use {RULES}.") from error
