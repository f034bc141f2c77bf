"""The check of the on-time example passes for the right rows, and names the wrong ones."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.demo.check.ontime import DECLARED, check_ontime, check_sum
from examples.demo.check.truth import load
from examples.demo.flights import csv_archive
from examples.demo.produce import SENT_SCHEMA

AIRLINES = csv_archive().with_name("airlines.csv")
# Two airlines on one day: three flights (one late, one cancelled), and one.
GOOD = """
    CREATE TABLE good AS SELECT carrier, dep_delay, TIMESTAMPTZ '2013-01-02 10:00:00Z' AS departure
    FROM (VALUES ('UA', 14), ('UA', 15), ('UA', NULL), ('B6', -3)) t(carrier, dep_delay);
    CREATE TABLE ontime_daily AS SELECT * FROM (VALUES
        ('UA', DATE '2013-01-02', 'United Air Lines Inc.', 3, 1, 1 / 3),
        ('B6', DATE '2013-01-02', 'JetBlue Airways', 1, 1, 1.0)
    ) t(carrier, day, airline, flights, on_time, share);
"""


def bad(change: str) -> dict[str, str]:
    """Return the findings that do not hold after a change."""
    with duckdb.connect(":memory:") as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(GOOD + change)
        return {f.check: f.text for f in check_ontime(db, AIRLINES) if not f.holds}


def test_the_right_rows_pass() -> None:
    assert bad("") == {}


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        ("INSERT INTO ontime_daily FROM ontime_daily LIMIT 1", "ontime: once", "more than once"),
        ("UPDATE ontime_daily SET flights = 2 WHERE carrier = 'UA'", "ontime: =", "UA"),
        ("UPDATE ontime_daily SET on_time = 2 WHERE carrier = 'UA'", "ontime: =", "UA"),
        ("UPDATE ontime_daily SET share = 0.4 WHERE carrier = 'UA'", "ontime: =", "0.4"),
        ("UPDATE ontime_daily SET airline = NULL WHERE carrier = 'B6'", "ontime: =", "JetBlue"),
        ("UPDATE ontime_daily SET day = day + 1 WHERE carrier = 'B6'", "ontime: =", "2 in all"),
        ("DELETE FROM ontime_daily WHERE carrier = 'B6'", "ontime: =", "B6"),
        ("DELETE FROM good WHERE carrier = 'B6'", "ontime: =", "B6"),
    ],
)
def test_a_wrong_row_is_named(change: str, check: str, message: str) -> None:
    found = bad(change)
    assert message in found[check]


@pytest.mark.parametrize(("dead", "holds"), [(332_775, True), (332_774, False)])
def test_flights_and_dead_letters_add_up_to_the_lines_of_the_csv(dead: int, holds: bool) -> None:
    with duckdb.connect(":memory:") as db:
        db.execute(GOOD)
        db.execute(f"CREATE TABLE dead_letters AS FROM range({dead})")
        db.execute("CREATE TABLE csv AS FROM range(332779)")
        assert check_sum(db).holds is holds


def test_a_record_is_valid_if_its_wrong_field_is_not_declared(tmp_path: Path) -> None:
    """Records of later days are ignored."""
    sent = [
        {"partition": 0, "offset": 0, "kind": "type", "wrong": "carrier", "row": 1, "at_ms": 0},
        {"partition": 0, "offset": 1, "kind": "type", "wrong": "distance", "row": 2, "at_ms": 0},
        {"partition": 0, "offset": 2, "kind": "cut", "row": 3, "at_ms": 0},
        {"partition": 0, "offset": 3, "kind": "ok", "row": 4, "at_ms": 1_400_000_000_000},
    ]
    pq.write_table(pa.Table.from_pylist(sent, schema=SENT_SCHEMA), tmp_path / "sent.parquet")
    with duckdb.connect(":memory:") as db:
        db.execute("SET TimeZone = 'UTC'")
        load(
            db,
            csv_archive(),
            tmp_path / "sent.parquet",
            until=pa.scalar(1_390_000_000, pa.timestamp("s", tz="UTC")).as_py(),
            declared=DECLARED,
        )
        kinds = db.execute("SELECT row, kind FROM sent ORDER BY row").fetchall()
    assert kinds == [(1, "type"), (2, "ok"), (3, "cut")]
