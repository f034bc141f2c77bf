"""The average of each sensor's readings from the beginning to the end of the interval, as a sum and a count."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallystick.spark import Aggregate, Context, run_dataframe, running

# The readings of this sensor are half a degree too high; with CALIBRATED they are corrected.
CALIBRATED = False
WARM, TOO_WARM = "s3", Decimal("0.50")
SUMS = {
    "readings": Aggregate(how="count"),
    "total": Aggregate(how="sum", column="celsius"),
}


def transform(records: DataFrame, context: Context) -> dict[str, DataFrame]:
    """Return the averages as of the interval's end, and this interval's own sums: the state."""
    if CALIBRATED:
        corrected = F.when(F.col("sensor") == WARM, F.col("celsius") - TOO_WARM)
        records = records.withColumn("celsius", corrected.otherwise(F.col("celsius")))
    values, parts = running(
        context, records, key=["sensor"], aggregates=SUMS, partials="sensor_parts"
    )
    as_of = F.lit(context.end)
    # A division of decimals: exact, and rounded half up to six places, independent of the order of intervals.
    average = (F.col("total") / F.col("readings")).cast("decimal(12,6)")
    return {
        "averages": values.withColumns({"as_of": as_of, "average": average}),
        "sensor_parts": parts.withColumn("as_of", as_of),
    }


if __name__ == "__main__":
    run_dataframe(transform)
