"""Runs transforms of the examples on rows in memory, in one Spark session, and writes down what they return.

    python example_transforms.py ASKED TOLD

ASKED is JSON: a list of plays {job, days, records, state, back_s}. Of a day, `records` are lists of rows by topic; what a
table of `state` holds is looked back at by later days. TOLD gets, per play and day, the rows of each table by name.
"""

from __future__ import annotations

import json
import runpy
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, StructType, TimestampType

from tallystick.spark.context import Context

PROJECT = Path(__file__).parents[2]
LINEAGE = (
    "_topic string, _kafka_partition int, _offset bigint, _timestamp timestamp, _log_time timestamp"
)
Frames = dict[str, DataFrame]


def main(asked: Path, told: Path) -> None:
    """Play each, and write the answers."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        told.write_text(json.dumps([played(session, one) for one in json.loads(asked.read_text())]))
    finally:
        session.stop()


def played(session: SparkSession, play: dict[str, Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """One job over its days, each of which sees the state of those before it."""
    transform = runpy.run_path(str(PROJECT / "spark_jobs" / "examples" / f"{play['job']}.py"))[
        "transform"
    ]
    earlier = {name: frame(session, [], ddl) for name, ddl in play["state"].items()}
    answers = []
    for day in play["days"]:
        topics = {
            name: frame(session, rows, f"{play['records']}, {LINEAGE}")
            for name, rows in day["topics"].items()
        }
        context = Context(
            spark=session,
            start=datetime.fromisoformat(day["start"]),
            end=datetime.fromisoformat(day["end"]),
            planned_at=datetime(2026, 1, 1, tzinfo=UTC),
            topic_ids={},
            rows_before=earlier,
            back=timedelta(seconds=play["back_s"]) if play["back_s"] is not None else None,
        )
        records = topics if len(topics) > 1 else next(iter(topics.values()))
        # The words of a job that has no context are fewer.
        found: Frames = transform(records, context) if play["state"] else transform(records)
        kept = {name: [row.asDict() for row in rows.collect()] for name, rows in found.items()}
        answers.append(kept)
        earlier = {name: before.unionByName(found[name]) for name, before in earlier.items()}
    return json.loads(json.dumps(answers, default=plain))


def frame(session: SparkSession, rows: list[dict[str, Any]], ddl: str) -> DataFrame:
    """Rows of JSON as a frame of these columns."""
    schema = StructType.fromDDL(ddl)
    values = [
        tuple(typed(field.dataType, row[field.name]) for field in schema.fields) for row in rows
    ]
    return session.createDataFrame(values, schema)


def typed(kind: object, value: Any) -> Any:
    """A value of JSON as Spark wants it."""
    if value is not None and isinstance(kind, TimestampType):
        return datetime.fromisoformat(value)
    if value is not None and isinstance(kind, DecimalType):
        return Decimal(value)
    return value


def plain(value: Any) -> str:
    """An instant or a number for JSON. Spark gives instants without a zone, in this process's: TZ is UTC."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
