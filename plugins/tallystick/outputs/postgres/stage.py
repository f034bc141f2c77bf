"""Stages the rows of one plan in a temporary table, and checks them against the target before it gets any of them.

The rows are streamed in batches. Null and duplicate keys are found by the database itself, with its own comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from psycopg import sql

from tallystick.errors import OutputRefused, SettingsError, listed
from tallystick.format import keys
from tallystick.format.types import NESTED
from tallystick.outputs.encoding import json_text
from tallystick.outputs.port import Publication
from tallystick.outputs.postgres import PostgresOutput, statements
from tallystick.outputs.postgres.catalog import DatabaseTable, fits, key_text, lake_type
from tallystick.outputs.postgres.session import Session
from tallystick.outputs.times import check_batch

if TYPE_CHECKING:
    import pyarrow as pa

COPY_ROWS = 20_000
FIX_JOB = "nothing was written, and the tables are committed. Fix the job and clear `plan`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The content of the session's stage: `rows` rows of `plan`, with these `columns`."""

    plan: keys.PlanId
    target: DatabaseTable
    columns: tuple[str, ...]
    rows: int


def stage(
    session: Session,
    declared: PostgresOutput,
    found: DatabaseTable | None,
    publication: Publication,
) -> Staged:
    """Copy the plan's rows into the stage and check them. Raises OutputRefused if the table would not accept them.

    Safe to repeat: the stage belongs to the session, and is created again.
    """
    target = _check_table(declared, found, publication)
    schema = next((batch.schema for batch in publication.rows.batches()), None)
    columns = _columns(declared, target, schema, publication)
    # If a plan has no rows, the key columns are used: it changes only the rows that the interval had.
    columns = columns or tuple(declared.key)
    session.run("drop the stage", statements.drop(statements.STAGE))
    limited = [c for c in columns if target.columns[c].length_max is not None]
    session.run(
        "create the stage",
        statements.create_stage(sql.Identifier(*declared.schema_and_table), columns, limited),
    )
    rows = _copy(session, columns, schema, publication)
    session.run("analyze the stage", statements.analyze(statements.STAGE))
    _check_rows(session, declared, target, columns, publication)
    return Staged(plan=publication.plan, target=target, columns=columns, rows=rows)


