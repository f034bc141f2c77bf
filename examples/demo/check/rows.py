"""The tables, row by row: what was sent is there once, equal to the CSV, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from examples.checks import Finding, finding
from examples.demo.check.lake import DEAD, FLIGHTS, HOURLY
from examples.demo.check.queries import columns, first, number


def check_lineage(
    db: duckdb.DuckDBPyConnection, table: str, truth: str, topic: str
) -> Iterator[Finding]:
    """Check that the table contains each record of `truth` exactly once, and no other record."""
    rows = number(db, f"SELECT count(*) FROM {table}")
    expected = number(db, f"SELECT count(*) FROM {truth}")
    place = "_kafka_partition, _offset"
    on = "ON _kafka_partition = s.partition AND _offset = s.place"
    yield finding(
        f"{table}: once",
        f"{rows:,} rows, each (topic, partition, offset) once",
        first(
            db,
            "partition, offset {} occurs more than once",
            f"FROM {table} GROUP BY _topic, {place} HAVING count(*) > 1",
            place,
        )
        or first(db, "another topic: {}", f"FROM {table} WHERE _topic <> '{topic}'", "_topic"),
    )
    yield finding(
        f"{table}: all",
        f"{expected:,} were sent, each is there",
        first(
            db,
            "not there: partition, offset, kind, CSV row {}",
            f"FROM {truth} s ANTI JOIN {table} {on}",
            "s.partition, s.place, s.kind, s.row",
        ),
    )
    yield finding(
        f"{table}: only",
        "no aborted, broken, duplicate or other record",
        first(
            db,
            "unexpected: partition, offset, sent as {}",
            f"FROM {table} ANTI JOIN {truth} s {on} LEFT JOIN sent "
            "ON _kafka_partition = sent.partition AND _offset = sent.place",
            f"{place}, sent.kind",
        ),
    )
    yield finding(
        f"{table}: time",
        "_timestamp is the record's CreateTime",
        first(
            db,
            "partition, offset, there, sent: {}",
            f"FROM {table} JOIN {truth} s {on} WHERE epoch_ms(_timestamp) IS DISTINCT FROM s.at_ms",
            f"{place}, epoch_ms(_timestamp), s.at_ms",
        ),
    )


def check_flights(db: duckdb.DuckDBPyConnection, topic: str) -> Iterator[Finding]:
    """Check that each valid flight occurs once, with every column equal to the CSV."""
    yield from check_lineage(db, FLIGHTS, "good", topic)
    expected = [c for c in columns(db, "csv") if c != "row"]
    missing = sorted(set(expected) - set(columns(db, FLIGHTS)))
    if missing:
        yield finding("flights: =", "", f"the table lacks the columns {', '.join(missing)}")
        return
    problem, values, nulls = None, 0, 0
    for column in expected:
        differs = (
            f"FROM {FLIGHTS} t JOIN good s ON t._kafka_partition = s.partition AND t._offset = s.place "
            f"WHERE t.{column} IS DISTINCT FROM s.{column}"
        )
        problem = problem or first(
            db,
            f"{column}: CSV row, table, CSV {{}}",
            differs,
            f"s.row, t.{column}::VARCHAR, s.{column}::VARCHAR",
        )
        values += number(db, f"SELECT count({column}) FROM {FLIGHTS}")
        nulls += number(db, f"SELECT count(*) - count({column}) FROM {FLIGHTS}")
    yield finding(
        "flights: =",
        f"{len(expected)} columns equal the CSV: {values:,} values, {nulls:,} nulls",
        problem,
    )


def check_dead_letters(db: duckdb.DuckDBPyConnection, topic: str) -> Iterator[Finding]:
    """Check that each broken flight is a dead letter once, byte for byte, with a reason."""
    db.execute("CREATE VIEW broken AS SELECT * FROM sent WHERE kind IN ('cut', 'type', 'utf8')")
    yield from check_lineage(db, DEAD, "broken", topic)
    on = "t JOIN broken s ON t._kafka_partition = s.partition AND t._offset = s.place"
    reasons = number(db, f"SELECT count(DISTINCT reason) FROM {DEAD}")
    yield finding(
        "dead: =",
        f"key and value are the bytes that were sent; {reasons} different reasons",
        first(
            db,
            "other bytes: partition, offset, kind, CSV row {}",
            f"FROM {DEAD} {on} WHERE t.key IS DISTINCT FROM s.key "
            "OR t.value IS NULL OR sha256(t.value) <> s.value_sha256",
            "s.partition, s.place, s.kind, s.row",
        )
        or first(
            db,
            "no reason: partition, offset {}",
            f"FROM {DEAD} WHERE coalesce(trim(reason), '') = ''",
            "_kafka_partition, _offset",
        ),
    )


def check_hourly(db: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Check the counts per hour. The demo's intervals are whole hours: one row per key and interval is one per key."""
    db.execute(
        "CREATE VIEW counted AS SELECT date_trunc('hour', departure) AS hour, origin, "
        "count(*) AS departures FROM good GROUP BY ALL"
    )
    rows, total = db.execute(f"SELECT count(*), sum(departures) FROM {HOURLY}").fetchall()[0]
    yield finding(
        "hourly: once",
        f"{rows:,} rows, each hour and airport once",
        first(
            db,
            "hour, airport {} occurs more than once",
            f"FROM {HOURLY} GROUP BY hour, origin HAVING count(*) > 1",
            "hour, origin",
        ),
    )
    yield finding(
        "hourly: =",
        f"{total or 0:,} departures, equal to a GROUP BY of the CSV",
        first(
            db,
            "hour, airport, table, CSV {}",
            f"FROM (SELECT hour, origin, sum(departures) AS n FROM {HOURLY} GROUP BY ALL) t "
            "FULL JOIN counted s USING (hour, origin) WHERE t.n IS DISTINCT FROM s.departures",
            "hour, origin, t.n, s.departures",
        ),
    )


def check_readers(db: duckdb.DuckDBPyConnection, table: str) -> Finding:
    """Check that PyIceberg and DuckDB read the same rows, each the same number of times."""
    names = ", ".join(columns(db, table))
    pyiceberg, scanned = (f"SELECT {names} FROM {t}" for t in (table, f"{table}_scanned"))
    problem = first(
        db, "only PyIceberg reads {}", f"FROM ({pyiceberg} EXCEPT ALL {scanned})", "*"
    ) or first(db, "only DuckDB reads {}", f"FROM ({scanned} EXCEPT ALL {pyiceberg})", "*")
    return finding("readers", f"PyIceberg and DuckDB read the same rows of {table}", problem)


def check_sum(db: duckdb.DuckDBPyConnection) -> Finding:
    """Check that flights plus dead letters are the number of lines of the CSV."""
    good, dead, flights = (number(db, f"SELECT count(*) FROM {t}") for t in (FLIGHTS, DEAD, "csv"))
    text = f"{good:,} flights + {dead:,} dead letters = {good + dead:,}"
    text = f"{text}; the CSV has {flights:,}"
    return Finding(check="sum", holds=good + dead == flights, text=text)
