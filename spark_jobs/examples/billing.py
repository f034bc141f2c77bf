"""The usage of each customer in each hour, in whole cents: invoices of closed hours, and late usage."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallystick.spark import Aggregate, Context, Windows, run_dataframe, windowed

CENTS_PER_UNIT = {"compute": 5, "traffic": 1, "archive": 2}
HOURS = Windows(size=timedelta(hours=1), lateness=timedelta(minutes=15))
SUMS = {"events": Aggregate(how="count"), "cents": Aggregate(how="sum", column="price")}


def transform(records: DataFrame, context: Context) -> dict[str, DataFrame]:
    """Return the invoices of the hours that this interval closes, and what its late records add to closed ones."""
    tariff = F.create_map(*[F.lit(x) for pair in CENTS_PER_UNIT.items() for x in pair])
    priced = records.withColumn("price", (F.col("units") * tariff[F.col("service")]).cast("long"))
    hours = windowed(
        context,
        priced,
        HOURS,
        key=["customer"],
        time="used_at",
        aggregates=SUMS,
        partials="parts",
    )
    return {
        "invoices": hours.closed,
        "corrections": hours.late,
        "outside": hours.outside.drop("price"),
        "parts": hours.partials,
    }


if __name__ == "__main__":
    run_dataframe(transform)
