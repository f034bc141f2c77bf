"""Builds the DAG of a pipeline: plan -> stage -> commit, then publish if the pipeline has outputs.

A DAG file calls only this:

dag = replay_dag(pipeline, schedule="@daily", start_date=datetime(2013, 1, 1, tzinfo=UTC))
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable

from tallystick.airflow.arguments import checked_arguments
from tallystick.airflow.assets import asset_of, interval_asset_of
from tallystick.airflow.operators.commit import CommitOperator
from tallystick.airflow.operators.context import COMMIT, PLAN, PUBLISH, STAGE
from tallystick.airflow.operators.plan import PlanOperator
from tallystick.airflow.operators.publish import PublishOperator
from tallystick.airflow.operators.stage import StageOperator
from tallystick.airflow.timetables import bounded, is_bounded
from tallystick.errors import InvalidPipeline
from tallystick.operations.run_request import MODES, NAMES, defaults
from tallystick.pipeline import Pipeline

RETRIES = 3
RETRY_DELAY = timedelta(minutes=1)
RETRY_DELAY_MAX = timedelta(minutes=15)
# Of these runs, at most MAX_ACTIVE_STAGES start Spark at the same time.
MAX_ACTIVE_RUNS = 16
STAGE_TOGETHER = 12
MAX_ACTIVE_STAGES = 2
MAX_ACTIVE_COMMITS = 3
_DATES = ", e.g. `2013-01-04` or `2013-01-04T06:00:00+00:00`; without an offset it is UTC."


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
    `pool`: the same limit for stage tasks of several DAGs.
    Raises InvalidPipeline if a date has no zone, if the schedule's intervals contain no time, if `default_args` contains
    one of the dates, if `stage_together` or `max_active_stages` is less than 1, if `without_spark_offsets_max` is
    negative, and if a Spark option is not allowed.
    """
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
        description=description
        or f"Exactly-once replay of {_names(pipeline)} into {pipeline.warehouse}",
        doc_md=_doc(pipeline),
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
    pooled = {"pool": pool} if pool else {}
    planned = PlanOperator(
        task_id=PLAN,
        pipeline=pipeline,
        job_root=root,
        first=start_date,
        infers=not dateless,
        dag=dag,
        doc_md=_PLAN_DOC,
    )
    staged = StageOperator(
        task_id=STAGE,
        pipeline=pipeline,
        job_root=root,
        spark_conf=spark_conf,
        spark_conn_id=spark_conn_id,
        spark_binary=spark_binary,
        stage_together=stage_together,
        deferrable=deferrable,
        without_spark_offsets_max=without_spark_offsets_max,
        max_active_tis_per_dag=max_active_stages,
        dag=dag,
        doc_md=_STAGE_DOC,
        **pooled,
    )
    committed = CommitOperator(
        task_id=COMMIT,
        pipeline=pipeline,
        asset=asset_of(pipeline),
        interval_asset=interval_asset_of(pipeline),
        # Each swap of the root makes concurrent commits start again: only a few at a time, over all runs and backfills.
        # Most of a small commit's time is the start of its process, in which it disturbs no other.
        max_active_tis_per_dag=MAX_ACTIVE_COMMITS,
        dag=dag,
        doc_md=_COMMIT_DOC,
    )
    planned >> staged >> committed
    if pipeline.outputs or pipeline.registrations:
        committed >> PublishOperator(
            task_id=PUBLISH,
            pipeline=pipeline,
            # Each run publishes all that is pending: of two at the same time, one would only be fenced.
            max_active_tis_per_dag=1,
            dag=dag,
            doc_md=_PUBLISH_DOC,
        )
    return dag


