"""The history of an output: the rows of every interval by key. The rows of the table are computed from it.

The history grows with the table's columns and never loses one. The output writes the columns that are in both the
history and the table. If a plan lacks one of them, it is null in the plan's rows, regardless of other intervals.
"""

from __future__ import annotations

from psycopg import sql

from tallystick.errors import OutputRefused
from tallystick.outputs.port import Publication
from tallystick.outputs.postgres import PostgresOutput, statements
from tallystick.outputs.postgres.catalog import DatabaseTable, read_table
from tallystick.outputs.postgres.session import Session
from tallystick.outputs.postgres.stage import Staged
from tallystick.outputs.postgres.statements import END, SCHEMA, START


def managed_columns(
    session: Session, declared: PostgresOutput, name: str, staged: Staged, publication: Publication
) -> tuple[str, ...]:
    """Return the columns that the output writes. Creates the history, or its columns, if they are missing.

    Safe to repeat: it runs under the lock on the output's row, and leaves what is there unchanged. Raises
    OutputRefused if a column of the table has changed its type since, or if a NOT NULL column has no value in earlier
    intervals or in this plan's rows.
    """
    history = sql.Identifier(SCHEMA, name)
    found = read_table(session, SCHEMA, name)
    if found is None:
        target = sql.Identifier(*declared.schema_and_table)
        session.run(
            "create the history", statements.create_history(history, target, staged.columns)
        )
        session.run("key of the history", statements.key_of_history(history, declared.key))
        session.run("index of the history", statements.index_of_history(history))
        return staged.columns
    there, columns = staged.target.columns, found.columns.keys() - {START, END}
    _check_types(declared, name, found, staged.target, publication)
    has_rows = None
    for column in staged.columns:
        if column in columns:
            continue
        if there[column].required:
            has_rows = session.one("find earlier rows", statements.any_row(history))
            if has_rows is not None:
                raise _null_in_not_null(
                    declared, column, "intervals that were written before", publication
                )
        session.run(
            "widen the history", statements.add_to_history(history, column, there[column].type)
        )
    managed = [c for c in there if c in columns or c in staged.columns]
    for column in managed:
        if column not in staged.columns and there[column].required and staged.rows:
            raise _null_in_not_null(declared, column, "its rows", publication)
    return tuple(managed)


def _check_types(
    declared: PostgresOutput,
    name: str,
    history: DatabaseTable,
    target: DatabaseTable,
    publication: Publication,
) -> None:
    for column in history.columns.values():
        current = target.columns.get(column.name)
        if current is not None and current.type != column.type:
            raise OutputRefused(
                f"{publication}: column {column.name!r} of table {declared.into} of connection {declared.postgres}: "
                "expected "
                f"{column.type} as in its history {SCHEMA}.{name}, found {current.type}.",
                hint=f"change the history as the table was changed (ALTER TABLE {SCHEMA}.{name} ALTER COLUMN ...), then "
                "clear `publish`. Nothing was written, and the tables are committed.",
            )


def _null_in_not_null(
    declared: PostgresOutput, column: str, rows: str, publication: Publication
) -> OutputRefused:
    return OutputRefused(
        f"{publication}: column {column!r} of table {declared.into} of connection {declared.postgres} is NOT NULL, but "
        f"{rows} have no value for it.",
        hint=f"ALTER TABLE {declared.into} ALTER COLUMN {column} DROP NOT NULL, then clear `publish`. Nothing was "
        "written, and the tables are committed.",
    )
