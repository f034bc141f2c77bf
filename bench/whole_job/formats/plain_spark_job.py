"""The job of plain Spark for a record set: its Kafka source, from_json or from_avro, and Parquet: spark-submit ... ORDER.

ORDER is as that of the clicks, with `record_set`, and for Avro `schema`, the text of the schema. It imports nothing but
pyspark and that job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from bench.whole_job.contenders.plain_spark_job import (
    CORRUPT,
    EVENT,
    PLACE,
    is_valid,
    parsed_json,
    source,
    write,
)

DOCUMENT = {
    "order_id": "string",
    "status": "string",
    "placed_at": "timestamp",
    "currency": "string",
    "total": "decimal(12,2)",
    "customer": "struct<id: bigint, name: string, email: string, vip: boolean, referrer: string>",
    "shipping": "struct<street: string, city: string, zip: string, country: string, "
    "geo: struct<lat: double, lon: double>>",
    "items": "array<struct<sku: string, title: string, quantity: int, price: double, discount: double, gift: boolean>>",
    "tags": "array<string>",
    "note": "string",
    "attempts": "int",
    "paid": "boolean",
}
FLIGHT = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "int",
    "sched_dep_time": "int",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int",
    "arr_delay": "int",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "int",
    "distance": "int",
    "hour": "int",
    "minute": "int",
    "time_hour": "timestamp",
    "departure": "timestamp",
}
JSON = {"documents": DOCUMENT, "flights": FLIGHT}


def main(path: Path) -> None:
    """Do the job of an order."""
    order = json.loads(path.read_text())
    session = SparkSession.builder.appName("formats").getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    write(events(session, order), order, "events")
    session.stop()


def events(session: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Return the valid records of an order in columns, with their places."""
    found = source(session, order)
    if order["record_set"] == "avro":
        parsed = found.select(parsed_avro(order["schema"]), *PLACE)
        # A record that is cut off is read as one whose fields are all null.
        return parsed.where(f.col("j.event_id").isNotNull()).select(*EVENT, *PLACE)
    fields = JSON[order["record_set"]]
    schema = ", ".join(f"{name} {kind}" for name, kind in {**fields, CORRUPT: "string"}.items())
    parsed = found.select(parsed_json(schema), *PLACE)
    return parsed.where(is_valid()).select(*(f"j.{name}" for name in fields), *PLACE)


def parsed_avro(schema: str) -> Column:
    """Return the parsed value as `j`, without the five bytes in front of the record."""
    content = f.expr("substring(value, 6)")
    return from_avro(content, schema, {"mode": "PERMISSIVE"}).alias("j")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
