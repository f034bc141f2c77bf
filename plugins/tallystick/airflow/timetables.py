"""Timetables of data intervals that contain their own first and last interval.

If the logical date of a manual run is outside a task's `start_date` and `end_date`, Airflow leaves the task out, and the
run succeeds without tasks. The Trigger form proposes the current time as the logical date. So the bounds are in these
timetables, and not on the DAG: here they bound the schedule only.

A manual run gets an empty data interval from these timetables: only a person can give it another one
(`run.params_and_dates`).
"""

from __future__ import annotations

import difflib
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
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")


def bounded(schedule: Any, first: datetime, last: datetime | None) -> Any:
    """Return the timetable of `schedule` with its bounds if it makes data intervals, otherwise `schedule` unchanged.

    A cron string means data intervals in UTC. A timedelta or relativedelta means intervals of that length, beginning at
    `first`.
    Raises InvalidPipeline for `@once`, for a string that is no cron expression, for a length under a second, and if
    `last` is given with a schedule that cannot be bounded here.
    """
    if schedule is None:
        return None
    if schedule == "@once":
        raise InvalidPipeline(
            "schedule='@once': the data interval of its one run is empty.",
            hint="use schedule=None and Trigger, or a cron string with a start_date and an end_date.",
        )
    if isinstance(schedule, str) and schedule != "@continuous":
        # Airflow would build a CronTriggerTimetable, whose data intervals are empty.
        try:
            timetable = BoundedCron(schedule, "UTC", first=first, last=last)
            timetable.validate()
        except (ValueError, AirflowTimetableInvalid) as error:
            raise InvalidPipeline(
                f"schedule={schedule!r} is not a cron expression: {str(error).rstrip('.')}.",
                hint=_near_preset(schedule)
                or "use a cron expression like '@daily' or '0 6 * * *', a timedelta, or None.",
            ) from error
        return timetable
    if isinstance(schedule, (timedelta, relativedelta)):
        # Airflow would build a DeltaTriggerTimetable, whose data intervals are empty, too.
        return _by_delta(schedule, first, last)
    if type(schedule) is airflow.sdk.CronDataIntervalTimetable:
        return BoundedCron(schedule.expression, schedule.timezone, first=first, last=last)
    if type(schedule) is airflow.sdk.DeltaDataIntervalTimetable:
        return _by_delta(schedule.delta, first, last)
    if last is not None:
        raise InvalidPipeline(
            f"end_date={last.isoformat()} with schedule={schedule!r}: Airflow would leave all tasks out of each manual "
            "run that is triggered after it, and mark it as a success.",
            hint="remove end_date, and set the end in the timetable; or use a cron string or a timedelta.",
        )
    return schedule


def _near_preset(schedule: str) -> str | None:
    near = difflib.get_close_matches(schedule.lower(), _PRESETS, 1, cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else None


def is_bounded(schedule: Any) -> bool:
    """Return True if it is a timetable of this module, which gives a manual run an empty data interval."""
    return isinstance(schedule, _Bounded)


def _by_delta(
    delta: timedelta | relativedelta, first: datetime, last: datetime | None
) -> BoundedDelta:
    # Checked twice: relativedelta(day=31) moves the date once, and not again.
    if first + delta < first + SHORTEST or first + delta + delta < first + delta + SHORTEST:
        raise InvalidPipeline(
            f"schedule={delta!r} is shorter than a second.",
            hint="use e.g. timedelta(hours=1), or a cron string.",
        )
    return BoundedDelta(delta, first=first, last=last)


class _Bounded:
    """The base of both timetables; `first` and `last` bound the beginnings of scheduled intervals, both inclusive."""

    def __init__(self, *words: Any, first: datetime, last: datetime | None) -> None:
        super().__init__(*words)
        self.first = pendulum.instance(first.astimezone(UTC))
        self.last = None if last is None else pendulum.instance(last.astimezone(UTC))
        until = "" if self.last is None else f" to {self.last.isoformat()}"
        bounds = f"intervals from {self.first.isoformat()}{until}"
        self.description = "; ".join(filter(None, [getattr(self, "description", ""), bounds]))

    def serialize(self) -> dict[str, Any]:
        """Return the values that Airflow stores of the timetable, with the bounds."""
        stored: dict[str, Any] = super().serialize()  # type: ignore[misc]
        last = None if self.last is None else self.last.isoformat()
        return {**stored, "first": self.first.isoformat(), "last": last}

    # Airflow passes `run_after` by keyword; one of the two base classes accepts it by position, too.
    def infer_manual_data_interval(self, run_after: pendulum.DateTime) -> DataInterval:
        """Return an empty interval: the timetable does not determine the span that a manual run processes."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next interval: within the bounds if the scheduler calls, within its own dates if a backfill does.

        The DAG has no dates of its own. If a restriction has dates, it is a backfill's, which may go beyond the bounds.
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
    """A timetable of data intervals by a cron expression, from `first` to `last`."""

    def __init__(
        self, cron: str, timezone: Any, *, first: datetime, last: datetime | None = None
    ) -> None:
        super().__init__(cron, timezone, first=first, last=last)

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """Return the timetable that `serialize` stored."""
        plain = CronDataIntervalTimetable.deserialize(data)
        return cls(data["expression"], plain._timezone, **_bounds(data))  # type: ignore[attr-defined]


class BoundedDelta(_Bounded, DeltaDataIntervalTimetable):
    """A timetable of data intervals of one length, counted from `first`, up to `last`."""

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
        """Return the timetable that `serialize` stored."""
        plain = DeltaDataIntervalTimetable.deserialize(data)
        return cls(plain._delta, **_bounds(data))  # type: ignore[attr-defined]
