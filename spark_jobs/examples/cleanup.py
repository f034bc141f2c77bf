"""Flights per airline and day: a DataFrame job, so each attempt first lands its records in the lake's scratch."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallystick.spark import run_dataframe

# With another value the job file is a changed job: an interval that is cleared then gets a new plan.
VERSION = 1


def transform(records: DataFrame) -> dict[str, DataFrame]:
    """Return one row per carrier and day of this interval's flights."""
    day = F.to_date("departure").alias("day")
    return {"per_airline": records.groupBy("carrier", day).agg(F.count("*").alias("flights"))}


if __name__ == "__main__":
    run_dataframe(transform)
