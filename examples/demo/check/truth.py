"""The reference: the CSV, and the producer's record of what it sent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from examples.checks import Finding, finding
from examples.demo.check.queries import first, number


def load(
    db: duckdb.DuckDBPyConnection,
    csv_archive: Path,
    sent: Path,
    *,
    until: datetime | None,
    declared: Sequence[str] | None,
) -> None:
    """Create the tables `csv` (one row per flight, `row` from 1, `departure` in UTC) and `sent`, each up to `until`.

    A record whose wrong field is not in `declared` is valid (None: every field is declared).
    """
    with zipfile.ZipFile(csv_archive) as archive:
        body = archive.read("flights.csv")
    texts = {name: pa.string() for name in ("carrier", "tailnum", "origin", "dest")}
    flights = pyarrow.csv.read_csv(
        io.BytesIO(body),
        convert_options=pyarrow.csv.ConvertOptions(
            null_values=["NA"],
            strings_can_be_null=True,
            column_types={**texts, "time_hour": pa.timestamp("us", tz="UTC")},
        ),
    )
    rows = pa.array(range(1, flights.num_rows + 1), pa.int32())
    lines = flights.append_column("row", rows)
    log = pq.read_table(sent)
    db.register("lines", lines)
    db.register("log", log)
    # The CSV has the hour of departure in UTC, and the scheduled minute: no time zone is needed.
    db.execute(
        "CREATE TABLE csv AS SELECT *, time_hour + to_minutes(minute) AS departure FROM lines"
    )
    if until is not None:
        db.execute("DELETE FROM csv WHERE departure >= ?", [until])
    db.execute('CREATE TABLE sent AS SELECT * RENAME ("offset" AS place) FROM log')
    if until is not None:
        db.execute("DELETE FROM sent WHERE at_ms >= epoch_ms(?::TIMESTAMPTZ)", [until])
    if declared is not None:
        db.execute(
            "UPDATE sent SET kind = 'ok' WHERE kind = 'type' AND NOT list_contains(?, wrong)",
            [list(declared)],
        )
    db.execute("CREATE VIEW good AS SELECT * FROM sent JOIN csv USING (row) WHERE sent.kind = 'ok'")


def check_sent(db: duckdb.DuckDBPyConnection) -> Finding:
    """Check the producer's record itself: each flight once, each offset once."""
    flights = number(db, "SELECT count(*) FROM csv")
    kinds = dict(db.execute("SELECT kind, count(*) FROM sent GROUP BY 1 ORDER BY 1").fetchall())
    problem = (
        first(db, "the CSV's flight {} was not sent", "FROM csv ANTI JOIN sent USING (row)", "row")
        or first(
            db,
            "the CSV's flight {} was sent more than once",
            "FROM sent WHERE kind <> 'aborted' GROUP BY row HAVING count(*) > 1",
            "row",
        )
        or first(
            db,
            "two records were sent to partition, offset {}",
            "FROM sent GROUP BY partition, place HAVING count(*) > 1 OR min(place) < 0",
            "partition, place",
        )
        or first(db, "flight {} is not in the CSV", "FROM sent ANTI JOIN csv USING (row)", "row")
    )
    figures = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return finding("sent", f"{flights:,} flights of the CSV: {figures}", problem)
