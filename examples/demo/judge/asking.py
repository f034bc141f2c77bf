"""A finding, and the ways of asking DuckDB for one."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, whether it holds, and the figures or the first difference."""

    check: str
    holds: bool
    says: str


def none_of(check: str, figures: str, problem: str | None) -> Finding:
    """The finding that there is no problem, told by figures; or the problem."""
    return Finding(check, problem is None, problem or figures)


def one(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    """The one number that a question answers with."""
    return int(db.execute(sql).fetchall()[0][0])


def columns(db: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Column names of a table or view."""
    return [str(line[0]) for line in db.execute(f"DESCRIBE {table}").fetchall()]


def first(db: duckdb.DuckDBPyConnection, text: str, rest: str, show: str) -> str | None:
    """The first row of `SELECT show rest` in `text`, and how many there are; None where there is none."""
    found = db.execute(f"SELECT {show} {rest} ORDER BY ALL LIMIT 1").fetchall()
    if not found:
        return None
    count = one(db, f"SELECT count(*) FROM (SELECT {show} {rest})")
    return f"{text.format(', '.join(map(str, found[0])))} ({count:,} in all)"
