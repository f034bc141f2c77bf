"""Runs transforms of the examples on rows in memory, in one Spark session, and writes what they return to a file.

    python example_transforms.py CASES RESULTS

CASES is JSON: a list of cases {job, days, records, state, back_s}. `topics` of a day are lists of rows by topic; the rows
of the tables in `state` are the lookback of later days. RESULTS gets, per case and day, the rows of each table by name.
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


def main(cases: Path, results: Path) -> None:
    """Run each case, and write the results."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        tables = [run_case(session, case) for case in json.loads(cases.read_text())]
        results.write_text(json.dumps(tables))
    finally:
        session.stop()


def run_case(session: SparkSession, case: dict[str, Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """Run one job over its days; each day reads the state of the days before it."""
    transform = runpy.run_path(str(PROJECT / "spark_jobs" / "examples" / f"{case['job']}.py"))[
        "transform"
    ]
    earlier = {name: frame(session, [], ddl) for name, ddl in case["state"].items()}
    answers = []
    for day in case["days"]:
        topics = {
            name: frame(session, rows, f"{case['records']}, {LINEAGE}")
            for name, rows in day["topics"].items()
        }
        context = Context(
            spark=session,
            start=datetime.fromisoformat(day["start"]),
            end=datetime.fromisoformat(day["end"]),
            planned_at=datetime(2026, 1, 1, tzinfo=UTC),
            topic_ids={},
            rows_before=earlier,
            back=timedelta(seconds=case["back_s"]) if case["back_s"] is not None else None,
        )
        records = topics if len(topics) > 1 else next(iter(topics.values()))
        # The transform of a job without a lookback has no parameter `context`.
        frames: Frames = transform(records, context) if case["state"] else transform(records)
        answers.append(
            {name: [row.asDict() for row in rows.collect()] for name, rows in frames.items()}
        )
        earlier = {name: before.unionByName(frames[name]) for name, before in earlier.items()}
    return json.loads(json.dumps(answers, default=plain))


def frame(session: SparkSession, rows: list[dict[str, Any]], ddl: str) -> DataFrame:
    """Return rows of JSON as a DataFrame with these columns."""
    schema = StructType.fromDDL(ddl)
    values = [
        tuple(typed(field.dataType, row[field.name]) for field in schema.fields) for row in rows
    ]
    return session.createDataFrame(values, schema)


def typed(kind: object, value: Any) -> Any:
    """Return a value of JSON as Spark expects it."""
    if value is not None and isinstance(kind, TimestampType):
        return datetime.fromisoformat(value)
    if value is not None and isinstance(kind, DecimalType):
        return Decimal(value)
    return value


def plain(value: Any) -> str:
    """Return a time or a number for JSON. Spark returns times without a zone, in that of this process: TZ is UTC."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
