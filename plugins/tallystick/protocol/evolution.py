"""Decides the columns and the partitioning of a table after a plan's swap: a function of the root and the declaration.

The decision is made again on every root that is read, and the swap that lands gives the new ids. So two plans at the same
time never give one id twice, and a declaration whose change has landed already changes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallystick.format.columns import FormerName, TableColumn, widens
from tallystick.format.partition_rules import PartitionField, partition_rule
from tallystick.format.root import RootTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredColumn:
    """A column as a pipeline declares it, before it has an id. `renamed_from`: its name in the lake until now."""

    name: str
    type: str
    required: bool
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table as a pipeline declares it. `dropped` are the names of columns that it had and is not to have any more."""

    columns: tuple[DeclaredColumn, ...]
    partition_by: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRefused:
    """A declaration that the table cannot follow; `hint` is the next step."""

    problem: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolvedTable:
    """The table after the swap. `changes` describes each change of a table that exists; `left` are undeclared columns."""

    columns: tuple[TableColumn, ...]
    dropped: tuple[TableColumn, ...]
    former_names: tuple[FormerName, ...]
    partition_fields: tuple[PartitionField, ...]
    changes: tuple[str, ...]
    left: tuple[str, ...]


class _TableRefusedError(Exception):
    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.refused = TableRefused(problem=problem, hint=hint)


def evolve(known: RootTable | None, declared: DeclaredTable) -> EvolvedTable | TableRefused:
    """Return the table with the declared columns; known ids keep their meaning (I11). `known`: None for a new table.

    A column that is declared under its name or with `renamed_from` keeps its id. Its type may only widen, and a required
    column may become optional. A column that is no longer declared stays in the table if it is optional, and leaves it if
    the declaration drops it. A new column gets an id that no column had.
    """
    try:
        return _Evolution(known, declared).result()
    except _TableRefusedError as error:
        return error.refused


