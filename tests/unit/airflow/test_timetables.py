"""Schedules that contain their bounds: runs by hand have their tasks for any logical date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.models.backfill import _get_info_list
from airflow.models.dagrun import DagRun
from airflow.sdk import (
    DAG,
    Asset,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
)
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DagRunInfo
from airflow.utils.types import DagRunType
from dateutil.relativedelta import relativedelta

from support.small_lake import pipeline
from tallystick.airflow import replay_dag
from tallystick.airflow.timetables import BoundedCron, BoundedDelta
from tallystick.errors import InvalidPipeline

FIRST, LAST = datetime(2013, 1, 4, tzinfo=UTC), datetime(2013, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)
SCHEDULES = [
    "@daily",
    "0 0 * * *",
    CronDataIntervalTimetable("@daily", timezone="UTC"),
    timedelta(days=1),
    relativedelta(days=1),
    DeltaDataIntervalTimetable(timedelta(days=1)),
]


def dag_of(schedule: Any, **options: Any) -> DAG:
    lake = pipeline("s3://lake/small")
    return replay_dag(lake, **{"schedule": schedule, "start_date": FIRST, **options})


def stored(dag: DAG) -> Any:
    """Return the DAG as the scheduler reads it."""
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def scheduled(dag: Any, *, most: int = 10) -> list[tuple[datetime, datetime]]:
    found: list[DagRunInfo] = []
    while len(found) < most:
        info = dag.next_dagrun_info(last_automated_run_info=found[-1] if found else None)
        if info is None:
            break
        found.append(info)
    return [(i.data_interval.start, i.data_interval.end) for i in found if i.data_interval]


def tasks_of(dag: Any, logical_date: datetime | None, kind: DagRunType) -> list[str]:
    """Return the tasks that Airflow's own code creates for a run."""
    created: list[str] = []
    run: Any = SimpleNamespace(
        run_type=kind,
        logical_date=logical_date,
        dag_id=dag.dag_id,
        get_dag=lambda: dag,
        _check_for_removed_or_restored_tasks=lambda *_, **__: set(),
        _get_task_creator=lambda *_, **__: None,
        _create_tasks=lambda tasks, *_, **__: created.extend(t.task_id for t in tasks),
        _create_task_instances=lambda *_, **__: None,
    )
    session: Any = None
    DagRun.verify_integrity(run, session=session, dag_version_id=None)  # type: ignore[arg-type]
    return created


@pytest.mark.parametrize("schedule", [*SCHEDULES, None], ids=repr)
@pytest.mark.parametrize(
    "logical_date",
    [None, FIRST - 9 * DAY, FIRST, LAST + DAY, datetime(2026, 11, 22, 22, 50, 29, tzinfo=UTC)],
)
def test_run_by_hand_has_its_tasks_for_any_logical_date(
    schedule: Any, logical_date: datetime | None
) -> None:
    dag = stored(dag_of(schedule, end_date=LAST))
    assert tasks_of(dag, logical_date, DagRunType.MANUAL) == ["plan", "stage", "commit"]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedule_keeps_its_bounds_and_backfills_may_exceed_them(
    schedule: Any,
) -> None:
    dag = stored(dag_of(schedule, end_date=LAST))
    assert scheduled(dag) == [(FIRST + n * DAY, FIRST + (n + 1) * DAY) for n in range(3)]
    dates = {"from_date": pendulum.instance(FIRST - 3 * DAY), "to_date": pendulum.instance(LAST)}
    found = _get_info_list(dag=dag, reverse=False, **dates)
    assert [i.data_interval.start for i in found if i.data_interval] == [
        FIRST + n * DAY for n in range(-3, 3)
    ]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedule_without_an_end_goes_on_and_without_catchup_begins_with_the_last_interval(
    schedule: Any,
) -> None:
    assert len(scheduled(stored(dag_of(schedule)))) == 10
    ((_, end), *_) = scheduled(stored(dag_of(schedule, catchup=False)), most=1)
    assert end > datetime.now(UTC) - 2 * DAY


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedule_infers_no_interval_for_a_run_by_hand(schedule: Any) -> None:
    at = pendulum.datetime(2026, 11, 22, 22, 50, 29)
    inferred = stored(dag_of(schedule)).timetable.infer_manual_data_interval(run_after=at)
    assert (inferred.start, inferred.end) == (at, at)


def test_a_timedelta_gives_intervals_of_its_length_from_the_start_date() -> None:
    start = FIRST + timedelta(minutes=7)
    dag = stored(dag_of(timedelta(hours=1), start_date=start))
    hour = timedelta(hours=1)
    assert scheduled(dag, most=3) == [(start + n * hour, start + (n + 1) * hour) for n in range(3)]


@pytest.mark.parametrize("length", [timedelta(0), timedelta(hours=-1), timedelta(microseconds=900)])
def test_a_length_under_a_second_is_refused_when_the_dag_is_parsed(length: timedelta) -> None:
    with pytest.raises(InvalidPipeline, match="shorter than a second"):
        dag_of(length)


def test_a_length_that_advances_only_once_is_refused() -> None:
    """From the 31st of a month, `day=31` leads to the same day."""
    with pytest.raises(InvalidPipeline, match="shorter than a second"):
        dag_of(relativedelta(day=31))


def test_a_text_that_is_no_cron_expression_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(InvalidPipeline, match="schedule='every day' is not a cron expression"):
        dag_of("every day")


@pytest.mark.parametrize(
    ("schedule", "step"),
    [
        ("@houly", "did you mean '@hourly'?"),
        ("@Dayly", "did you mean '@daily'?"),
        ("0 25 * * *", "use a cron expression like"),
    ],
)
def test_a_misspelt_schedule_is_quoted_with_the_nearest_preset(schedule: str, step: str) -> None:
    with pytest.raises(InvalidPipeline, match="is not a cron expression") as refused:
        dag_of(schedule)
    assert f"schedule={schedule!r}" in refused.value.message
    assert step in refused.value.hint


@pytest.mark.parametrize("schedule", [*SCHEDULES[:2], *SCHEDULES[3:5]], ids=repr)
def test_schedule_is_stored_and_read_with_its_bounds(schedule: Any) -> None:
    dag = dag_of(schedule, end_date=LAST)
    back = stored(dag).timetable
    assert isinstance(back, (BoundedCron, BoundedDelta))
    assert (back.first, back.last) == (FIRST, LAST)
    assert "2013-01-04" in back.description
    assert back.serialize() == dag.timetable.serialize()


def test_zone_of_a_timetable_stays() -> None:
    apia = CronDataIntervalTimetable("@daily", timezone="Pacific/Apia")
    ((start, _), *_) = scheduled(stored(dag_of(apia)), most=1)
    assert start == datetime(2013, 1, 4, 10, tzinfo=UTC)


def test_end_of_a_schedule_that_cannot_hold_it_is_refused() -> None:
    for schedule in (CronTriggerTimetable("@daily", timezone="UTC"), Asset("s3://lake/x")):
        with pytest.raises(InvalidPipeline, match="leave all tasks out of each manual run"):
            dag_of(schedule, end_date=LAST)
    assert stored(dag_of(Asset("s3://lake/x"))).start_date is None
    assert stored(dag_of(CronTriggerTimetable("@daily", timezone="UTC"))).start_date == FIRST


@pytest.mark.parametrize("name", ["start_date", "end_date"])
def test_dates_in_default_args_are_refused(name: str) -> None:
    with pytest.raises(InvalidPipeline, match=f"default_args contains '{name}'"):
        dag_of("@daily", default_args={name: FIRST})
