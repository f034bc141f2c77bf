"""Builds the DAG of a pipeline: plan -> stage -> commit, or all three in one task; then publish if it has outputs.

A DAG file calls only this:

dag = replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC))
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable

from tallystick.airflow.arguments import checked_arguments
from tallystick.airflow.assets import asset_of, interval_asset_of
from tallystick.airflow.dag_docs import (
    COMMIT_DOC,
    PLAN_DOC,
    PUBLISH_DOC,
    REPLAY_DOC,
    STAGE_DOC,
    page,
)
from tallystick.airflow.dag_docs import (
    description as default_description,
)
from tallystick.airflow.operators.commit import CommitOperator
from tallystick.airflow.operators.plan import PlanOperator
from tallystick.airflow.operators.publish import PublishOperator
from tallystick.airflow.operators.replay import ReplayOperator
from tallystick.airflow.operators.stage import StageOperator
from tallystick.airflow.task_ids import COMMIT, PLAN, PUBLISH, REPLAY, STAGE
from tallystick.airflow.timetables import bounded, is_bounded
from tallystick.airflow.trigger_form import form
from tallystick.errors import InvalidPipeline
from tallystick.pipeline import Pipeline

RETRIES = 3
RETRY_DELAY = timedelta(minutes=1)
RETRY_DELAY_MAX = timedelta(minutes=15)
# Of these runs, at most MAX_ACTIVE_STAGES start Spark at the same time.
MAX_ACTIVE_RUNS = 16
STAGE_TOGETHER = 12
MAX_ACTIVE_STAGES = 2
MAX_ACTIVE_COMMITS = 3


@checked_arguments
def replay_dag(
    pipeline: Pipeline,
    *,
    schedule: Any,
    start_date: datetime,
    end_date: datetime | None = None,
    catchup: bool = True,
    dag_id: str | None = None,
    description: str | None = None,
    job_root: str | Path | None = None,
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    spark_binary: str | None = None,
    retries: int = RETRIES,
    retry_delay: timedelta = RETRY_DELAY,
    max_active_runs: int = MAX_ACTIVE_RUNS,
    stage_together: int = STAGE_TOGETHER,
    max_active_stages: int | None = MAX_ACTIVE_STAGES,
    deferrable: bool = False,
    without_spark_offsets_max: int = 0,
    one_task: bool = False,
    pool: str | None = None,
    tags: Iterable[str] = ("tallystick",),
    is_paused_upon_creation: bool | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Return the DAG of the pipeline. Its id is `dag_id`, by default the pipeline's name.

    `schedule`: if it is a cron string or a timedelta, the DAG has data intervals in UTC. The first begins at `start_date`
    or later, the last begins at `end_date` or earlier. Another timetable or an asset is used unchanged, and then an
    `end_date` is refused. If it is None, there are no scheduled intervals to bound. A run without a data interval
    processes what is new.
    `start_date` and `end_date` bound the schedule only: backfills and manual runs may have any dates.
    `catchup`: if True, intervals that were missed while the DAG was paused are run, so that no gap remains unnoticed.
    Backfills may begin before `start_date` regardless of it.
    `job_root`: the folder that `Pipeline.job` is relative to; by default the parent of the DAG file's folder.
    `spark_conf`: Spark options, each on the allow-list.
    `stage_together`: how many small intervals one spark-submit stages at most, also those of other runs that are waiting
    for their stage task; each run still commits its own. If it is 1, each run starts Spark for itself.
    `max_active_stages`: how many stage tasks of the DAG run at once, over schedules and backfills (Airflow's
    max_active_runs does not limit backfills); None: no limit.
    `deferrable`: if True, a stage task submits its driver to the cluster of the connection (standalone, YARN or
    Kubernetes) and holds no slot until the driver has ended. The triggerer waits for it. Each run then starts a driver
    of its own.
    `without_spark_offsets_max`: a run whose plans have at most this many offsets together is staged by a plain Python
    process on the machine of its stage task, without a JVM; 0: Spark stages everything. Only for jobs that call `run`.
    `one_task`: if True, one task, `replay`, does what `plan`, `stage` and `commit` do, for schedules with many small
    intervals: the start of a task costs more than a small plan or commit. A retry stages again what is not committed yet.
    `max_active_stages` and `pool` then limit these tasks, and each stages its own run only.
    `pool`: the same limit for stage tasks of several DAGs.
    Raises InvalidPipeline if a date has no zone, if the schedule's intervals contain no time, if `default_args` contains
    one of the dates, if `stage_together` or `max_active_stages` is less than 1, if `without_spark_offsets_max` is
    negative, if `one_task` and `deferrable` are combined, and if a Spark option is not allowed.
    """
    _check_limits(stage_together, max_active_stages, without_spark_offsets_max)
    if one_task and deferrable:
        raise InvalidPipeline(
            "one_task=True and deferrable=True: a task that waits for a cluster in the triggerer cannot commit yet.",
            hint="use one of them: deferrable for large intervals on a cluster, one_task for small ones.",
        )
    for name, at in (("start_date", start_date), ("end_date", end_date)):
        if at is not None and at.tzinfo is None:
            raise InvalidPipeline(
                f"{name} {at} has no time zone.", hint="use datetime(..., tzinfo=UTC)."
            )
        if name in (default_args or {}):
            raise InvalidPipeline(
                f"default_args contains {name!r}: Airflow would leave tasks out of manual runs because of it.",
                hint=f"pass {name} to replay_dag itself.",
            )
    # The caller is the DAG file (frame 1 is `checked_arguments`). Airflow shows its code, and `job_root` defaults to the
    # parent of its folder.
    dag_file = sys._getframe(2).f_code.co_filename
    root = str(Path(job_root) if job_root is not None else Path(dag_file).resolve().parent.parent)
    timetable = bounded(schedule, start_date, end_date)
    dag = DAG(
        dag_id or pipeline.name,
        schedule=timetable,
        start_date=start_date,
        catchup=catchup,
        description=description or default_description(pipeline),
        doc_md=page(pipeline, first=REPLAY if one_task else PLAN),
        params=form(),
        tags=set(tags),
        max_active_runs=max_active_runs,
        is_paused_upon_creation=is_paused_upon_creation,
        default_args={
            "retries": retries,
            "retry_delay": retry_delay,
            "retry_exponential_backoff": True,
            "max_retry_delay": max(retry_delay, RETRY_DELAY_MAX),
            **(default_args or {}),
        },
    )
    dag.fileloc = dag_file
    dateless = timetable is None or is_bounded(timetable)
    if dateless or type(dag.timetable) is AssetTriggeredTimetable:
        # The DAG constructor requires a start date for catchup. If the DAG kept it, Airflow would leave out the tasks of
        # a manual run whose logical date is earlier. The timetable has its own start if it needs one. No task is added
        # yet, so no task has inherited the date.
        dag.start_date = None
    last = (_one_task if one_task else _three_tasks)(
        dag,
        planning={
            "pipeline": pipeline,
            "job_root": root,
            "first": start_date,
            "infers": not dateless,
        },
        staging={
            "pipeline": pipeline,
            "job_root": root,
            "spark_conf": spark_conf,
            "spark_conn_id": spark_conn_id,
            "spark_binary": spark_binary,
            "stage_together": 1 if one_task else stage_together,
            "deferrable": deferrable,
            "without_spark_offsets_max": without_spark_offsets_max,
            "max_active_tis_per_dag": max_active_stages,
            **({"pool": pool} if pool else {}),
        },
        committing={
            "pipeline": pipeline,
            "asset": asset_of(pipeline),
            "interval_asset": interval_asset_of(pipeline),
        },
    )
    if pipeline.outputs or pipeline.registrations:
        last >> PublishOperator(
            task_id=PUBLISH,
            pipeline=pipeline,
            # Each run publishes all that is pending: of two at the same time, one would only be fenced.
            max_active_tis_per_dag=1,
            dag=dag,
            doc_md=PUBLISH_DOC,
        )
    return dag


