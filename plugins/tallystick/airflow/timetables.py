"""Schedules of data intervals that hold their own first and last interval.

Airflow leaves a task out of a manual run whose logical date lies outside the task's `start_date` and `end_date`, and
such a run ends green without a task. The Trigger form proposes the present as its logical date. So the bounds of a
schedule are kept here, where they bound the schedule only, and not on the DAG.

A run by hand gets an interval without extent from these schedules: only a person can give it one (`run.dates_of`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import airflow.sdk
import pendulum
from airflow.exceptions import AirflowTimetableInvalid
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.timetables.interval import CronDataIntervalTimetable, DeltaDataIntervalTimetable
from dateutil.relativedelta import relativedelta

from tallystick.errors import InvalidPipeline

SHORTEST = timedelta(seconds=1)


def bounded(schedule: Any, first: datetime, last: datetime | None) -> Any:
    """Return the schedule with its bounds in it, if it makes data intervals; any other one as it is.

    A cron string means data intervals in UTC, a timedelta or relativedelta intervals of that length from `first` on.
    Raises InvalidPipeline for `@once`, for a length under a second, and for a `last` that nothing here can keep.
    """
    if schedule is None:
        return None
    if schedule == "@once":
        raise InvalidPipeline(
            "schedule='@once': the data interval of its one run holds no time.",
            hint="use schedule=None and Trigger, or a cron string with a start_date and an end_date.",
        )
    if isinstance(schedule, str) and schedule != "@continuous":
        # Airflow would make a CronTriggerTimetable of it, whose intervals hold no time.
        try:
            made = BoundedCron(schedule, "UTC", first=first, last=last)
            made.validate()
        except (ValueError, AirflowTimetableInvalid) as error:
            raise InvalidPipeline(
                f"schedule={schedule!r} is no cron expression: {error}.",
                hint="use one such as '@daily' or '0 6 * * *', a timedelta, or None.",
            ) from error
        return made
    if isinstance(schedule, (timedelta, relativedelta)):
        # Airflow would make a DeltaTriggerTimetable of it, likewise.
        return _by_delta(schedule, first, last)
    if type(schedule) is airflow.sdk.CronDataIntervalTimetable:
        return BoundedCron(schedule.expression, schedule.timezone, first=first, last=last)
    if type(schedule) is airflow.sdk.DeltaDataIntervalTimetable:
        return _by_delta(schedule.delta, first, last)
    if last is not None:
        raise InvalidPipeline(
            f"end_date={last.isoformat()} with schedule={schedule!r}: Airflow would leave all tasks out of each run by "
            "hand that is triggered after it, and call it a success.",
            hint="leave end_date out, and let the timetable end by itself; or use a cron string or a timedelta.",
        )
    return schedule


def is_bounded(schedule: Any) -> bool:
    """Whether it is a schedule of this module, which gives a run by hand no extent of its own."""
    return isinstance(schedule, _Bounded)


def _by_delta(
    delta: timedelta | relativedelta, first: datetime, last: datetime | None
) -> BoundedDelta:
    # Twice: relativedelta(day=31) leads on once, and never again.
    if first + delta < first + SHORTEST or first + delta + delta < first + delta + SHORTEST:
        raise InvalidPipeline(
            f"schedule={delta!r} is shorter than a second.",
            hint="use e.g. timedelta(hours=1), or a cron string.",
        )
    return BoundedDelta(delta, first=first, last=last)


class _Bounded:
    """What both schedules share; `first` and `last` bound the beginnings of scheduled intervals, both inclusive."""

    def __init__(self, *words: Any, first: datetime, last: datetime | None) -> None:
        super().__init__(*words)
        self.first = pendulum.instance(first.astimezone(UTC))
        self.last = None if last is None else pendulum.instance(last.astimezone(UTC))
        until = "" if self.last is None else f" to {self.last.isoformat()}"
        bounds = f"intervals from {self.first.isoformat()}{until}"
        self.description = "; ".join(filter(None, [getattr(self, "description", ""), bounds]))

    def serialize(self) -> dict[str, Any]:
        """Add the bounds to what Airflow stores of the schedule."""
        stored: dict[str, Any] = super().serialize()  # type: ignore[misc]
        last = None if self.last is None else self.last.isoformat()
        return {**stored, "first": self.first.isoformat(), "last": last}

    # Airflow calls it with `run_after=`; one of its two base classes takes it in place as well.
    def infer_manual_data_interval(self, run_after: pendulum.DateTime) -> DataInterval:
        """Return an interval without extent: which span a run by hand processes is not the schedule's to say."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next interval: of the scheduler's calls within the bounds, of a backfill's within its dates.

        The DAG has no dates of its own, so a restriction that has any is a backfill's, which may go beyond the bounds.
        """
        if restriction.earliest is None:
            restriction = TimeRestriction(self.first, self.last, restriction.catchup)
        found: DagRunInfo | None = super().next_dagrun_info(  # type: ignore[misc]
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        return found


def _bounds(data: dict[str, Any]) -> dict[str, Any]:
    last = data["last"]
    return {
        "first": datetime.fromisoformat(data["first"]),
        "last": None if last is None else datetime.fromisoformat(last),
    }


class BoundedCron(_Bounded, CronDataIntervalTimetable):
    """Data intervals by a cron expression, from `first` to `last`."""

    def __init__(
        self, cron: str, timezone: Any, *, first: datetime, last: datetime | None = None
    ) -> None:
        super().__init__(cron, timezone, first=first, last=last)

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """Return the schedule that `serialize` stored."""
        plain = CronDataIntervalTimetable.deserialize(data)
        return cls(data["expression"], plain._timezone, **_bounds(data))  # type: ignore[attr-defined]


class BoundedDelta(_Bounded, DeltaDataIntervalTimetable):
    """Data intervals of one length, counted from `first` on, to `last`."""

    def __init__(
        self,
        delta: timedelta | relativedelta,
        *,
        first: datetime,
        last: datetime | None = None,
    ) -> None:
        super().__init__(delta, first=first, last=last)

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """Return the schedule that `serialize` stored."""
        plain = DeltaDataIntervalTimetable.deserialize(data)
        return cls(plain._delta, **_bounds(data))  # type: ignore[attr-defined]
