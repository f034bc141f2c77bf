"""Clicks on ads: each event once, each click with the impression that it belongs to, counts per campaign and hour.

An event that is repeated within six hours, in log order, is a duplicate. A click belongs to the last impression of its
user and ad that is not a duplicate and is less than half an hour before it, by log time.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tallystick.spark import Context, deduplicated, run_dataframe

IMPRESSIONS, CLICKS = "examples-impressions", "examples-clicks"
HORIZON, ATTRIBUTION = timedelta(hours=6), timedelta(minutes=30)
CAMPAIGNS = {
    "a1": "winter",
    "a2": "winter",
    "a3": "travel",
    "a4": "travel",
    "a5": "books",
    "a6": "books",
}
LINEAGE = ["_topic", "_kafka_partition", "_offset", "_timestamp"]
EVENT = ["id", "user", "ad"]
Frames = dict[str, DataFrame]


def transform(records: Frames, context: Context) -> Frames:
    """Return events, counts, and the state that later intervals read by their lookback."""
    log_time = F.col("_log_time").alias("log_time")
    own = records[IMPRESSIONS].select(*EVENT, log_time, *LINEAGE)
    impressions = with_earlier(own, context.lookback("recent_impressions")).persist()
    clicks = records[CLICKS].withColumn("log_time", log_time).persist()
    once, seen = deduplicated(context, clicks, key=["id"], horizon=HORIZON, seen="seen_clicks")
    shown = impressions.where("first")
    attributed = with_campaign(context, attribute(once, shown)).persist()
    fresh = with_campaign(context, shown.where("own")).persist()
    repeated = impressions.where("own AND NOT first").select("id", *LINEAGE)
    known = [*EVENT, "campaign", *LINEAGE]
    return {
        "impressions": fresh.select(*known),
        "clicks": attributed.where("impression IS NOT NULL").select(
            *known, "impression", "shown_at"
        ),
        "unattributed": attributed.where("impression IS NULL").select(*known),
        "duplicates": repeated.unionByName(
            clicks.join(once, LINEAGE, "left_anti").select("id", *LINEAGE)
        ),
        "per_hour": per_hour(fresh, attributed),
        "recent_impressions": own,
        "seen_clicks": seen,
    }


def with_earlier(own: DataFrame, earlier: DataFrame) -> DataFrame:
    """Add the column `first` to this interval's impressions and the earlier ones: True if it is no duplicate.

    For earlier impressions it is correct only if the horizon is within the lookback: for the last half hour.
    """
    both = own.withColumn("own", F.lit(True)).unionByName(
        earlier.select(*own.columns).withColumn("own", F.lit(False))
    )
    log_order = Window.partitionBy("id").orderBy("log_time", "_kafka_partition", "_offset")
    before = F.lag("log_time").over(log_order)
    not_repeated = F.col("log_time") >= before + F.lit(HORIZON)
    return both.withColumn("first", F.coalesce(not_repeated, F.lit(True)))


def attribute(clicks: DataFrame, shown: DataFrame) -> DataFrame:
    """Return the clicks, each with the last impression of its user and ad in the half hour before it, or null."""
    place = [F.col(name).alias(f"shown{name}") for name in ("_kafka_partition", "_offset")]
    found = shown.select(
        "user", "ad", F.col("id").alias("impression"), F.col("log_time").alias("shown_at"), *place
    )
    near = (F.col("shown_at") <= F.col("log_time")) & (
        F.col("log_time") < F.col("shown_at") + F.lit(ATTRIBUTION)
    )
    log_order = F.struct("shown_at", "shown_kafka_partition", "shown_offset")
    last = (
        clicks.join(found, ["user", "ad"])
        .where(near)
        .groupBy(*LINEAGE)
        .agg(
            F.max_by("impression", log_order).alias("impression"),
            F.max("shown_at").alias("shown_at"),
        )
    )
    return clicks.join(last, LINEAGE, "left")


def with_campaign(context: Context, events: DataFrame) -> DataFrame:
    """Return the events with the campaign of their ad; `unknown` if the ad has none. No event is dropped."""
    dimension = context.spark.createDataFrame(list(CAMPAIGNS.items()), "ad string, campaign string")
    known = events.join(F.broadcast(dimension), "ad", "left")
    return known.withColumn("campaign", F.coalesce("campaign", F.lit("unknown")))


def per_hour(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """Return counts per campaign and hour of log time: an hour is in one interval, and is complete with it."""
    hour = F.date_trunc("hour", "log_time").alias("hour")

    def counted(events: DataFrame, impression: int, click: int, attributed: Column) -> DataFrame:
        return events.select(
            hour,
            "campaign",
            F.lit(impression).alias("impressions"),
            F.lit(click).alias("clicks"),
            attributed.cast("int").alias("attributed"),
        )

    both = counted(impressions, 1, 0, F.lit(0)).unionByName(
        counted(clicks, 0, 1, F.col("impression").isNotNull())
    )
    counts = ("impressions", "clicks", "attributed")
    return both.groupBy("hour", "campaign").agg(*[F.sum(name).alias(name) for name in counts])


if __name__ == "__main__":
    run_dataframe(transform)
