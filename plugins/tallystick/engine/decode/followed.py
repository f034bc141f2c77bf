"""The columns of a topic that follows its schemas: those of all versions, merged."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tallystick.engine.decode.avro.columns import avro_columns
from tallystick.engine.decode.misfits import misfit
from tallystick.engine.decode.protobuf.columns import protobuf_columns
from tallystick.errors import InvalidPipeline
from tallystick.format.columns import TableColumn
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Avro, Column, Protobuf
from tallystick.pipeline.merging import merged_columns, numbered_columns
from tallystick.pipeline.paths import escaped

log = logging.getLogger(__name__)
_KINDS = {"AVRO": avro_columns, "PROTOBUF": protobuf_columns}
# A column that any schema fits that has no columns of its own.
_ANY = Column("any", "string", required=False)
_Read = Sequence[tuple[FrozenSchema, tuple[Column, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedColumns:
    """The columns of a topic, and the reasons why schemas are left out; no columns if no schema has any."""

    columns: tuple[Column, ...]
    left_out: tuple[str, ...]


def followed_columns(
    declared: Avro | Protobuf,
    schemas: Iterable[FrozenSchema],
    *,
    table: Sequence[TableColumn] = (),
    taken: Collection[str] = (),
) -> FollowedColumns:
    """Return the columns that the records of the schemas fit, merged in the order in which the schemas are given.

    `table`: the columns that the table has. They stay, also if no schema has them any more, and they stay as wide.
    `taken`: names that no column gets, those of the columns of keys and headers.
    A schema is left out as a whole, with a warning, if its columns cannot be read from it, or if with it the records of
    any schema so far, also its own, would not fit. So no schema makes dead letters of the records of one before it.
    """
    following = _Following(declared, table, taken)
    read: list[tuple[FrozenSchema, tuple[Column, ...]]] = []
    for schema in schemas:
        if (own := following.columns_of(schema)) is not None:
            read.append((schema, own))
    following.add(read)
    columns = following.columns
    if not columns and read:
        # No schema fits the table: its columns stay, read from the same fields as before.
        first = numbered_columns(read[0][1], taken)
        columns = tuple(_of_table(column, first) for column in table)
    return FollowedColumns(columns=columns, left_out=tuple(following.left_out))


class _Following:
    """The columns of the schemas that were added."""

    def __init__(
        self,
        declared: Avro | Protobuf,
        table: Sequence[TableColumn],
        taken: Collection[str],
    ) -> None:
        self._declared = declared
        self._table = table
        self._taken = taken
        self._merged: tuple[Column, ...] = ()
        self._added: list[FrozenSchema] = []
        self.columns: tuple[Column, ...] = ()
        self.left_out: list[str] = []

    def columns_of(self, schema: FrozenSchema) -> tuple[Column, ...] | None:
        """Return a schema's own columns; None if it is left out, since they cannot be read from it."""
        if schema.kind != self._declared.NAME.upper():
            self.leave_out(schema, f"expected {self._declared.NAME}, found {schema.kind}")
            return None
        try:
            own = _KINDS[schema.kind](schema)
        except InvalidPipeline as error:
            self.leave_out(schema, error.message)
            return None
        if not own and (reason := misfit(self._declared.planned([_ANY]), schema)) is not None:
            self.leave_out(schema, str(reason))
            return None
        return own

    def add(self, read: _Read) -> None:
        """Add schemas; leave out those with which the records of any schema so far would not fit."""
        if not read or self._added_all(read):
            return
        if len(read) == 1:
            why = "with its columns, its records or those of versions before it would not fit"
            self.leave_out(read[0][0], why)
            return
        # In halves, since most schemas fit: otherwise all would be compared with all.
        middle = len(read) // 2
        self.add(read[:middle])
        self.add(read[middle:])

    def _added_all(self, read: _Read) -> bool:
        """Add schemas; return False, and add none of them, if the records of any schema would not fit."""
        merged = self._merged
        for before, (_, own) in enumerate(read, start=len(self._added)):
            merged = (
                merged_columns(merged, own, taken=self._taken)
                if before
                else numbered_columns(own, self._taken)
            )
        columns = self._in_table(merged)
        new = [schema for schema, _ in read]
        checked = new if columns == self.columns else [*self._added, *new]
        if columns:
            planned = self._declared.planned(columns)
            if any(misfit(planned, schema) is not None for schema in checked):
                return False
        self._merged, self.columns = merged, columns
        self._added += new
        return True

    def leave_out(self, schema: FrozenSchema, why: str) -> None:
        """Leave a schema out, with a warning."""
        text = f"schema {schema.id} ({schema.subject} version {schema.version}) is left out: {why}"
        log.warning("%s", text)
        self.left_out.append(text)

    def _in_table(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns of the table, each read from the field of the column of its name, and the other columns."""
        if not self._table:
            return tuple(columns)
        known = tuple(_of_table(column, columns) for column in self._table)
        return merged_columns(known, columns, taken=self._taken)


def _of_table(column: TableColumn, columns: Sequence[Column]) -> Column:
    same = next((c for c in columns if c.name.lower() == column.name.lower()), None)
    source = None if same is None else same.source
    if same is not None and source is None and same.name != column.name:
        source = escaped(same.name)
    inside = () if same is None else same.fields
    return Column(
        column.name,
        column.type,
        column.required,
        source=source,
        fields=[_of_table(part, inside) for part in column.fields],
    )
