"""The job of the contenders that write a table by Spark: its Kafka source, from_json, and one append.

    spark-submit ... spark_table_job.py ORDER

ORDER is a JSON file: topic, ends, bootstrap, kafka (options of the source), write (options of the writer), sink, and
`table` (iceberg) or `output` (delta, stream).

    iceberg   append to a table of a catalog
    delta     append to a Delta table by its path
    stream    Structured Streaming with the trigger AvailableNow into Parquet files; `checkpoint` is its folder

The records are read and checked as by plain Spark's job. It imports nothing but pyspark and that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.whole_job.contenders.plain_spark_job import (
    EVENT,
    PLACE,
    SCHEMA,
    is_valid,
    parsed_json,
    records,
)


def main(path: Path) -> None:
    """Do the job of an order."""
    order = json.loads(path.read_text())
    session = SparkSession.builder.appName("clicks").getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    is_stream = order["sink"] == "stream"
    parsed = streamed(session, order) if is_stream else records(session, order)
    good = parsed.where(is_valid()).select(*EVENT, *PLACE)
    match order["sink"]:
        case "iceberg":
            good.writeTo(order["table"]).options(**order["write"]).append()
        case "delta":
            writer = good.write.format("delta").mode("append")
            writer.options(**order["write"]).save(order["output"])
        case "stream":
            stream(good, order)
    session.stop()


def streamed(session: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Return the same as `records`, as a stream from offset 0; its end is the end of the topic when the query starts."""
    topic, partitions = order["topic"], range(len(order["ends"]))
    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order["bootstrap"])
        .option("assign", json.dumps({topic: list(partitions)}))
        .option("startingOffsets", json.dumps({topic: {str(p): 0 for p in partitions}}))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
    )
    for name, value in order["kafka"].items():
        reader = reader.option(name, value)
    return reader.load().select(parsed_json(SCHEMA), *PLACE)


def stream(good: DataFrame, order: dict[str, Any]) -> None:
    """Run the query until it has read all that was there when it started."""
    writer = good.writeStream.format("parquet").options(**order["write"])
    query = (
        writer.option("checkpointLocation", order["checkpoint"])
        .option("path", order["output"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
