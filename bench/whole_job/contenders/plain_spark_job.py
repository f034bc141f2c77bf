"""The job of the contender plain Spark, by its own Kafka source, from_json and Parquet: spark-submit ... ORDER.

ORDER is a JSON file: topic, ends, bootstrap, output, case, kafka (options of the source), parquet (options of the writer)
and form: how the broken records are split off, and how three tables are written. With `intervals`, a list of starts, ends
and output, it does the job once for each of them, in one session, and otherwise once, from offset 0.

    naive     each table by a query of its own
    persist   the parsed records are kept by persist(), then as naive
    tagged    one write that is partitioned by a tag; the totals from a second read of the events

It imports nothing but pyspark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

FIELDS = {
    "event_id": "string",
    "event_type": "string",
    "user_id": "bigint",
    "session": "string",
    "ts": "bigint",
    "page": "string",
    "referrer": "string",
    "price": "double",
    "qty": "int",
    "device": "struct<os: string, ver: string>",
}
CORRUPT = "_corrupt_record"
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in {**FIELDS, CORRUPT: "string"}.items())
EVENT = tuple(f"j.{name}" for name in FIELDS)
PLACE = ("partition", "offset", "timestamp")


def main(path: Path) -> None:
    """Do the job of an order."""
    order = json.loads(path.read_text())
    session = SparkSession.builder.appName("clicks").getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    for interval in order.get("intervals", [{}]):
        replay(session, {**order, **interval})
    session.stop()


def replay(session: SparkSession, order: dict[str, Any]) -> None:
    """Read the ordered offsets and write the tables of the case."""
    parsed = records(session, order)
    if order["case"] == "one":
        good = parsed.where(is_valid()).select(*EVENT, *PLACE)
        write(good, order, "events")
    elif order["form"] == "tagged":
        tagged(session, parsed, order)
    else:
        kept = parsed.persist() if order["form"] == "persist" else parsed
        good = kept.where(is_valid()).select(*EVENT, *PLACE)
        write(good, order, "events")
        write(kept.where(~is_valid()).select(*PLACE, "value"), order, "dead_letters")
        write(totals(good), order, "totals")


def records(session: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Return the records of exactly the ordered offsets, with the parsed value as `j`."""
    return source(session, order).select(parsed_json(SCHEMA), "value", *PLACE)


def parsed_json(schema: str) -> Column:
    """Return the parsed value as `j`; a value that does not fit the schema is in its field `CORRUPT`."""
    options = {"columnNameOfCorruptRecord": CORRUPT}
    return f.from_json(f.col("value").cast("string"), schema, options).alias("j")


def source(session: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Return the records of exactly the ordered offsets, as Spark's Kafka source has them."""
    topic, ends = order["topic"], order["ends"]
    starts = {
        topic: {str(p): start for p, start in enumerate(order.get("starts", [0] * len(ends)))}
    }
    stops = {topic: {str(p): end for p, end in enumerate(ends)}}
    reader = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", order["bootstrap"])
        .option("assign", json.dumps({topic: list(range(len(ends)))}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(stops))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
    )
    for name, value in order["kafka"].items():
        reader = reader.option(name, value)
    return reader.load()


def is_valid() -> Column:
    """Return the condition that the value was JSON and every field had its type.

    One condition on one field: the optimizer may run from_json again for each field of a condition.
    """
    return f.col(f"j.{CORRUPT}").isNull()


def tagged(session: SparkSession, parsed: DataFrame, order: dict[str, Any]) -> None:
    """Write events and dead letters by one query, then read four columns of the events again for the totals."""
    tag = f.when(is_valid(), "events").otherwise("dead_letters").alias("tag")
    value = f.when(~is_valid(), f.col("value")).alias("value")
    both = parsed.select(*EVENT, *PLACE, value, tag)
    options = order["parquet"]
    folder = f"{order['output']}/tagged"
    both.write.options(**options).partitionBy("tag").parquet(folder)
    events = session.read.schema(both.schema).parquet(f"{folder}/tag=events")
    write(totals(events), order, "totals")


def totals(events: DataFrame) -> DataFrame:
    """Return the number and the revenue of the events per type and hour."""
    hour = (f.col("ts") / 3_600_000).cast("bigint").alias("hour")
    revenue = f.sum(f.col("price") * f.col("qty")).alias("revenue")
    return events.groupBy("event_type", hour).agg(f.count("*").alias("events"), revenue)


def write(frame: DataFrame, order: dict[str, Any], table: str) -> None:
    """Write a table as Parquet files. Safe to repeat: Spark refuses a folder that exists."""
    frame.write.options(**order["parquet"]).parquet(f"{order['output']}/{table}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