def _three_tasks(
    dag: DAG,
    *,
    planning: Mapping[str, Any],
    staging: Mapping[str, Any],
    committing: Mapping[str, Any],
) -> BaseOperator:
    """Add the tasks `plan`, `stage` and `commit`; return the last one."""
    planned = PlanOperator(task_id=PLAN, dag=dag, doc_md=PLAN_DOC, **planning)
    staged = StageOperator(task_id=STAGE, dag=dag, doc_md=STAGE_DOC, **staging)
    committed = CommitOperator(
        task_id=COMMIT,
        # Each swap of the root makes concurrent commits start again: only a few at a time, over all runs and backfills.
        # Most of a small commit's time is the start of its process, in which it disturbs no other.
        max_active_tis_per_dag=MAX_ACTIVE_COMMITS,
        dag=dag,
        doc_md=COMMIT_DOC,
        **committing,
    )
    planned >> staged >> committed
    return committed


def _one_task(
    dag: DAG,
    *,
    planning: Mapping[str, Any],
    staging: Mapping[str, Any],
    committing: Mapping[str, Any],
) -> BaseOperator:
    """Add the task `replay`, and return it."""
    arguments = {**planning, **staging, **committing}
    return ReplayOperator(task_id=REPLAY, dag=dag, doc_md=REPLAY_DOC, **arguments)


def _check_limits(
    stage_together: int, max_active_stages: int | None, without_spark_offsets_max: int
) -> None:
    for name, limit in (
        ("stage_together", stage_together),
        ("max_active_stages", max_active_stages),
    ):
        if limit is not None and limit < 1:
            raise InvalidPipeline(
                f"{name}: expected at least 1, found {limit}.",
                hint=f"use {name}=1 for one at a time, or leave it out.",
            )
    if without_spark_offsets_max < 0:
        raise InvalidPipeline(
            f"without_spark_offsets_max: expected at least 0, found {without_spark_offsets_max}.",
            hint="use a number of offsets such as 100_000, or leave it out: Spark stages everything then.",
        )
