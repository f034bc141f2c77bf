"""`tally sql`: runs one query in DuckDB on one snapshot of all tables."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tallystick.cli import forms, json_output, text
from tallystick.cli.errors import busy, note, out
from tallystick.cli.forms import Form
from tallystick.cli.waiting import LIMIT_S, ServerCalls, notice_s
from tallystick.errors import InvalidRequest, TallystickError, listed
from tallystick.format.columns import TableColumn
from tallystick.format.types import LIST, MAP, STRUCT, fixed_bytes
from tallystick.lake import Lake
from tallystick.operations.status import AsOf, LakeTables, TableStatus, read_tables

if TYPE_CHECKING:
    import duckdb

_CHUNK_ROWS = 2000
_TYPES = {
    "int": "INTEGER",
    "long": "BIGINT",
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamptz": "TIMESTAMPTZ",
    "timestamp": "TIMESTAMP",
}


def answer(
    lake: Lake,
    statement: str,
    *,
    form: Form,
    as_of: AsOf | None = None,
    timeout: timedelta | None = None,
) -> None:
    """Run a SELECT on all tables of one root, that of the last commit at `as_of` if given, and write its rows in a form.

    Raises InvalidRequest if the statement does more than read, if DuckDB refuses it, and if it needs more time than
    `timeout` (None: no limit) or more memory than DuckDB may use. Raises Corrupt, SettingsError or StoreUnavailable if
    rows cannot be read, as `duckdb_connection` does; and what the lake raises.
    """
    import duckdb

    with busy("reading the tables' metadata"):
        cut = read_tables(lake, count=False, as_of=as_of)
        connection = connect(lake, cut)
    from tallystick.tables.sql import reading_only

    try:
        limit = _Limit(connection, timeout)
        with (
            busy("running the statement"),
            _waiting().watched("running the statement"),
            limit.working(),
        ):
            result = connection.execute(reading_only(connection, statement))
        columns = [name for name, *_ in result.description or ()]
        _write(columns, _chunks(result, limit), form)
    except duckdb.OutOfMemoryException as error:
        raise _too_large(error) from None
    except duckdb.Error as error:
        raise _refused(error, [table.name for table in cut.tables]) from None
    finally:
        connection.close()


class _Limit:
    """The time limit of a query. DuckDB computes rows when they are read, so the time of each read counts, too."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, timeout: timedelta | None) -> None:
        self._connection = connection
        self._timeout = timeout
        self._left_s = min(timeout.total_seconds(), threading.TIMEOUT_MAX) if timeout else None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Interrupt the statement when its time is over, and raise InvalidRequest.

        It is raised regardless of what DuckDB raises or returns. DuckDB ends an interrupted statement with
        InterruptException or, if the interrupt comes between two steps of its stream, with InvalidInputException. It
        documents neither.
        """
        import duckdb

        if self._left_s is None:
            yield
            return
        if self._left_s <= 0:
            raise _too_long(self._timeout)
        over = threading.Event()

        def interrupt() -> None:
            over.set()
            self._connection.interrupt()

        timer = threading.Timer(self._left_s, interrupt)
        timer.daemon = True
        since = time.monotonic()
        timer.start()
        try:
            yield
        except duckdb.Error:
            if not over.is_set():
                raise
        finally:
            timer.cancel()
            timer.join()  # if it fires at this moment, it ends before the connection is closed
            self._left_s -= time.monotonic() - since
        if over.is_set():
            raise _too_long(self._timeout)


def _too_long(timeout: timedelta | None) -> TallystickError:
    limit = "its time" if timeout is None else text.length(timeout)
    return InvalidRequest(
        f"the statement took longer than {limit}, and was cancelled.",
        hint="select less, e.g. with a WHERE on the columns that `tally tables` shows after `by`; or allow more time "
        "with --timeout TIME, e.g. 30m, or never.",
    )


def _too_large(error: duckdb.Error) -> TallystickError:
    first = str(error).strip().splitlines()[0]
    return InvalidRequest(
        f"the statement needs more memory than DuckDB may use ({first}).",
        hint="select less, or use a larger machine: DuckDB uses up to 80 % of its memory.",
    )


def connect(lake: Lake, cut: LakeTables) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with one view per table of the snapshot; if a table has no metadata yet, its view is empty."""
    from tallystick.tables.sql import duckdb_connection

    written = {table.name: table.metadata for table in cut.tables if table.metadata is not None}
    if not written:
        connection = _nothing_to_read()
    else:
        with _waiting().watched("reading the tables' metadata"):
            connection = duckdb_connection(
                written, environ=os.environ, answers_within_s=LIMIT_S.get()
            )
    for table in cut.tables:
        if table.metadata is None:
            connection.execute(_empty_view(table))
    return connection


