"""The runs that Airflow's scheduler and its backfills create of a DAG, computed in this process, and a lake for them.

Without a scheduler and a database: the DAG is serialized and deserialized by Airflow, as it is for the scheduler, and
the functions called are those that the scheduler (`next_dagrun_info`) and a backfill (`_get_info_list`) call.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pendulum
from airflow.models.backfill import _get_info_list
from airflow.sdk import CronDataIntervalTimetable
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DagRunInfo

from support.fakes import FakeLog
from support.small_lake import TOPIC, SmallLake, pipeline
from tallystick.airflow import replay_dag
from tallystick.airflow.run import utc
from tallystick.format.interval import Interval
from tallystick.operations.status import read_status


class Calendar:
    """The schedule of a DAG: a cron expression in a time zone, from `start` on."""

    def __init__(self, cron: str, start: datetime, *, zone: str = "UTC") -> None:
        schedule: Any = cron if zone == "UTC" else CronDataIntervalTimetable(cron, timezone=zone)
        dag = replay_dag(pipeline("s3://lake/small"), schedule=schedule, start_date=start)
        self.dag: Any = DagSerialization.from_dict(DagSerialization.to_dict(dag))

    def scheduled(self, until: datetime, *, after: Interval | None = None) -> list[Interval]:
        """Return the intervals of the scheduler's runs that begin before `until`, in order; `after`: its last run."""
        info = _info(after) if after is not None else None
        intervals: list[Interval] = []
        while True:
            info = self.dag.next_dagrun_info(last_automated_run_info=info)
            if info is None or info.data_interval.start >= until:
                return intervals
            intervals.append(_interval(info))

    def backfill(
        self, first: datetime, last: datetime, *, backwards: bool = False
    ) -> list[Interval]:
        """Return the intervals of `airflow backfill create --from-date first --to-date last`, in its order."""
        dates = {"from_date": pendulum.instance(first), "to_date": pendulum.instance(last)}
        return [_interval(i) for i in _get_info_list(dag=self.dag, reverse=backwards, **dates)]


def _interval(info: DagRunInfo) -> Interval:
    assert info.data_interval is not None
    return Interval(start=utc(info.data_interval.start), end=utc(info.data_interval.end))


def _info(interval: Interval) -> DagRunInfo:
    start, end = pendulum.instance(interval.start), pendulum.instance(interval.end)
    return DagRunInfo.interval(start=start, end=end)


# ---------------------------------------------------------------- a lake for them


def lake_of(intervals: Iterable[Interval]) -> SmallLake:
    """Return a lake whose log has three records in each interval: at its first instant, in its middle, at its end."""
    small = SmallLake(log=FakeLog())
    small.log.create(TOPIC)
    for interval in intervals:
        last = interval.end - timedelta(milliseconds=1)
        middle = interval.start + (interval.end - interval.start) / 2
        for at in (interval.start, middle, last):
            small.log.append(TOPIC, 0, at, n=1, kind="k")
    return small


def committed(small: SmallLake) -> list[tuple[Interval, int]]:
    """Return every interval of the ledger with its number of records; -1 if it is only granted."""
    return [
        (status.interval, status.totals.records if status.totals else -1)
        for status in read_status(small.lake).intervals
    ]


def follow(
    small: SmallLake, calendar: Calendar, runs: dict[datetime, Interval] | None = None
) -> list[str]:
    """Run the commands of `tally status` as Airflow would, and return which they were: `backfill` or `dags`.

    `runs`: the intervals of Airflow's runs, by logical date: a backfill clears such a run, which keeps its interval.
    """
    known = {} if runs is None else dict(runs)
    done: list[str] = []
    for number, gap in enumerate(read_status(small.lake).gaps):
        words = dict(itertools.pairwise(gap.command))
        done.append(gap.command[1])
        if gap.command[1] == "dags":
            small.run(gap.interval, run=f"manual__{number}", **json.loads(words["--conf"]))
            continue
        first, last = (datetime.fromisoformat(words[w]) for w in ("--from-date", "--to-date"))
        for interval in calendar.backfill(first, last):
            run = f"backfill__{interval.end.isoformat()}"
            small.run(known.setdefault(interval.start, interval), run=run)
    return done
