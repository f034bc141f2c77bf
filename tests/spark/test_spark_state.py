"""State on real Spark, Kafka and S3: the second day runs first, reads the first in Kafka, and needs no refresh."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulation import state_reference as reference
from spark.conftest import DAY, SparkLake, columns
from tallystick.operations.commit import commit
from tallystick.operations.verify import verify
from tallystick.pipeline import Column, Lookback, Table
from tallystick.protocol.staleness import stale
from tallystick.tables.staging import IcebergTables

JOB = """
from datetime import timedelta
from pyspark.sql import functions as F
from tallystick.spark import run_dataframe
from tallystick.spark.state import deduplicated, running, sessioned, windowed
from tallystick.stateful import Aggregate, Sessions, Windows

SUMS = {"n": Aggregate(how="count"), "total": Aggregate(how="sum", column="flight")}

def transform(records, context):
    first, seen = deduplicated(
        context, records, key=["origin"], horizon=timedelta(hours=20), seen="seen"
    )
    hours = windowed(
        context, records, Windows(size=timedelta(hours=1), lateness=timedelta(hours=20)),
        key=["origin"], time="departure", aggregates=SUMS, partials="window_parts",
    )
    visits = sessioned(
        context, records, Sessions(gap=timedelta(hours=19, minutes=30), longest=timedelta(hours=48)),
        key=["origin"], time="departure", aggregates=SUMS, partials="session_parts",
    )
    more = {}
    if context.back is None:
        values, parts = running(
            context, records, key=["origin"], aggregates=SUMS, partials="running_parts"
        )
        more = {"running": values.withColumn("as_of", F.lit(context.end)), "running_parts": parts}
    return {
        **more,
        "kept": first.select("origin", "flight", "_topic", "_kafka_partition", "_offset", "_timestamp"),
        "seen": seen,
        "hours": hours.closed,
        "window_parts": hours.partials,
        "visits": visits.closed,
        "session_parts": visits.partials,
        "outside": hours.outside.unionByName(visits.outside).unionByName(visits.late),
    }

if __name__ == "__main__":
    run_dataframe(transform)
