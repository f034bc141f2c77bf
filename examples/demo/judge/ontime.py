"""The on-time example's table, against a GROUP BY of the CSV and the list of airlines beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from examples.demo.judge.asking import Finding, first, none_of, one
from examples.demo.judge.lake import DEAD, ONTIME

# What the pipeline declares of a flight: in other fields, nothing is wrong to it.
DECLARED = ("carrier", "dep_delay", "departure")
_LATE_MINUTES = 15


def judge_ontime(db: duckdb.DuckDBPyConnection, airlines: Path) -> Iterator[Finding]:
    """Each airline and day once, with the counts, the share and the name that the CSV files give."""
    db.execute(f"CREATE VIEW airlines AS SELECT carrier, name FROM read_csv('{airlines}')")
    db.execute(
        "CREATE VIEW punctual AS SELECT carrier, departure::DATE AS day, name AS airline, count(*) AS flights, "
        f"count(*) FILTER (dep_delay < {_LATE_MINUTES}) AS on_time, on_time / flights AS share "
        "FROM good LEFT JOIN airlines USING (carrier) GROUP BY ALL"
    )
    rows = one(db, f"SELECT count(*) FROM {ONTIME}")
    yield none_of(
        "ontime: once",
        f"{rows:,} rows, each airline and day once",
        first(
            db,
            "carrier, day {} stand there more than once",
            f"FROM {ONTIME} GROUP BY carrier, day HAVING count(*) > 1",
            "carrier, day",
        ),
    )
    names = ("airline", "flights", "on_time", "share")
    table, truth = (", ".join(f"{side}.{n}" for n in names) for side in "ts")
    yield none_of(
        "ontime: =",
        "flights, flights on time, share and airline equal a GROUP BY of the CSV",
        first(
            db,
            "carrier, day, then airline, flights, on time, share in the table and by the CSV: {}",
            f"FROM {ONTIME} t FULL JOIN punctual s USING (carrier, day) "
            f"WHERE ({table}) IS DISTINCT FROM ({truth})",
            f"carrier, day, {table}, {truth}",
        ),
    )


def judge_sum(db: duckdb.DuckDBPyConnection) -> Finding:
    """The flights that are counted and the dead letters together are the CSV's lines."""
    good = one(db, f"SELECT coalesce(sum(flights), 0) FROM {ONTIME}")
    dead, flights = (one(db, f"SELECT count(*) FROM {t}") for t in (DEAD, "csv"))
    says = f"{good:,} flights counted + {dead:,} dead letters = {good + dead:,}"
    return Finding("sum", good + dead == flights, f"{says}; the CSV holds {flights:,}")
