"""The table of the pipeline `ontime`, against a GROUP BY of the CSV and the list of airlines in the same package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from examples.checks import Finding, finding
from examples.demo.check.lake import DEAD, ONTIME
from examples.demo.check.queries import first, number

# The fields that the pipeline declares: for this pipeline a wrong value in another field is no error.
DECLARED = ("carrier", "dep_delay", "departure")
_LATE_MINUTES = 15


def check_ontime(db: duckdb.DuckDBPyConnection, airlines: Path) -> Iterator[Finding]:
    """Check that each airline and day occurs once, with the counts, the share and the name of the CSV files."""
    db.execute(f"CREATE VIEW airlines AS SELECT carrier, name FROM read_csv('{airlines}')")
    db.execute(
        "CREATE VIEW punctual AS SELECT carrier, departure::DATE AS day, name AS airline, count(*) AS flights, "
        f"count(*) FILTER (dep_delay < {_LATE_MINUTES}) AS on_time, on_time / flights AS share "
        "FROM good LEFT JOIN airlines USING (carrier) GROUP BY ALL"
    )
    rows = number(db, f"SELECT count(*) FROM {ONTIME}")
    yield finding(
        "ontime: once",
        f"{rows:,} rows, each airline and day once",
        first(
            db,
            "carrier, day {} occurs more than once",
            f"FROM {ONTIME} GROUP BY carrier, day HAVING count(*) > 1",
            "carrier, day",
        ),
    )
    names = ("airline", "flights", "on_time", "share")
    table, truth = (", ".join(f"{side}.{n}" for n in names) for side in "ts")
    yield finding(
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


def check_sum(db: duckdb.DuckDBPyConnection) -> Finding:
    """Check that counted flights plus dead letters are the number of lines of the CSV."""
    good = number(db, f"SELECT coalesce(sum(flights), 0) FROM {ONTIME}")
    dead, flights = (number(db, f"SELECT count(*) FROM {t}") for t in (DEAD, "csv"))
    text = f"{good:,} flights counted + {dead:,} dead letters = {good + dead:,}"
    text = f"{text}; the CSV has {flights:,}"
    return Finding(check="sum", holds=good + dead == flights, text=text)