def _copy(
    session: Session, columns: Sequence[str], schema: pa.Schema | None, publication: Publication
) -> int:
    number = 0
    for batch in publication.rows.batches():
        if batch.schema.names != (schema.names if schema is not None else None):
            raise OutputRefused(
                f"{publication}: expected the same columns in all data files, found a file with "
                f"{listed(batch.schema.names)}.",
                hint=f"{FIX_JOB}.",
            )
        check_batch(publication, batch, number)
        values = zip(*(_values(batch.column(c)) for c in columns), strict=True)
        rows = ((*row, at) for at, row in enumerate(values, start=number))
        while some := list(islice(rows, COPY_ROWS)):
            session.copy(statements.copy_stage(columns), some)
        number += len(batch)
    return number


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as psycopg takes them: nested ones as JSON texts."""
    if lake_type(column.type) not in NESTED:
        values: list[Any] = column.to_pylist()
        return values
    found = column.to_pylist(maps_as_pydicts="strict")
    return [None if value is None else json_text(value) for value in found]


# ---------------------------------------------------------------- the table


def _check_table(
    declared: PostgresOutput, found: DatabaseTable | None, publication: Publication
) -> DatabaseTable:
    where = f"table {declared.into} of connection {declared.postgres}"

    def refused(why: str, hint: str) -> OutputRefused:
        return OutputRefused(
            f"{publication}: {where} {why}.",
            hint=f"{hint}, then clear `publish`. The tables are committed.",
        )

    if found is None:
        raise refused("does not exist", "create it (tallystick never does)")
    if found.kind not in ("r", "p"):
        raise refused("is not a table but a view or another object", "declare a table")
    if not found.logged:
        raise refused(
            "is UNLOGGED or temporary: a crash of the server would empty it",
            f"ALTER TABLE {declared.into} SET LOGGED",
        )
    if found.rights_missing:
        raise SettingsError(
            f"{publication}: {where}: the user lacks {listed(found.rights_missing)}.",
            hint=f"GRANT {listed(found.rights_missing)} ON {declared.into} to it. The tables are committed.",
        )
    if found.row_security:
        raise refused(
            "has row security, which hides rows from this user",
            "let the user bypass it (BYPASSRLS)",
        )
    if missing := [c for c in declared.key if c not in found.columns]:
        raise refused(f"has no column {missing[0]!r}, which is in the key", "add it")
    if frozenset(declared.key) not in found.unique:
        raise refused(
            f"has no unique constraint on the key ({', '.join(declared.key)}) that is not deferrable",
            f"ALTER TABLE {declared.into} ADD UNIQUE ({', '.join(declared.key)})",
        )
    return found


def _columns(
    declared: PostgresOutput,
    target: DatabaseTable,
    schema: pa.Schema | None,
    publication: Publication,
) -> tuple[str, ...]:
    """Return the columns to write: all columns that the job makes, and the lineage columns that the table has.

    Raises OutputRefused if the table lacks a column or its type does not fit.
    """
    if schema is None:
        return ()
    where = f"table {declared.into} of connection {declared.postgres}"

    def refused(why: str, hint: str) -> OutputRefused:
        return OutputRefused(
            f"{publication}: {why}.",
            hint=f"{hint}, then clear `publish`. Nothing was written, and the tables are committed.",
        )

    if unknown := [c for c in declared.key if c not in schema.names]:
        raise refused(
            f"its rows have no column {unknown[0]!r}, which is in the key", "declare another key"
        )
    # Names that begin with an underscore are tallystick's own: the lineage of a row.
    written = [c for c in schema.names if c in target.columns or not c.startswith("_")]
    for column in written:
        kind, there = lake_type(schema.field(column).type), target.columns.get(column)
        if there is None:
            raise refused(
                f"{where} has no column {column!r} ({kind} in the lake)", "add the column"
            )
        if there.computed:
            raise refused(
                f"column {column!r} of {where} is generated by the database",
                "make it a plain column",
            )
        if not fits(kind, there):
            raise refused(
                f"column {column!r} of {where}: expected a type with every value of {kind}, as in the lake, found "
                f"{there.type}",
                "change the column's type (docs/reference/outputs.md lists what fits)",
            )
    for column in target.columns.values():
        if column.required and not column.has_default and column.name not in written:
            raise refused(
                f"column {column.name!r} of {where} is NOT NULL, and its rows have no such column",
                "give it a default, or drop NOT NULL",
            )
    return tuple(written)


# ---------------------------------------------------------------- the rows


def _check_rows(
    session: Session,
    declared: PostgresOutput,
    target: DatabaseTable,
    columns: Sequence[str],
    publication: Publication,
) -> None:
    where = f"table {declared.into} of connection {declared.postgres}"
    for column in columns:
        there = target.columns[column]
        if column in declared.key or there.required:
            row, count = session.one("find nulls", statements.null_in(column))
            if count:
                what = "its key column" if column in declared.key else "column"
                raise OutputRefused(
                    f"{publication}: row {row}: expected a value in {what} {column!r} of {where}, found null (rows with "
                    f"null: {count}).",
                    hint=f"{FIX_JOB}, so that it has a value; or declare another key.",
                )
        if there.length_max is not None:
            long = session.one("find long values", statements.too_long(column, there.length_max))
            if long is not None:
                raise OutputRefused(
                    f"{publication}: row {long[0]}, column {column!r}: expected {there.type} as in {where}, found "
                    f"{long[1]} characters.",
                    hint="make the column longer, and clear `publish`. Nothing was written, and the tables are "
                    "committed.",
                )
    found = session.one("find duplicate keys", statements.doubled(declared.key))
    if found is not None:
        *values, times, keys = found
        raise OutputRefused(
            f"{publication}: expected one row per key, found {times} rows with {key_text(declared.key, values)} "
            "(duplicate "
            f"keys: {keys}).",
            hint=f"{FIX_JOB}, so that a key occurs once in an interval; or declare a key that distinguishes the rows.",
        )
