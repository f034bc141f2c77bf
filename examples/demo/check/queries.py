"""Queries that the checks share."""

from __future__ import annotations

import duckdb


def number(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Return the number that a query with one row and one column returns."""
    return int(db.execute(sql).fetchall()[0][0])


def columns(db: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Return the column names of a table or view."""
    return [str(line[0]) for line in db.execute(f"DESCRIBE {table}").fetchall()]


def first(db: duckdb.DuckDBPyConnection, text: str, rest: str, show: str) -> str | None:
    """Return the first row of `SELECT show rest` in `text`, and the number of rows; None if there is no row."""
    found = db.execute(f"SELECT {show} {rest} ORDER BY ALL LIMIT 1").fetchall()
    if not found:
        return None
    count = number(db, f"SELECT count(*) FROM (SELECT {show} {rest})")
    return f"{text.format(', '.join(map(str, found[0])))} ({count:,} in all)"
