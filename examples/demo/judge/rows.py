"""The tables, row by row: what was sent is there, once, as it stands in the CSV, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from examples.demo.judge.asking import Finding, columns, first, none_of, one
from examples.demo.judge.lake import DEAD, FLIGHTS, HOURLY


def judge_lineage(
    db: duckdb.DuckDBPyConnection, table: str, truth: str, topic: str
) -> Iterator[Finding]:
    """Each record of `truth` stands in the table exactly once, and nothing else does."""
    rows = one(db, f"SELECT count(*) FROM {table}")
    wanted = one(db, f"SELECT count(*) FROM {truth}")
    place = "_kafka_partition, _offset"
    on = "ON _kafka_partition = s.partition AND _offset = s.place"
    yield none_of(
        f"{table}: once",
        f"{rows:,} rows, each (topic, partition, offset) once",
        first(
            db,
            "partition, offset {} stands there more than once",
            f"FROM {table} GROUP BY _topic, {place} HAVING count(*) > 1",
            place,
        )
        or first(db, "another topic: {}", f"FROM {table} WHERE _topic <> '{topic}'", "_topic"),
    )
    yield none_of(
        f"{table}: all",
        f"{wanted:,} were sent, each is there",
        first(
            db,
            "not there: partition, offset, kind, CSV row {}",
            f"FROM {truth} s ANTI JOIN {table} {on}",
            "s.partition, s.place, s.kind, s.row",
        ),
    )
    yield none_of(
        f"{table}: only",
        "no aborted, broken, doubled or foreign record among them",
        first(
            db,
            "too many: partition, offset, sent as {}",
            f"FROM {table} ANTI JOIN {truth} s {on} LEFT JOIN sent "
            "ON _kafka_partition = sent.partition AND _offset = sent.place",
            f"{place}, sent.kind",
        ),
    )
    yield none_of(
        f"{table}: time",
        "_timestamp is the record's CreateTime",
        first(
            db,
            "partition, offset, there, sent: {}",
            f"FROM {table} JOIN {truth} s {on} WHERE epoch_ms(_timestamp) IS DISTINCT FROM s.at_ms",
            f"{place}, epoch_ms(_timestamp), s.at_ms",
        ),
    )


def judge_flights(db: duckdb.DuckDBPyConnection, topic: str) -> Iterator[Finding]:
    """Each sound flight once, every column as the CSV has it."""
    yield from judge_lineage(db, FLIGHTS, "good", topic)
    wanted = [c for c in columns(db, "csv") if c != "row"]
    lacking = sorted(set(wanted) - set(columns(db, FLIGHTS)))
    if lacking:
        yield Finding("flights: =", False, f"the table lacks the columns {', '.join(lacking)}")
        return
    problem, values, nulls = None, 0, 0
    for column in wanted:
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
        values += one(db, f"SELECT count({column}) FROM {FLIGHTS}")
        nulls += one(db, f"SELECT count(*) - count({column}) FROM {FLIGHTS}")
    yield none_of(
        "flights: =",
        f"{len(wanted)} columns equal the CSV: {values:,} values, {nulls:,} nulls",
        problem,
    )


def judge_dead_letters(db: duckdb.DuckDBPyConnection, topic: str) -> Iterator[Finding]:
    """Each broken flight once, byte for byte, with a reason."""
    db.execute("CREATE VIEW broken AS SELECT * FROM sent WHERE kind IN ('cut', 'type', 'utf8')")
    yield from judge_lineage(db, DEAD, "broken", topic)
    on = "t JOIN broken s ON t._kafka_partition = s.partition AND t._offset = s.place"
    reasons = one(db, f"SELECT count(DISTINCT reason) FROM {DEAD}")
    yield none_of(
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


def judge_hourly(db: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Each interval of the demo is made of whole hours, so one row per key and interval is one row per key."""
    db.execute(
        "CREATE VIEW counted AS SELECT date_trunc('hour', departure) AS hour, origin, "
        "count(*) AS departures FROM good GROUP BY ALL"
    )
    rows, total = db.execute(f"SELECT count(*), sum(departures) FROM {HOURLY}").fetchall()[0]
    yield none_of(
        "hourly: once",
        f"{rows:,} rows, each hour and airport once",
        first(
            db,
            "hour, airport {} stand there more than once",
            f"FROM {HOURLY} GROUP BY hour, origin HAVING count(*) > 1",
            "hour, origin",
        ),
    )
    yield none_of(
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


def judge_readers(db: duckdb.DuckDBPyConnection, table: str) -> Finding:
    """PyIceberg and DuckDB read the same rows, each as often."""
    names = ", ".join(columns(db, table))
    ours, theirs = (f"SELECT {names} FROM {t}" for t in (table, f"{table}_scanned"))
    problem = first(
        db, "only PyIceberg reads {}", f"FROM ({ours} EXCEPT ALL {theirs})", "*"
    ) or first(db, "only DuckDB reads {}", f"FROM ({theirs} EXCEPT ALL {ours})", "*")
    return none_of("readers", f"PyIceberg and DuckDB read the same rows of {table}", problem)


def judge_sum(db: duckdb.DuckDBPyConnection) -> Finding:
    """Flights and dead letters together are the CSV's lines."""
    good, dead, flights = (one(db, f"SELECT count(*) FROM {t}") for t in (FLIGHTS, DEAD, "csv"))
    says = f"{good:,} flights + {dead:,} dead letters = {good + dead:,}"
    return Finding("sum", good + dead == flights, f"{says}; the CSV holds {flights:,}")
