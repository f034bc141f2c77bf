"""A small lake with the demo's tables, for the code in docs/.

Three days are committed. Day 2 is replaced by a second version of the job, which drops flights that never departed and
adds a column. Day 4 is in progress: its files are uploaded and not committed.
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
"""The version that the pages read for time travel: days 1 and 2 are committed, day 2 before its replacement."""

Row = dict[str, Any]


def first_pipeline(warehouse: str) -> Pipeline:
    """Return a pipeline with the demo's two tables, with fewer columns."""
    return _pipeline(warehouse)


def second_pipeline(warehouse: str) -> Pipeline:
    """Return the same pipeline with one more column."""
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
    """Return the record of a flight: the columns of both tables. Every third flight never departed."""
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
    """Return True for flights that departed: the second version of the job keeps only these."""
    return record.value.get("dep_delay") is not None


@dataclass
class FlightsLake:
    """The lake, and the rows of each of its states, computed from the log without a reader."""

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
        """The version of the root."""
        return self.small.lake.load_existing().root.version

    def commit_day_4(self) -> None:
        """Commit the interval in progress, whose files are already uploaded."""
        commit(
            self.small.lake,
            self.small.tables,
            plan_key=self._in_progress.plan,
            report_key=self._report,
        )

    def committed(self) -> list[Row]:
        """Return the flights of the lake without day 4. The added column is null except for day 2, which was replaced."""
        unknown = {"tailnum": None}
        others = [{**row, **unknown} for row in (*self.rows[1], *self.rows[3])]
        return [*others, *(row for row in self.rows[2] if row["dep_delay"] is not None)]

    def committed_as_of(self) -> list[Row]:
        """Return the flights of version AS_OF, before the column was added."""
        rows = (*self.rows[1], *self.rows[2])
        return [{n: v for n, v in row.items() if n != "tailnum"} for row in rows]


def flights(rows: Iterable[Row]) -> list[Row]:
    """Return the columns of the table `flights` of some rows."""
    return [{n: v for n, v in row.items() if n not in {"hour", "departures"}} for row in rows]


def departures(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of flights of each airport."""
    return dict(Counter(row["origin"] for row in rows))