"""
SUMMED = [Column("origin", "string"), Column("n", "long"), Column("total", "long")]
WINDOW = [Column("window_start", "timestamptz"), *SUMMED]
SESSION = [
    Column("session_start", "timestamptz"),
    Column("session_end", "timestamptz"),
    *SUMMED,
]
PARTIAL = [
    Table("seen", columns=[SUMMED[0], Column("last_seen", "timestamptz")], keys=["origin"]),
    Table("window_parts", columns=WINDOW, keys=["window_start", "origin"]),
    Table("session_parts", columns=SESSION, keys=["origin", "session_start", "session_end"]),
]
RUNNING_PARTS = Table("running_parts", columns=SUMMED, keys=["origin"])
RUNNING = Table("running", columns=[*SUMMED, Column("as_of", "timestamptz")], keys=["origin"])
RESULTS = [
    Table("kept", columns=[SUMMED[0], Column("flight", "int")]),
    Table(
        "hours",
        columns=[*WINDOW, Column("window_end", "timestamptz")],
        keys=["window_start", "origin"],
    ),
    Table("visits", columns=SESSION, keys=["origin", "session_start"]),
    # Unchanged records, in a table of the topic's columns.
    Table("outside", columns=columns()),
]
RULES = reference.Rules(
    horizon=20 * reference.HOUR,
    size=reference.HOUR,
    slide=reference.HOUR,
    lateness=20 * reference.HOUR,
    ahead=0,
)
VISITS = replace(
    RULES, lateness=0, gap=19 * reference.HOUR + 30 * reference.MINUTE, longest=48 * reference.HOUR
)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.fixture
def state_lake(spark_lake: SparkLake) -> SparkLake:
    pipeline = replace(
        spark_lake.pipeline(),
        tables=[*RESULTS, *PARTIAL],
        lookback=Lookback(tables=[t.name for t in PARTIAL], back=timedelta(days=3)),
    )
    spark_lake.pipeline = lambda: pipeline
    spark_lake.job.write_text(JOB)
    return spark_lake


def run(lake: SparkLake, *days: int) -> list[Any]:
    """Plan, stage and commit some days with one job. Return their reports."""
    plans = [lake.plan(day) for day in days]
    ended = lake.submit(plans)
    reports = [lake.report(ended, index) for index in range(len(plans))]
    tables = IcebergTables(lake.lake.store, lake.lake.runtime)
    for plan, report in zip(plans, reports, strict=True):
        commit(lake.lake, tables, plan_key=plan.key, report_key=report.key)
    return reports


def rows(lake: SparkLake, reports: list[Any], table: str) -> list[dict[str, Any]]:
    files = [f for report in reports for f in report.files if f.table == table]
    return list(lake.rows(files).to_pylist()) if files else []


def test_the_second_day_reads_the_first_in_kafka_and_gives_the_same_rows_as_one_pass(
    state_lake: SparkLake,
) -> None:
    (second,) = run(state_lake, 1)
    assert second.lookback is not None
    (seen,) = second.lookback.seen
    assert (seen.records, seen.interval.start) == (600, DAY - timedelta(days=2))
    (first,) = run(state_lake, 0)
    # The records that were read in Kafka are committed now: no interval has to run again.
    assert not stale(state_lake.lake.read(lambda snapshot: snapshot.whole_ledger().entries))
    _check(state_lake, [first, second])
    proof = verify(state_lake.lake, deep=True)
    assert proof.proven, proof


# In `make test`, tests/simulation/test_orders.py has this rule, and a mutant of it.
@pytest.mark.long
def test_one_run_over_both_days_reads_what_it_has_staged(state_lake: SparkLake) -> None:
    partial = [*PARTIAL, RUNNING_PARTS]
    back = Lookback(tables=[t.name for t in partial], back=None, uncommitted="stale")
    pipeline = replace(state_lake.pipeline(), tables=[*RESULTS, RUNNING, *partial], lookback=back)
    state_lake.pipeline = lambda: pipeline
    first, second = run(state_lake, 0, 1)
    assert first.lookback is not None
    assert not first.lookback.seen
    assert [s.records for s in second.lookback.seen] == [600]
    assert not stale(state_lake.lake.read(lambda snapshot: snapshot.whole_ledger().entries))
    _check(state_lake, [first, second])
    running = rows(state_lake, [first, second], "running")
    ends = [ms(DAY + timedelta(days=n)) for n in (1, 2)]
    wanted = Counter(row[:4] for row in reference.running(_events(state_lake), ends))
    assert Counter((ms(r["as_of"]), r["origin"], r["n"], r["total"]) for r in running) == wanted


def _events(lake: SparkLake) -> list[reference.Event]:
    """Return the topic's records. They are in order, so their log time is their own timestamp."""
    events = [
        reference.Event(
            partition=partition,
            offset=offset,
            log_ms=ms(datetime.fromisoformat(row["departure"]).astimezone(UTC)),
            key=row["origin"],
            amount=row["flight"],
            event_ms=ms(datetime.fromisoformat(row["departure"]).astimezone(UTC)),
        )
        for (partition, offset), row in lake.servers.produced.rows.items()
    ]
    for partition in range(2):
        mine = sorted((e.offset, e.log_ms) for e in events if e.partition == partition)
        assert sorted(mine, key=lambda e: (e[1], e[0])) == mine
    return events


def _check(lake: SparkLake, reports: list[Any]) -> None:
    events = _events(lake)
    first, last = ms(DAY), ms(DAY + timedelta(days=2))
    kept = {(r["_kafka_partition"], r["_offset"]) for r in rows(lake, reports, "kept")}
    assert kept == set(reference.kept(events, RULES))
    # Without the lookback the second day would also keep one record of each origin.
    assert len(kept) == 3
    closed, late = reference.windows(events, RULES, first, last)
    assert not late
    found = Counter(
        (ms(r["window_start"]), r["origin"], r["n"], r["total"])
        for r in rows(lake, reports, "hours")
    )
    assert found == Counter(closed)
    # The last windows of the first day are closed on the second, from the first day's partial rows.
    on_second = {ms(r["window_start"]) for r in rows(lake, reports[1:], "hours")}
    assert first + 4 * reference.HOUR in on_second
    visits = Counter(
        (r["origin"], ms(r["session_start"]), ms(r["session_end"]), r["n"], r["total"])
        for r in rows(lake, reports, "visits")
    )
    assert visits == Counter(reference.sessions(events, VISITS, first, last))
