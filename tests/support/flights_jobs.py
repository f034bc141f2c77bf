"""Jobs that several test modules run, and checks that they staged exactly the records of the topic."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from tallystick.pipeline import Column, Pipeline, Table

FRAMES_JOB = """
import json
import os
from pathlib import Path
from pyspark.sql import functions as F
from tallystick.spark import run_dataframe

def settings_of(spark):
    java = spark._jvm.java.lang
    machine = java.management.ManagementFactory.getRuntimeMXBean()
    properties = java.System.getProperties()
    return {
        "conf": dict(spark.sparkContext.getConf().getAll()),
        "session": dict(spark.conf.getAll),
        "properties": {str(name): str(properties.get(name)) for name in properties},
        "arguments": [str(argument) for argument in machine.getInputArguments()],
    }

def transform(records, context):
    if "TEST_SEEN" in os.environ:
        records.count()  # the tasks have received their closures, too
        Path(os.environ["TEST_SEEN"]).write_text(json.dumps(settings_of(context.spark)))
    airlines = context.spark.createDataFrame([("UA", "United")], "carrier string, name string")
    joined = records.join(F.broadcast(airlines), "carrier", "left")
    wide = (
        records.repartition(5, "tailnum")
        .join(airlines, "carrier", "left")
        .withColumn("id", context.stable_id())
        .withColumn("part_id", context.stable_id("origin", F.lit(7)))
        .withColumn("of_day", F.lit(context.start))
    )
    per_origin = (
        joined.groupBy("origin", "name")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("delay"))
    )
    return {"flights": wide, "origins": per_origin}

if __name__ == "__main__":
    run_dataframe(transform)
"""


def by_place(table: Any) -> dict[tuple[int, int], dict[str, Any]]:
    rows = table.to_pylist()
    found = {(r["_kafka_partition"], r["_offset"]): r for r in rows}
    assert len(found) == len(rows), "a record has two rows"
    return found


def assert_arrow_exact(spark_lake: Any, report: Any, day: int) -> None:
    """Assert that the report's files contain exactly the day's records: each once, with its values."""
    produced = spark_lake.servers.produced
    edges = ([0, 0], produced.middle, produced.ends)

    def inside(place: tuple[int, int]) -> bool:
        return edges[day][place[0]] <= place[1] < edges[day + 1][place[0]]

    wanted = {place: row for place, row in produced.rows.items() if inside(place)}
    found = by_place(spark_lake.rows([f for f in report.files if f.table == "flights"]))
    assert found.keys() == wanted.keys()
    for place, row in wanted.items():
        departure = datetime.fromisoformat(row["departure"])
        assert {name: found[place][name] for name in row} == row | {"departure": departure}
        assert found[place]["_timestamp"] == departure
    hours = Counter(
        (datetime.fromisoformat(r["departure"]).replace(minute=0), r["origin"])
        for r in wanted.values()
    )
    counted = spark_lake.rows(
        [f for f in report.files if f.table == "departures_hourly"]
    ).to_pylist()
    assert {(r["hour"], r["origin"]): r["departures"] for r in counted} == hours
    assert len(counted) == len(hours), "a key has two rows"
    totals = {
        name: sum(getattr(a, name) for a in report.accounts)
        for name in ("records", "dead_letters", "aborted", "control")
    }
    assert totals == {"records": 600, "dead_letters": 10, "aborted": 10, "control": 2}


def frames_pipeline(arrow: Pipeline) -> Pipeline:
    """Return a pipeline with every flight and its airline's name, and aggregates per origin."""
    [flights] = [t for t in arrow.tables if t.name == "flights"]
    named = [
        *flights.columns,
        Column("name", "string", required=False),
        Column("id", "string"),
        Column("part_id", "string"),
        Column("of_day", "timestamptz"),
    ]
    origins = [
        Column("origin", "string"),
        Column("name", "string", required=False),
        Column("flights", "long"),
        Column("delay", "double", required=False),
    ]
    return replace(
        arrow,
        topics=[replace(arrow.inputs[0])],
        tables=[
            Table("flights", columns=named, partition_by=["day(departure)"]),
            Table("origins", columns=origins, keys=["origin", "name"]),
        ],
    )


def assert_frames_exact(lake: Any, plan: Any, report: Any, day: int) -> None:
    """Assert that the flights are the day's records, each once; the aggregates and the account are exact."""
    produced = lake.servers.produced
    edges = ([0, 0], produced.middle, produced.ends)
    wanted = {
        (p, o): row
        for (p, o), row in produced.rows.items()
        if edges[day][p] <= o < edges[day + 1][p]
    }
    rows = lake.rows([f for f in report.files if f.table == "flights"]).to_pylist()
    found = {(r["_kafka_partition"], r["_offset"]): r for r in rows}
    assert len(found) == len(rows), "a record has two rows"
    assert found.keys() == wanted.keys()
    for place, row in wanted.items():
        departure = datetime.fromisoformat(row["departure"])
        record = f"{plan.topics[0].topic_id}/{place[0]}/{place[1]}/"
        part = json.dumps({"origin": row["origin"], "col2": 7}, separators=(",", ":"))
        expected = row | {
            "departure": departure,
            "name": "United",
            "id": sha256(record.encode()).hexdigest(),
            "part_id": sha256(f"{record}{part}".encode()).hexdigest(),
            "of_day": plan.interval.start,
        }
        assert {name: found[place][name] for name in expected} == expected
        assert found[place]["_timestamp"] == departure
        assert found[place]["_topic"] == "flights"
    counted = lake.rows([f for f in report.files if f.table == "origins"]).to_pylist()
    assert {r["origin"]: r["flights"] for r in counted} == Counter(
        row["origin"] for row in wanted.values()
    )
    assert len(counted) == 3, "a key has two rows"
    assert all(r["delay"] == -2.0 and r["name"] == "United" for r in counted)
    totals = {
        name: sum(getattr(a, name) for a in report.accounts)
        for name in ("records", "dead_letters", "aborted", "control")
    }
    assert totals == {"records": 600, "dead_letters": 10, "aborted": 10, "control": 2}
