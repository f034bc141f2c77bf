"""Decides the columns and the partitioning of a table after a plan's swap: a function of the root and the declaration.

The decision is made again on every root that is read, and the swap that lands gives the new ids. So two plans at the same
time never give one id twice, and a declaration whose change has landed already changes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallystick.format.columns import FormerName, TableColumn, widens, with_parts
from tallystick.format.partition_rules import PartitionField, partition_rule
from tallystick.format.root import RootTable
from tallystick.format.types import MAP, type_text
from tallystick.format.upkeep import DEFAULT, Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredColumn:
    """A column as a pipeline declares it, or a part of one, before it has an id. `renamed_from`: its name until now."""

    name: str
    type: str
    required: bool
    renamed_from: str | None = None
    fields: tuple[DeclaredColumn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table as a pipeline declares it. `dropped` are the names of columns that it had and is not to have any more."""

    columns: tuple[DeclaredColumn, ...]
    partition_by: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    upkeep: Upkeep = DEFAULT


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
    the declaration drops it. A new column gets an id that no column had. All this holds for the fields of a struct at any
    depth, too; they are named by their path, `device.os`. The type of a map's key never changes.
    """
    try:
        return _Evolution(known, declared).result()
    except _TableRefusedError as error:
        return error.refused


class _Evolution:
    def __init__(self, known: RootTable | None, declared: DeclaredTable) -> None:
        self._known, self._declared = known, declared
        self._columns = known.columns if known else ()
        self._dropped = list(known.dropped) if known else []
        self._former = list(known.former_names) if known else []
        self._has_rows = known is not None and known.metadata is not None
        self._last_id = max((c.id for c in with_parts((*self._columns, *self._dropped))), default=0)
        self._changes: list[str] = []
        self._left: list[str] = []

    def result(self) -> EvolvedTable:
        """Return the table after the swap; raises _TableRefusedError."""
        columns = self._level(self._columns, self._declared.columns, "")
        partition_fields = self._partition_fields(columns)
        if self._known:
            self._changes += self._declared.upkeep.changes(self._known.upkeep)
        return EvolvedTable(
            columns=columns,
            dropped=tuple(self._dropped),
            former_names=tuple(self._former),
            partition_fields=partition_fields,
            changes=tuple(self._changes) if self._known else (),
            left=tuple(self._left),
        )

    def _level(
        self, known: Sequence[TableColumn], declared: Sequence[DeclaredColumn], above: str
    ) -> tuple[TableColumn, ...]:
        """Return the columns of the table, or the fields of one struct at the place `above`, after the swap."""
        declared_of: dict[int, DeclaredColumn] = {}
        new: list[DeclaredColumn] = []
        for declaration in declared:
            column = self._column_of(declaration, known, above)
            if column is None:
                new.append(declaration)
                continue
            other = declared_of.setdefault(column.id, declaration)
            if other is not declaration:
                raise _TableRefusedError(
                    f"column {above + column.name!r}: expected one declaration of it, found {other.name!r} and "
                    f"{declaration.name!r}",
                    "remove one of them, or its renamed_from.",
                )
        self._refuse_wrong_names(new, known, declared_of, above)
        gone = self._undeclared(known, declared_of, above)
        kept = [
            self._kept(column, declared_of.get(column.id), above)
            for column in known
            if column not in gone
        ]
        self._dropped += gone
        return (*kept, *self._added(new, above))

    def _column_of(
        self, declaration: DeclaredColumn, known: Sequence[TableColumn], above: str
    ) -> TableColumn | None:
        """Return the table's column that a declaration is about, by its name or its earlier name."""
        by_name = {c.name.lower(): c for c in known}
        named = by_name.get(declaration.name.lower())
        old = declaration.renamed_from
        before = by_name.get(old.lower()) if old is not None else None
        if named is None or before is None or named is before:
            return named or before
        if FormerName(id=named.id, name=before.name) not in self._former:
            raise _TableRefusedError(
                f"column {above + named.name!r}: expected no column of that name in the lake to rename "
                f"{before.name!r} to, found both",
                f"remove renamed_from; or choose a name that the table does not have; or drop {above + named.name!r} "
                "first, in a deployment of its own.",
            )
        return named  # it was renamed before, and a later column has the old name

    def _kept(
        self, column: TableColumn, declaration: DeclaredColumn | None, above: str
    ) -> TableColumn:
        if declaration is None:
            return column
        name, kind = declaration.name, declaration.type
        is_renamed = name != column.name
        is_same = kind == column.type or widens(column.type, kind)
        if kind == column.type == MAP:
            is_same = declaration.fields[0].type == column.fields[0].type
        if (is_renamed and declaration.renamed_from != column.name) or not is_same:
            raise _TableRefusedError(
                f"column {above + column.name!r}: expected {column.name} {column.text} as in the lake, found {name} "
                f"{type_text(declaration)} in the declaration",
                "declare the column as the lake has it. A type can only widen: int to long, float to double, a decimal "
                "to a higher precision. For another type add a column under another name, with required=False.",
            )
        place = above + name
        if is_renamed:
            former = FormerName(id=column.id, name=column.name)
            self._former += [former] if former not in self._former else []
            self._changes.append(f"column {above + column.name!r} is renamed to {place!r}")
        if kind != column.type:
            self._changes.append(f"column {place!r} is widened from {column.type} to {kind}")
        if column.required and not declaration.required:
            self._changes.append(f"column {place!r} becomes optional")
        return TableColumn(
            id=column.id,
            name=name,
            type=kind,
            required=column.required and declaration.required,
            fields=self._level(column.fields, declaration.fields, f"{place}."),
        )

    def _undeclared(
        self, known: Sequence[TableColumn], declared_of: Mapping[int, DeclaredColumn], above: str
    ) -> list[TableColumn]:
        """Return the columns to drop; note the names of the columns that stay although they are not declared."""
        names = {name.lower() for name in self._declared.dropped}
        partitions = {f.source_id for f in self._earlier_fields()}
        gone: list[TableColumn] = []
        for column in known:
            if column.id in declared_of:
                continue
            place = above + column.name
            if place.lower() not in names:
                if column.required:
                    raise _TableRefusedError(
                        f"column {place!r} is required in the lake but no longer declared",
                        f"declare it; or drop it with dropped=[{place!r}] in the Table; or, if it has a new name, "
                        f"declare that with renamed_from={column.name!r}.",
                    )
                self._left.append(place)
            elif column.id in partitions:
                raise _TableRefusedError(
                    f"column {place!r} cannot be dropped: files of the table are partitioned by it, and readers "
                    "need it to find them",
                    "declare it, with required=False if the records no longer have it.",
                )
            else:
                gone.append(column)
                self._changes.append(f"column {place!r} is dropped")
        return gone

    def _refuse_wrong_names(
        self,
        new: Sequence[DeclaredColumn],
        known: Sequence[TableColumn],
        declared_of: Mapping[int, DeclaredColumn],
        above: str,
    ) -> None:
        """Refuse a new column that is a rename of no column, or has the former name of a column that is not declared.

        The second declaration is older than the rename.
        """
        names = {c.id: c.name for c in known if c.id not in declared_of}
        owners = {f.name.lower(): names[f.id] for f in self._former if f.id in names}
        for declaration in new:
            place, old = above + declaration.name, declaration.renamed_from
            if old is not None and known:
                raise _TableRefusedError(
                    f"column {place!r}: expected renamed_from a column of the lake, found {old!r}",
                    f"use one of {', '.join(c.name for c in known)}; or remove renamed_from to add a new column.",
                )
            now = owners.get(declaration.name.lower())
            if now is not None:
                raise _TableRefusedError(
                    f"column {place!r} was renamed to {now!r} in the lake",
                    f"deploy the declaration with {now!r}; or, to rename it back, declare {declaration.name!r} with "
                    f"renamed_from={now!r}.",
                )

    def _added(self, new: Sequence[DeclaredColumn], above: str) -> Iterator[TableColumn]:
        """Yield the new columns, with ids that no column had."""
        for declaration in new:
            place = above + declaration.name
            if declaration.required and self._has_rows:
                raise _TableRefusedError(
                    f"column {place!r} is new in a table with rows and declared as required",
                    "declare it with required=False, because older rows do not have it; or, if it is a column of the "
                    "lake under a new name, add renamed_from='its old name'.",
                )
            self._changes.append(f"column {place!r} is added")
            yield self._with_ids(declaration)

    def _with_ids(self, declaration: DeclaredColumn) -> TableColumn:
        self._last_id += 1
        return TableColumn(
            id=self._last_id,
            name=declaration.name,
            type=declaration.type,
            required=declaration.required,
            fields=tuple(map(self._with_ids, declaration.fields)),
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
