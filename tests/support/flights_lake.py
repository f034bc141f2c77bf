"""A small lake with the demo's tables, for the code in docs/.

Three days are committed; day 2 is replaced by a second version of the job, which drops flights that never left and adds
a column; a fourth day is in progress, its files uploaded and not committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from support.fakes import FakeLog, FakeRecord, stage
from support.small_lake import SmallLake, day, days
from tallystick.operations.commit import commit
from tallystick.pipeline import Column, Pipeline, Table
from tallystick.runtime import system_runtime
from tallystick.store import Store

LAKE = "s3://lake/flights"
AS_OF = 5
"""The version to which the pages go back: days 1 and 2 are committed, day 2 as it was before it was replaced."""

Row = dict[str, Any]


def first_pipeline(warehouse: str) -> Pipeline:
    """The demo's two tables, with fewer columns."""
    return _pipeline(warehouse)


def second_pipeline(warehouse: str) -> Pipeline:
    """The same with a column more."""
    return _pipeline(warehouse, Column("tailnum", "string", required=False))


def _pipeline(warehouse: str, *added: Column) -> Pipeline:
    return Pipeline(
        name="flights",
        topics=["flights"],
        warehouse=warehouse,
        job="spark_jobs/flights.py",
        tables=[
            Table(
                "flights",
                columns=[
                    Column("carrier", "string"),
                    Column("origin", "string"),
                    Column("dep_delay", "int", required=False),
                    Column("departure", "timestamptz"),
                    *added,
                ],
                partition_by=["day(departure)"],
            ),
            Table(
                "departures_hourly",
                columns=[
                    Column("hour", "timestamptz"),
                    Column("origin", "string"),
                    Column("departures", "long"),
                ],
                keys=["hour", "origin"],
                combine={"departures": "sum"},
            ),
        ],
    )


def flight(departure: datetime, number: int) -> Row:
    """What the log says of one flight: the columns of both tables. Every third one never left."""
    return {
        "carrier": ("UA", "B6", "DL")[number % 3],
        "origin": ("EWR", "JFK")[number % 2],
        "dep_delay": None if number % 3 == 2 else 7 * number - 5,
        "tailnum": None if number % 5 == 4 else f"N{number:03d} ✈",
        "departure": departure,
        "hour": departure.replace(minute=0),
        "departures": 1,
    }


def left(record: FakeRecord) -> bool:
    """What the second version of the job lets through: flights that left."""
    return record.value.get("dep_delay") is not None


@dataclass
class FlightsLake:
    """The lake, and the rows that each of its states holds: by the log alone, no reader is asked."""

    store: Store
    small: SmallLake = field(init=False)
    rows: dict[int, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        log = FakeLog()
        log.create("flights", partitions=2)
        for number in range(1, 5):
            self.rows[number] = [
                self._produce(log, day(number) + timedelta(minutes=90 * i), 10 * number + i)
                for i in range(9)
            ]
            log.append("flights", 0, day(number) + timedelta(hours=20), "dead")
            log.append("flights", 1, day(number) + timedelta(hours=21), "aborted")
        self.small = SmallLake(
            store=self.store, log=log, runtime=system_runtime(), declared=first_pipeline
        )
        self.small.run(days(1, 2))
        self.small.run(days(2, 3))
        assert self.version == AS_OF
        self.small.run(days(3, 4))
        self.small.job = b"version 2"
        self.small.declared = second_pipeline
        self.small.run(days(2, 3), clear=1, keep=left)
        (self._in_progress,) = self.small.plan(days(4, 5)).intervals
        self._report = stage(self.small.lake, log, self._in_progress.plan)

    @staticmethod
    def _produce(log: FakeLog, at: datetime, number: int) -> Row:
        value = flight(at, number)
        partition = number % 2
        offset = log.append("flights", partition, at, **value)
        lineage = {
            "_topic": "flights",
            "_kafka_partition": partition,
            "_offset": offset,
            "_timestamp": at,
        }
        return {**value, **lineage}

    @property
    def version(self) -> int:
        """Of the root."""
        return self.small.lake.load_existing().root.version

    def commit_day_4(self) -> None:
        """Commit the interval in progress, whose files lie in the lake since it was made."""
        commit(
            self.small.lake,
            self.small.tables,
            plan_key=self._in_progress.plan,
            report_key=self._report,
        )

    def committed(self) -> list[Row]:
        """The flights of the lake as it was made. Nothing is known of the added column where day 2 alone was replaced."""
        unknown = {"tailnum": None}
        others = [{**row, **unknown} for row in (*self.rows[1], *self.rows[3])]
        return [*others, *(row for row in self.rows[2] if row["dep_delay"] is not None)]

    def committed_as_of(self) -> list[Row]:
        """The flights as version AS_OF had them, before the column was added."""
        rows = (*self.rows[1], *self.rows[2])
        return [{n: v for n, v in row.items() if n != "tailnum"} for row in rows]


def flights(rows: Iterable[Row]) -> list[Row]:
    """What the table `flights` has of some rows."""
    return [{n: v for n, v in row.items() if n not in {"hour", "departures"}} for row in rows]


def departures(rows: Iterable[Row]) -> dict[str, int]:
    """How many flights each airport has."""
    return dict(Counter(row["origin"] for row in rows))
