"""Checks the tables of a run with independent readers: DuckDB for the rows, PyArrow for the footers of the files.

The expected rows come from the generator (`records.py`). A run counts only if every table has exactly these rows. No code
of tallystick or of another contender has a part in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from bench.whole_job.contender import CANONICAL, TOTALS, ResultTable

_PLACE = frozenset({"partition", "offset"})
# A sum of doubles depends on the order of its addends; the expected sum is one of whole cents.
_REVENUE_OFF = 0.005
_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck:
    """The result of one table. `digest`: the sum of the hashes of all rows, so it does not depend on their order."""

    table: str
    rows: int
    digest: str
    files: int
    size_bytes: int
    codecs: tuple[str, ...]
    writers: tuple[str, ...]
    has_places: bool
    problems: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """True if the table has exactly the expected rows."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footers:
    rows: int
    size_bytes: int
    codecs: tuple[str, ...]
    writers: tuple[str, ...]


def check_tables(
    tables: Sequence[ResultTable],
    names: Sequence[str],
    expected: Path,
    fetch: Callable[[str], Path],
    *,
    canonical: Mapping[str, Mapping[str, str]] = CANONICAL,
) -> list[TableCheck]:
    """Check each named table against `<expected>/<name>.parquet`; `fetch` returns the local path of a file.

    A table that is missing is a problem of its own. `canonical`: by table, the compared columns with their types.
    """
    by_name = {table.name: table for table in tables}
    found = []
    for name in names:
        table = by_name.get(name)
        if table is None or not table.files:
            found.append(_missing(name))
        else:
            paths = [fetch(file) for file in table.files]
            found.append(check_table(table, paths, expected / f"{name}.parquet", canonical[name]))
    return found


def _missing(name: str) -> TableCheck:
    return TableCheck(
        table=name,
        rows=0,
        digest="0",
        files=0,
        size_bytes=0,
        codecs=(),
        writers=(),
        has_places=False,
        problems=("the run left no file of it",),
    )


def check_table(
    table: ResultTable,
    paths: Sequence[Path],
    expected: Path,
    types: Mapping[str, str] | None = None,
) -> TableCheck:
    """Compare the rows of the files with the expected ones, and the rows with the footers.

    `types` has the compared columns; by default those of `CANONICAL`.
    """
    types = types or CANONICAL[table.name]
    missing = set(types) - set(table.columns)
    problems = [f"column {name} is missing" for name in sorted(missing - _PLACE)]
    names = [name for name in types if name in table.columns]
    footers = _footers(paths)
    with duckdb.connect() as database:
        _view(database, "found", paths, {name: table.columns[name] for name in names}, types)
        _view(database, "expected", [expected], {name: f'"{name}"' for name in names}, types)
        rows, digest = _digest(database, "found", names)
        expected_rows, expected_digest = _digest(database, "expected", names)
        if footers.rows != rows:
            problems.append(f"the footers count {footers.rows:,} rows, {rows:,} were read")
        if rows != expected_rows:
            problems.append(f"expected {expected_rows:,} rows, found {rows:,}")
        if table.name == TOTALS:
            problems += _differing_totals(database)
        elif digest != expected_digest:
            problems += _differing_rows(database)
    return TableCheck(
        table=table.name,
        rows=rows,
        digest=digest,
        files=len(paths),
        size_bytes=footers.size_bytes,
        codecs=footers.codecs,
        writers=footers.writers,
        has_places=not missing & _PLACE,
        problems=tuple(problems),
    )


def _view(
    database: duckdb.DuckDBPyConnection,
    view: str,
    paths: Sequence[Path],
    columns: Mapping[str, str],
    types: Mapping[str, str],
) -> None:
    selected = ", ".join(
        f'cast({sql} as {types[name]}) as "{name}"' for name, sql in columns.items()
    )
    files = json.dumps([str(path) for path in paths]).replace('"', "'")
    database.execute(
        f"create view {view} as select {selected} from read_parquet({files}, hive_partitioning = false)"
    )


def _digest(
    database: duckdb.DuckDBPyConnection, view: str, names: Sequence[str]
) -> tuple[int, str]:
    columns = ", ".join(f'"{name}"' for name in names)
    sql = f"select count(*), coalesce(sum(hash({columns})::hugeint), 0) from {view}"
    rows, digest = database.execute(sql).fetchall()[0]
    return int(rows), f"{int(digest):x}"


def _differing_rows(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Return up to two rows that are missing, and up to two that are not expected or are there too often."""
    pairs = (("missing", "expected", "found"), ("not expected", "found", "expected"))
    found = []
    for what, left, right in pairs:
        sql = f"select * from (from {left} except all from {right}) limit {_SHOWN}"
        found += [f"{what}: {_short(row)}" for row in database.execute(sql).fetchall()]
    return found or ["the digests of the rows differ"]


def _differing_totals(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Compare per type and hour: the counts exactly, the revenue to half a cent."""
    sql = """
        select coalesce(e.event_type, t.event_type), coalesce(e.hour, t.hour),
            e.events, t.events, e.revenue, t.revenue
        from expected e full join found t on e.event_type = t.event_type and e.hour = t.hour
        where e.events is distinct from t.events or t.revenue is null or abs(e.revenue - t.revenue) > ?
        order by all limit ?
    """
    rows = database.execute(sql, [_REVENUE_OFF, _SHOWN]).fetchall()
    return [
        f"{kind} in hour {hour}: expected {events} events and {revenue}, found {seen} and {sum_}"
        for kind, hour, events, seen, revenue, sum_ in rows
    ]


def _short(row: tuple[Any, ...]) -> str:
    return f"{row!r}"[:300]


def _footers(paths: Sequence[Path]) -> _Footers:
    rows, size_bytes = 0, 0
    codecs: set[str] = set()
    writers: set[str] = set()
    for path in paths:
        footer = pq.read_metadata(path)
        rows += footer.num_rows
        size_bytes += path.stat().st_size
        writers.add(str(footer.created_by))
        for group in range(footer.num_row_groups):
            columns = footer.row_group(group)
            codecs |= {columns.column(i).compression for i in range(columns.num_columns)}
    return _Footers(
        rows=rows,
        size_bytes=size_bytes,
        codecs=tuple(sorted(codecs)),
        writers=tuple(sorted(writers)),
    )
