"""The last record of each payment in the interval, by its transaction id."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallystick.spark import run_dataframe

KEEP_CANCELLED = True
COLUMNS = ["account", "cents", "status", "happened"]


def transform(records: DataFrame) -> dict[str, DataFrame]:
    """Return one row per id: its record with the highest offset, because all records of an id are in one partition."""
    selected = records if KEEP_CANCELLED else records.where(F.col("status") != "cancelled")
    last = selected.groupBy("txn_id").agg(F.max_by(F.struct(*COLUMNS), "_offset").alias("last"))
    return {"payments": last.select("txn_id", *[F.col(f"last.{name}") for name in COLUMNS])}


if __name__ == "__main__":
    run_dataframe(transform)
