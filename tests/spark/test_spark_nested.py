"""A DataFrame job that returns nested values, UUIDs, times, keys and headers: each record once, with Spark's values."""

from __future__ import annotations

import uuid
from datetime import time
from typing import Any

from support.flights_jobs import by_place
from tallystick.operations.commit import check_report
from tallystick.pipeline import Column, Json, Pipeline, Table, Text, Topic

JOB = """
from pyspark.sql import functions as F
from tallystick.spark import run_dataframe

NUMBER = "00112233-4455-6677-8899-aabbccddeeff"

def transform(records):
    return records.repartition(3, "flight").select(
        "flight",
        F.struct("dest", F.struct("origin").alias("from")).alias("route"),
        F.array(F.col("dep_delay"), F.col("flight")).alias("numbers"),
        F.create_map(F.lit("delay"), F.struct("dep_delay")).alias("measures"),
        F.lit(NUMBER).alias("number"),
        F.expr("TIME'05:15:00.123456'").alias("clock"),
        F.expr("X'6869'").alias("digest"),
        "plane", "headers",
        F.decode(F.col("headers")["origin"][0], "utf-8").alias("origin"),
        "_topic", "_kafka_partition", "_offset", "_timestamp",
    )

if __name__ == "__main__":
    run_dataframe(transform)
"""


def test_nested_columns_of_a_dataframe_are_written_exactly(spark_lake: Any) -> None:
    base = spark_lake.pipeline()
    (flights,) = (t for t in base.topics)
    table = Table(
        "routes",
        columns=[
            Column("flight", "int"),
            Column("route", "struct<dest: string, from: struct<origin: string>>"),
            Column("numbers", "list<optional int>"),
            Column("measures", "map<string, struct<dep_delay: optional int>>"),
            Column("number", "uuid"),
            Column("clock", "time"),
            Column("digest", "fixed[2]"),
            Column("plane", "string", required=False),
            Column("headers", "map<string, list<optional binary>>"),
            Column("origin", "string", required=False),
        ],
    )
    pipeline = Pipeline(
        name="flights",
        topics=[
            Topic(
                flights.name,
                decode=Json(flights.decode.columns),
                key=Text("plane", tombstones="keep"),
                headers="headers",
            )
        ],
        warehouse=spark_lake.uri,
        job="job.py",
        tables=[table],
        records_per_task=spark_lake.records_per_task,
    )
    spark_lake.pipeline = lambda: pipeline
    spark_lake.job.write_text(JOB)
    plan = spark_lake.plan(0)
    ended = spark_lake.submit([plan])
    report = spark_lake.report(ended, 0)
    check_report(spark_lake.lake, plan, report)
    found = by_place(spark_lake.rows([f for f in report.files if f.table == "routes"]))
    produced = spark_lake.servers.produced
    wanted = {p: r for p, r in produced.rows.items() if p[1] < produced.middle[p[0]]}
    assert found.keys() == wanted.keys()
    for place, row in wanted.items():
        assert {n: found[place][n] for n in ("flight", "route", "numbers", "measures")} == {
            "flight": row["flight"],
            "route": {"dest": row["dest"], "from": {"origin": row["origin"]}},
            "numbers": [row["dep_delay"], row["flight"]],
            "measures": [("delay", {"dep_delay": row["dep_delay"]})],
        }
        assert found[place]["number"] == uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
        assert found[place]["clock"] == time(5, 15, 0, 123_456)
        assert found[place]["digest"] == b"hi"
        without_key = row["flight"] % 7 == 0
        assert found[place]["plane"] == (None if without_key else row["tailnum"])
        assert found[place]["origin"] == ("test" if without_key else None)
        assert found[place]["headers"] == ([("origin", [b"test", None])] if without_key else [])
