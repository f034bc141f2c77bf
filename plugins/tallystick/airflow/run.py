"""Translates an Airflow run for the protocol: its request and its dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from tallystick.errors import InvalidRequest
from tallystick.format import keys
from tallystick.format.interval import Interval, Request
from tallystick.operations.run_request import RunDates, RunParams, parse_params
from tallystick.runtime import whole_ms

BACKFILL = "backfill"
# Values of Airflow's DagRunType. Runs of the other types are caused by a person, an asset or another DAG.
FROM_SCHEDULE = frozenset({"scheduled", BACKFILL})


class DagRun(Protocol):
    """The attributes of its run that a task can read (Task SDK, DagRunProtocol). An absent date is None, not missing."""

    dag_id: str
    run_id: str
    run_type: str
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    run_after: datetime
    clear_number: int | None


def request_of(run: DagRun) -> Request:
    """Return the request of a run. The clear number is the run's when this task started; retries do not increase it."""
    return Request(dag=run.dag_id, run=run.run_id, clear=run.clear_number or 0)


def params_and_dates(
    run: DagRun, params: RunParams, *, infers: bool = False
) -> tuple[RunParams, RunDates]:
    """Return the parameters and the dates of a run, without dates that Airflow inferred.

    A scheduled or backfill run has the data interval of its schedule. A manual run has none, unless a person typed one,
    which then counts as `from` and `to`. `infers`: True if the schedule is not from `timetables`. Then a manual run may
    have a data interval that its timetable inferred, which cannot be distinguished from a typed one.
    Raises InvalidRequest if a backfill has the parameters `from` and `to`, if the dates contradict each other, and if
    their origin is unknown.
    """
    span = params.start is not None
    if run.run_type in FROM_SCHEDULE:
        if span and run.run_type == BACKFILL:
            raise InvalidRequest(
                f"a backfill has the parameters from={keys.instant(params.start)} to={keys.instant(params.end)}: "  # type: ignore[arg-type]
                "each of its runs would request this same span.",
                hint="create the backfill with the parameters `from` and `to` empty: its own two dates select the "
                "runs, and each run has an interval. For a single span, press Trigger.",
            )
        return params, dates_of(run)
    typed = _typed(run)
    dates = RunDates(data_interval=None, run_after=_until(run))
    if typed is None or (infers and span):
        return params, dates
    if infers:
        raise InvalidRequest(
            f"a manual run has the data interval {typed}: a person may have typed it, or Airflow inferred it.",
            hint="trigger with `from` and `to`, or with an empty Logical Date for everything new.",
        )
    if span and (params.start, params.end) != (typed.start, typed.end):
        raise InvalidRequest(
            f"two spans: {Interval(start=params.start, end=params.end)} in the parameters, {typed} as the data interval.",  # type: ignore[arg-type]
            hint="trigger with only one of them, e.g. without a data interval.",
        )
    return replace(params, start=typed.start, end=typed.end), dates


def dates_of(run: DagRun) -> RunDates:
    """Return the run's dates as Airflow has them; `params_and_dates` interprets those of a manual run.

    Raises InvalidRequest if the data interval is empty, e.g. if another DAG factory passes a plain cron string to
    Airflow, or if the timetable is one of events.
    """
    if not _has_interval(run):
        return RunDates(data_interval=None, run_after=_until(run))
    start, end = run.data_interval_start, run.data_interval_end
    assert start is not None
    assert end is not None
    first, last = utc(start), utc(end)
    if not first < last:
        raise InvalidRequest(
            f"the run's data interval [{first.isoformat()}, {last.isoformat()}) is empty.",
            hint="schedule the DAG with a cron string, a timedelta or a CronDataIntervalTimetable. If a backfill took "
            "over a manual run, which has no interval, trigger with `from` and `to`.",
        )
    return RunDates(data_interval=Interval(start=first, end=last), run_after=utc(run.run_after))


def _typed(run: DagRun) -> Interval | None:
    """Return the data interval of a manual run if a person typed one: `timetables` infer only empty ones."""
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None or start == end:
        return None
    return dates_of(run).data_interval


def _has_interval(run: DagRun) -> bool:
    return run.data_interval_start is not None and run.data_interval_end is not None


def _until(run: DagRun) -> datetime:
    """Return the instant up to which a run without an interval processes. Both of its dates never change.

    The logical date of a manual run comes from the Trigger form: the current time, or what a person typed. If it is later
    than `run_after`, it is not used: the run would wait for the future, or depend on a browser's wrong clock.
    """
    due = utc(run.run_after)
    return due if run.logical_date is None else min(due, utc(run.logical_date))


def span_of(run: DagRun, params: Mapping[str, Any]) -> str:
    """Return the span of a run as text, for the errors of its tasks. Never raises, even if the parameters are invalid."""
    first, last = params.get("from"), params.get("to")
    try:
        parsed = parse_params(dict(params))
    except InvalidRequest:
        if first or last:
            return f"from={first!r} to={last!r}"
    else:
        if parsed.start is not None and parsed.end is not None:
            return str(Interval(start=parsed.start, end=parsed.end))
    start, end = run.data_interval_start, run.data_interval_end
    if start is not None and end is not None and (start != end or run.run_type in FROM_SCHEDULE):
        return f"[{keys.instant(utc(start))}, {keys.instant(utc(end))})"
    return f"everything new until {keys.instant(_until(run))}"


def utc(at: datetime) -> datetime:
    """Return an instant in the protocol's form: a plain datetime (Airflow has subclasses), UTC, whole milliseconds."""
    at = at.astimezone(UTC)
    plain = datetime(
        at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, tzinfo=UTC
    )
    return whole_ms(plain)
