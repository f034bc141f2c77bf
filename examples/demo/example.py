"""The pipelines that the demo can play: which runs it makes, and what a glance at the tables must find."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.pipeline import DEAD_LETTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of the repository's pipelines: dags/<name>.py with spark_jobs/<name>.py, over the topic of flights.

    `scheduled` and `backfilled` are days of January 2013. `glance` is SQL over the tables for one row: how many flights
    they tell of, and whether each of them once. `question` is one that a user might ask. `every_record` are tables that
    must hold each record.
    """

    name: str
    warehouse_env: str
    scheduled: tuple[int, ...]
    backfilled: tuple[int, ...]
    rest_of_year: bool
    glance: str
    question: str
    every_record: tuple[str, ...]

    @property
    def lake(self) -> str:
        """The lake root."""
        return f"s3://lake/{self.name}"


FLIGHTS = Example(
    name="flights",
    warehouse_env="TALLYSTICK_DEMO_WAREHOUSE",
    scheduled=(4, 5, 6),
    backfilled=(1, 2, 3),
    rest_of_year=True,
    glance="SELECT count(*), count(*) = count(DISTINCT (_kafka_partition, _offset)) "
    "AND count(*) = (SELECT coalesce(sum(departures), 0) FROM departures_hourly) FROM flights",
    question="select origin, count(*) from flights group by 1",
    every_record=("flights",),
)
ONTIME = Example(
    name="ontime",
    warehouse_env="TALLYSTICK_ONTIME_WAREHOUSE",
    scheduled=(1, 2, 3, 4, 5, 6),
    backfilled=(),
    rest_of_year=False,
    # No flight of the demo is late in the log, so a day of an airline has one row.
    glance="SELECT coalesce(sum(flights), 0)::BIGINT, count(*) = count(DISTINCT (carrier, day)) "
    "FROM ontime_daily",
    question="select airline, sum(on_time) / sum(flights) as share from ontime_daily group by 1",
    every_record=(),
)
EXAMPLES = {one.name: one for one in (FLIGHTS, ONTIME)}
DEAD = f"SELECT count(*) FROM {DEAD_LETTERS}"
