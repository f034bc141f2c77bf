"""`tally sql`: one question over one consistent cut of all tables, answered by DuckDB."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tallystick.cli import forms, text
from tallystick.cli.report import busy, out
from tallystick.errors import InvalidRequest, TallystickError
from tallystick.lake import Lake
from tallystick.status import LakeTables, TableStatus, read_tables

if TYPE_CHECKING:
    import duckdb

FORMATS = ("table", "csv", "json")
ROWS_SHOWN_MAX = 1000
_CHUNK_ROWS = 2000
_TYPES = {
    "int": "INTEGER",
    "long": "BIGINT",
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamptz": "TIMESTAMPTZ",
    "timestamp": "TIMESTAMP",
}


def answer(lake: Lake, question: str, *, form: str, as_of: int | None = None) -> None:
    """Answer a SELECT over all tables of one root, that of version `as_of` if given, in a form of FORMATS.

    Raises InvalidRequest for a statement that does not only read or that DuckDB refuses; Corrupt, SettingsError or
    StoreUnavailable where rows cannot be read, as `duckdb_connection` does; and what the lake raises.
    """
    import duckdb

    if form not in FORMATS:
        raise InvalidRequest(
            f"format {form!r} is not known.", next_step=f"use {', '.join(FORMATS)}."
        )
    with busy("reading the tables' metadata"):
        connection = connect(lake, read_tables(lake, count=False, as_of=as_of))
    from tallystick.tables.sql import reading_only

    try:
        with busy("asking"):
            result = connection.execute(reading_only(connection, question))
        columns = [name for name, *_ in result.description or ()]
        _write(columns, _chunks(result), form)
    except duckdb.Error as error:
        raise _refused(error) from None
    finally:
        connection.close()


def connect(lake: Lake, cut: LakeTables) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with one view per table of the cut; a table without rows yet is a view without rows."""
    from tallystick.tables.sql import duckdb_connection

    written = {table.name: table.metadata for table in cut.tables if table.metadata is not None}
    connection = duckdb_connection(written, environ=os.environ) if written else _nothing_to_read()
    for table in cut.tables:
        if table.metadata is None:
            connection.execute(_empty_view(table))
    return connection


def _nothing_to_read() -> duckdb.DuckDBPyConnection:
    """A connection that reaches nothing at all: before the first commit there is nothing on S3 to ask."""
    import duckdb

    return duckdb.connect(
        ":memory:", config={"enable_external_access": False, "lock_configuration": True}
    )


def _empty_view(table: TableStatus) -> str:
    columns = ", ".join(
        f'CAST(NULL AS {_TYPES.get(c.type, c.type)}) AS "{c.name}"' for c in table.columns
    )
    return f'CREATE VIEW "{table.name}" AS SELECT {columns} WHERE false'


def _chunks(result: duckdb.DuckDBPyConnection) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := result.fetchmany(_CHUNK_ROWS):
        yield chunk


def _write(columns: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]], form: str) -> None:
    if form == "csv":
        _write_csv(columns, chunks)
    elif form == "json":
        rows = ([forms.cell(value) for value in row] for chunk in chunks for row in chunk)
        out(json.dumps({"columns": list(columns), "rows": list(rows)}, ensure_ascii=False))
    else:
        _write_table(columns, chunks)


def _write_csv(columns: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for chunk in chunks:
        writer.writerows([forms.cell(value) for value in row] for row in chunk)
        out(buffer.getvalue().removesuffix("\n"))
        buffer.seek(0)
        buffer.truncate()
    if buffer.tell():
        out(buffer.getvalue().removesuffix("\n"))


def _write_table(columns: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]]) -> None:
    kept: list[tuple[Any, ...]] = []
    more = 0
    for chunk in chunks:
        fits = ROWS_SHOWN_MAX - len(kept)
        kept += chunk[:fits]
        more += len(chunk[fits:])
    out(text.rows(columns, kept))
    if more:
        out(f"{text.many(more, 'row')} more not shown: --format csv writes all.")


def _refused(error: duckdb.Error) -> TallystickError:
    import duckdb

    told = str(error).strip().splitlines()[0]
    if isinstance(error, duckdb.IOException):  # HTTPException is one of them
        from tallystick.tables.sql import unreadable

        return unreadable(error, "the tables", os.environ)
    return InvalidRequest(f"DuckDB refused the question ({told}).", next_step="mend the statement.")