class _Evolution:
    def __init__(self, known: RootTable | None, declared: DeclaredTable) -> None:
        self._known, self._declared = known, declared
        self._columns = known.columns if known else ()
        self._dropped = known.dropped if known else ()
        self._former = list(known.former_names) if known else []
        self._has_rows = known is not None and known.metadata is not None
        self._by_name = {c.name.lower(): c for c in self._columns}
        self._changes: list[str] = []

    def result(self) -> EvolvedTable:
        """Return the table after the swap; raises _TableRefusedError."""
        declared_of: dict[int, DeclaredColumn] = {}
        new: list[DeclaredColumn] = []
        for declaration in self._declared.columns:
            column = self._column_of(declaration)
            if column is None:
                new.append(declaration)
                continue
            other = declared_of.setdefault(column.id, declaration)
            if other is not declaration:
                raise _TableRefusedError(
                    f"column {column.name!r}: expected one declaration of it, found {other.name!r} and "
                    f"{declaration.name!r}",
                    "remove one of them, or its renamed_from.",
                )
        self._refuse_wrong_names(new, declared_of)
        gone, left = self._undeclared(declared_of)
        kept = [
            self._kept(column, declared_of.get(column.id))
            for column in self._columns
            if column not in gone
        ]
        columns = (*kept, *self._added(new))
        return EvolvedTable(
            columns=columns,
            dropped=(*self._dropped, *gone),
            former_names=tuple(self._former),
            partition_fields=self._partition_fields(columns),
            changes=tuple(self._changes) if self._known else (),
            left=left,
        )

    def _column_of(self, declaration: DeclaredColumn) -> TableColumn | None:
        """Return the table's column that a declaration is about, by its name or its earlier name."""
        named = self._by_name.get(declaration.name.lower())
        old = declaration.renamed_from
        before = self._by_name.get(old.lower()) if old is not None else None
        if named is None or before is None or named is before:
            return named or before
        if FormerName(id=named.id, name=before.name) not in self._former:
            raise _TableRefusedError(
                f"column {named.name!r}: expected no column of that name in the lake to rename {before.name!r} to, found "
                "both",
                f"remove renamed_from; or choose a name that the table does not have; or drop {named.name!r} first, in a "
                "deployment of its own.",
            )
        return named  # it was renamed before, and a later column has the old name

    def _kept(self, column: TableColumn, declaration: DeclaredColumn | None) -> TableColumn:
        if declaration is None:
            return column
        name, kind = declaration.name, declaration.type
        is_renamed = name != column.name
        if (is_renamed and declaration.renamed_from != column.name) or not (
            kind == column.type or widens(column.type, kind)
        ):
            raise _TableRefusedError(
                f"column {column.name!r}: expected {column.name} {column.type} as in the lake, found {name} {kind} in "
                "the declaration",
                "declare the column as the lake has it. A type can only widen: int to long, float to double, a decimal "
                "to a higher precision. For another type add a column under another name, with required=False.",
            )
        if is_renamed:
            former = FormerName(id=column.id, name=column.name)
            self._former += [former] if former not in self._former else []
            self._changes.append(f"column {column.name!r} is renamed to {name!r}")
        if kind != column.type:
            self._changes.append(f"column {name!r} is widened from {column.type} to {kind}")
        if column.required and not declaration.required:
            self._changes.append(f"column {name!r} becomes optional")
        return TableColumn(
            id=column.id, name=name, type=kind, required=column.required and declaration.required
        )

    def _undeclared(
        self, declared_of: Mapping[int, DeclaredColumn]
    ) -> tuple[tuple[TableColumn, ...], tuple[str, ...]]:
        """Return the columns to drop, and the names of the columns that stay although they are not declared."""
        names = {name.lower() for name in self._declared.dropped}
        partitions = {f.source_id for f in self._earlier_fields()}
        gone: list[TableColumn] = []
        left: list[str] = []
        for column in self._columns:
            if column.id in declared_of:
                continue
            if column.name.lower() not in names:
                if column.required:
                    raise _TableRefusedError(
                        f"column {column.name!r} is required in the lake but no longer declared",
                        f"declare it; or drop it with dropped=[{column.name!r}] in the Table; or, if it has a new name, "
                        f"declare that with renamed_from={column.name!r}.",
                    )
                left.append(column.name)
            elif column.id in partitions:
                raise _TableRefusedError(
                    f"column {column.name!r} cannot be dropped: files of the table are partitioned by it, and readers "
                    "need it to find them",
                    "declare it, with required=False if the records no longer have it.",
                )
            else:
                gone.append(column)
                self._changes.append(f"column {column.name!r} is dropped")
        return tuple(gone), tuple(left)

    def _refuse_wrong_names(
        self, new: Sequence[DeclaredColumn], declared_of: Mapping[int, DeclaredColumn]
    ) -> None:
        """Refuse a new column that is a rename of no column, or has the former name of a column that is not declared.

        The second declaration is older than the rename.
        """
        names = {c.id: c.name for c in self._columns if c.id not in declared_of}
        owners = {f.name.lower(): names[f.id] for f in self._former if f.id in names}
        for declaration in new:
            name, old = declaration.name, declaration.renamed_from
            if old is not None and self._known is not None:
                raise _TableRefusedError(
                    f"column {name!r}: expected renamed_from a column of the lake, found {old!r}",
                    f"use one of {', '.join(c.name for c in self._columns)}; or remove renamed_from to add a new column.",
                )
            now = owners.get(declaration.name.lower())
            if now is not None:
                raise _TableRefusedError(
                    f"column {declaration.name!r} was renamed to {now!r} in the lake",
                    f"deploy the declaration with {now!r}; or, to rename it back, declare {declaration.name!r} with "
                    f"renamed_from={now!r}.",
                )

    def _added(self, new: Sequence[DeclaredColumn]) -> Iterator[TableColumn]:
        """Yield the new columns, with ids that no column had."""
        last = max((c.id for c in (*self._columns, *self._dropped)), default=0)
        for number, declaration in enumerate(new, last + 1):
            name = declaration.name
            if declaration.required and self._has_rows:
                raise _TableRefusedError(
                    f"column {name!r} is new in a table with rows and declared as required",
                    "declare it with required=False, because older rows do not have it; or, if it is a column of the "
                    "lake under a new name, add renamed_from='its old name'.",
                )
            self._changes.append(f"column {name!r} is added")
            yield TableColumn(
                id=number, name=name, type=declaration.type, required=declaration.required
            )

    def _earlier_fields(self) -> tuple[PartitionField, ...]:
        return self._known.partition_fields if self._known else ()

    def _partition_fields(self, columns: Sequence[TableColumn]) -> tuple[PartitionField, ...]:
        """Return the partition fields that the table had, and those of the declared rules that it did not have."""
        fields = list(self._earlier_fields())
        ids = {c.name: c.id for c in columns}
        for text in self._declared.partition_by:
            rule = partition_rule(text)
            source = ids[rule.column]
            if not any((f.source_id, f.transform) == (source, rule.transform) for f in fields):
                fields.append(
                    PartitionField(source_id=source, transform=rule.transform, name=rule.field_name)
                )
        if self._known and self._known.partition_by != self._declared.partition_by:
            rules = ", ".join(self._declared.partition_by) or "nothing"
            self._changes.append(f"new files are partitioned by {rules}")
        _check_names(columns, fields)
        return tuple(fields)


def _check_names(columns: Sequence[TableColumn], fields: Sequence[PartitionField]) -> None:
    """Refuse a column with the name of a partition field, and two fields of one name: readers find fields by name."""
    names = [f.name.lower() for f in fields]
    twice = next((f.name for f in fields if names.count(f.name.lower()) > 1), None)
    for column in columns:
        for field in fields:
            is_own = field.transform == "identity" and field.source_id == column.id
            if field.name.lower() == column.name.lower() and not is_own:
                twice = column.name
    if twice is not None:
        raise _TableRefusedError(
            f"expected a name that no partition field of the table has or had, found {twice!r}",
            "give the column another name.",
        )