def _waiting() -> ServerCalls:
    """Return the calls to DuckDB, for its notice: DuckDB reads S3 by itself."""
    return ServerCalls("DuckDB and S3", notice_s=notice_s())


def _nothing_to_read() -> duckdb.DuckDBPyConnection:
    """Return a connection without external access: before the first commit there is no table on S3."""
    import duckdb

    return duckdb.connect(
        ":memory:", config={"enable_external_access": False, "lock_configuration": True}
    )


def _empty_view(table: TableStatus) -> str:
    columns = ", ".join(f'CAST(NULL AS {_type(c)}) AS "{c.name}"' for c in table.columns)
    return f'CREATE VIEW "{table.name}" AS SELECT {columns} WHERE false'


def _type(column: TableColumn) -> str:
    """Return DuckDB's type of a column."""
    parts = [_type(f) for f in column.fields]
    if column.type == STRUCT:
        named = (f'"{f.name}" {kind}' for f, kind in zip(column.fields, parts, strict=True))
        return f"STRUCT({', '.join(named)})"
    if column.type == LIST:
        return f"{parts[0]}[]"
    if column.type == MAP:
        return f"MAP({', '.join(parts)})"
    return "BLOB" if fixed_bytes(column.type) else _TYPES.get(column.type, column.type)


def _chunks(result: duckdb.DuckDBPyConnection, limit: _Limit) -> Iterator[list[tuple[Any, ...]]]:
    calls = _waiting()
    while True:
        with calls.watched("reading rows"), limit.working():
            chunk = result.fetchmany(_CHUNK_ROWS)
        if not chunk:
            return
        yield chunk


def _write(columns: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]], form: Form) -> None:
    if form is Form.CSV:
        forms.write_csv(columns, chunks)
    elif form is Form.VERTICAL:
        forms.write_vertical(columns, chunks)
    elif form is Form.JSON:
        rows = ([json_output.cell(value) for value in row] for chunk in chunks for row in chunk)
        out(json.dumps({"columns": list(columns), "rows": list(rows)}, ensure_ascii=False))
    else:
        _write_table(columns, chunks)


def _write_table(columns: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]]) -> None:
    shown: list[tuple[Any, ...]] = []
    more = 0
    for chunk in chunks:
        left = forms.TEXT_ROWS_MAX - len(shown)
        shown += chunk[:left]
        more += len(chunk[left:])
    out(text.rows(columns, shown))
    forms.write_left_out(more)
    if not text.fits(columns, shown):
        note("Cells are folded: --format vertical has a line per column.")


def _refused(error: duckdb.Error, tables: Sequence[str]) -> TallystickError:
    import duckdb

    from tallystick.tables.sql import unreadable, whole_message

    if isinstance(error, duckdb.IOException):  # the base class of HTTPException
        return unreadable(error, "the tables", os.environ)
    hint = "correct the statement."
    if isinstance(error, duckdb.CatalogException):
        hint = f"correct the statement. The tables of this lake are: {listed(sorted(tables))}."
    return InvalidRequest(f"DuckDB refused the statement:\n{whole_message(error)}", hint=hint)
