"""Airflow's own calendar, asked in this process: the runs that its scheduler and its backfills make of a DAG of ours,
and a lake on which they work.

No scheduler and no database: the DAG goes through Airflow's serialization, as it does on the way to the scheduler, and
the functions asked are those that the scheduler (`next_dagrun_info`) and a backfill (`_get_info_list`) ask.
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
    """A DAG's schedule: a cron text in a zone, from `start` on."""

    def __init__(self, cron: str, start: datetime, *, zone: str = "UTC") -> None:
        schedule: Any = cron if zone == "UTC" else CronDataIntervalTimetable(cron, timezone=zone)
        made = replay_dag(pipeline("s3://lake/small"), schedule=schedule, start_date=start)
        self.dag: Any = DagSerialization.from_dict(DagSerialization.to_dict(made))

    def scheduled(self, until: datetime, *, after: Interval | None = None) -> list[Interval]:
        """The intervals that the scheduler makes in order, up to one that begins at `until`; `after`: its last run."""
        info = _info(after) if after is not None else None
        found: list[Interval] = []
        while True:
            info = self.dag.next_dagrun_info(last_automated_run_info=info)
            if info is None or info.data_interval.start >= until:
                return found
            found.append(_interval(info))

    def backfill(
        self, first: datetime, last: datetime, *, backwards: bool = False
    ) -> list[Interval]:
        """The intervals of `airflow backfill create --from-date first --to-date last`, in its order."""
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
    """A lake whose log has three records in each interval: at its first instant, in the middle, and at its last one."""
    small = SmallLake(log=FakeLog())
    small.log.create(TOPIC)
    for one in intervals:
        last = one.end - timedelta(milliseconds=1)
        for at in (one.start, one.start + (one.end - one.start) / 2, last):
            small.log.append(TOPIC, 0, at, n=1, kind="k")
    return small


def committed(small: SmallLake) -> list[tuple[Interval, int]]:
    """Every interval of the ledger, with its records; -1 where it is only granted."""
    return [
        (one.interval, one.totals.records if one.totals else -1)
        for one in read_status(small.lake).intervals
    ]


def follow(
    small: SmallLake, calendar: Calendar, runs: dict[datetime, Interval] | None = None
) -> list[str]:
    """Do what the commands of `tally status` say, as Airflow would, and say which they were: `backfill` or `dags`.

    `runs`: those that Airflow has, by logical date: a backfill clears such a run, which keeps the interval that it had.
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
        for one in calendar.backfill(first, last):
            small.run(known.setdefault(one.start, one), run=f"backfill__{one.end.isoformat()}")
    return done
