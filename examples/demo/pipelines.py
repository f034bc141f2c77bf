"""The pipelines that the demo can run: their intervals, and the query that summarizes their tables."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.pipeline import DEAD_LETTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPipeline:
    """One of the repository's pipelines: dags/<name>.py with spark_jobs/<name>.py, over the topic of flights.

    `scheduled` and `backfilled` are days of January 2013. `summary_sql` returns one row: how many flights the tables
    contain, and whether each of them occurs once. `sample_sql` is a query that a user might run. `every_record` are the
    tables that must contain each record.
    """

    name: str
    warehouse_env: str
    scheduled: tuple[int, ...]
    backfilled: tuple[int, ...]
    rest_of_year: bool
    summary_sql: str
    sample_sql: str
    every_record: tuple[str, ...]

    @property
    def lake(self) -> str:
        """The lake URI."""
        return f"s3://lake/{self.name}"


FLIGHTS = DemoPipeline(
    name="flights",
    warehouse_env="TALLYSTICK_DEMO_WAREHOUSE",
    scheduled=(4, 5, 6),
    backfilled=(1, 2, 3),
    rest_of_year=True,
    summary_sql="SELECT count(*), count(*) = count(DISTINCT (_kafka_partition, _offset)) "
    "AND count(*) = (SELECT coalesce(sum(departures), 0) FROM departures_hourly) FROM flights",
    sample_sql="select origin, count(*) from flights group by 1",
    every_record=("flights",),
)
ONTIME = DemoPipeline(
    name="ontime",
    warehouse_env="TALLYSTICK_ONTIME_WAREHOUSE",
    scheduled=(1, 2, 3, 4, 5, 6),
    backfilled=(),
    rest_of_year=False,
    # No flight of the demo is late in the log, so a day of an airline has one row.
    summary_sql="SELECT coalesce(sum(flights), 0)::BIGINT, count(*) = count(DISTINCT (carrier, day)) "
    "FROM ontime_daily",
    sample_sql="select airline, sum(on_time) / sum(flights) as share from ontime_daily group by 1",
    every_record=(),
)
PIPELINES = {pipeline.name: pipeline for pipeline in (FLIGHTS, ONTIME)}
DEAD_LETTERS_SQL = f"SELECT count(*) FROM {DEAD_LETTERS}"