def form() -> dict[str, Param]:
    """Return the Trigger form: every parameter of a run, with its type and meaning."""
    preset = defaults()
    params = {
        "mode": Param(
            preset["mode"],
            type="string",
            enum=list(MODES),
            title="Mode",
            description_md="`process`: everything that is not committed yet. `replace`: everything in the span again, "
            "whichever run committed it; each interval is replaced whole, in one swap. It needs a span, except in a "
            "backfill. `refresh`: the intervals that are stale because rows of their lookback have changed since; "
            "without dates all of them. `dead_letters`: the intervals that contain dead letters, in the span or without "
            "dates all of them, e.g. after the declaration was corrected. The Backfill form "
            "sends this and all other parameters only if *Override parameters on existing runs* is ticked.",
        ),
        "from": _date(
            preset["from"],
            "From (Trigger only)",
            f"Beginning of the span, inclusive{_DATES} Empty: the end of the ledger. In a backfill leave "
            "it empty: each run has the interval of its own date, and a backfill with this field filled in is refused.",
        ),
        "to": _date(
            preset["to"],
            "To (Trigger only)",
            f"End of the span, exclusive{_DATES} Empty: the Logical Date that Airflow's form shows (now, "
            "unless you change it), less the pipeline's lateness. In a backfill leave it empty, too.",
        ),
        "force": _switch(
            "Recompute although nothing changed",
            "A cleared run replaces its own intervals even if job and declaration are unchanged.",
        ),
        "take_over": _switch(
            "Take over",
            "Cancel the grants of other runs in this span. Their staged files are "
            "discarded; time that this run does not cover becomes a gap.",
        ),
        "accept_loss": _switch(
            "Accept loss",
            "Commit although the topic has lost records of the span. The ledger records the loss permanently.",
        ),
        "accept_compaction": _switch(
            "Accept compaction",
            "Replace although the topic was compacted and has fewer records than are committed.",
        ),
        "accept_dead_letters": _switch(
            "Accept dead letters",
            "Replace although records that are rows now become dead letters, as with a stricter declaration.",
        ),
    }
    assert tuple(params) == NAMES
    return params


def _date(preset: Any, title: str, meaning: str) -> Param:
    # No `format`: JSON schema's date-time refuses 2013-01-04, which the plan task accepts. The plan task validates it.
    return Param(preset, type=["null", "string"], title=title, description_md=meaning)


def _switch(title: str, meaning: str) -> Param:
    return Param(
        False, type="boolean", title=title, description_md=meaning, section="Only if intended"
    )


def _names(pipeline: Pipeline) -> str:
    return ", ".join(_topics(pipeline))


def _topics(pipeline: Pipeline) -> list[str]:
    """Return the names and the patterns of the topics."""
    return [t.name for t in pipeline.inputs] + [t.pattern for t in pipeline.patterns]


def _doc(pipeline: Pipeline) -> str:
    return _DAG_DOC.format(
        name=pipeline.name,
        topics=", ".join(f"`{name}`" for name in _topics(pipeline)),
        tables=", ".join(
            [f"`{t.name}`" for t in pipeline.tables] + [f"`{t.table}`" for t in pipeline.patterns]
        ),
        warehouse=pipeline.warehouse,
        job=pipeline.job,
    )


_DAG_DOC = """\
### {name}: {topics} to {tables}

Lake `{warehouse}`, job `{job}`. Each record of each committed interval is accounted for exactly once, even if runs are
repeated, killed or out of order. `tally status` shows intervals and gaps.

| you press | what happens |
| --- | --- |
| nothing: the schedule | the run's data interval is planned, staged and committed |
| **Backfill**, any span, forwards or backwards | everything that is not committed yet is committed; committed intervals \
remain unchanged |
| **Clear**, any task, at any time | nothing, if nothing changed; after a change of job or declaration, clear `plan`: \
the run's interval is replaced in every table at once |
| **Trigger**, the form unchanged | the time from the end of the ledger to now is committed |
| **Trigger** with *From* and *To* | everything between them that is not committed yet is committed |
| **Trigger** with mode `replace`, *From* and *To* | every committed interval between them is replaced |
| **Trigger** with mode `refresh` | every interval whose lookback has changed since is replaced |
| **Trigger** with mode `dead_letters` | every interval that contains dead letters is replaced |

In the Trigger form leave *Logical Date* as proposed: a run without *From* and *To* ends there, now at the latest. \
A *Data Interval* typed there counts as *From* and *To*; one that Airflow infers does not. In a backfill leave the \
parameters *From* and *To* empty: each of its runs has the interval of its own date. The Backfill form sends its \
parameters only if *Override parameters on existing runs* is ticked (Airflow 3.3); without that not even the mode.

If two runs request the same span, the first gets it; the second logs that and succeeds. Consumers of \
the Asset skip versions that they have processed: a cleared commit emits its event again.
"""
_PLAN_DOC = "Reads the ledger and Kafka's offsets, grants this run its gaps, writes one plan per gap to S3. No Spark."
_STAGE_DOC = (
    "One spark-submit for all plans of the run: reads exactly the planned offsets and writes Parquet under its own "
    "prefix, invisible to readers. Starts no Spark if everything is committed."
)
_COMMIT_DOC = "Checks the staged files, and swaps the root: all tables, dead letters and offsets at once, or nothing."

_PUBLISH_DOC = """\
Publishes all committed rows that are pending for outputs outside the lake, of any run, each row once. Completes \
publications in progress first. Then registers the tables of the last commit in the declared catalogs.
"""
