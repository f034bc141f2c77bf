"""The findings on a DAG's schedule: how many runs it starts when it is unpaused. Pure: the host reads the DAG."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tallystick.operations.check.finding import Checked, failed, ok, warning
from tallystick.pipeline import Pipeline

CHECK = "schedule"
RUNS_COUNTED_MAX = 10_000
# A catch-up of more runs is worth a warning: the first number if nothing bounds it, the second with an end_date.
RUNS_EXPECTED_MAX = 100
RUNS_BOUNDED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDag:
    """A DAG of `replay_dag`. `due`: the runs that would start now, up to RUNS_COUNTED_MAX; None without intervals."""

    dag_id: str
    pipeline: Pipeline
    job_root: str
    first: datetime
    last: datetime | None
    catchup: bool
    due: int | None


def schedule_finding(dag: DeclaredDag) -> Checked:
    """Return the number of runs that unpausing would start; a warning if they are many and nothing bounds them."""
    if dag.due is None:
        return ok(CHECK, f"DAG {dag.dag_id}: no scheduled intervals of tallystick; trigger it")
    many = f"more than {dag.due - 1:,}" if dag.due >= RUNS_COUNTED_MAX else f"{dag.due:,}"
    until = f" to {dag.last:%Y-%m-%d %H:%M}" if dag.last is not None else ""
    runs = "run" if dag.due == 1 else "runs"
    text = (
        f"DAG {dag.dag_id}: intervals from {dag.first:%Y-%m-%d %H:%M}{until}; unpausing it now starts "
        f"{many} {runs}"
    )
    bounded = dag.last is not None
    if dag.catchup and dag.due > (RUNS_BOUNDED_MAX if bounded else RUNS_EXPECTED_MAX):
        return warning(
            CHECK,
            f"{text}: catchup=True{'' if bounded else ' and no end_date'}",
            "set a later start_date or an end_date; use a longer schedule; or set catchup=False and fill the past with a "
            "backfill. Each run starts a Spark job.",
        )
    return ok(CHECK, text)


def no_dag(pipeline: Pipeline) -> Checked:
    """Return the finding for a pipeline without a DAG in its file."""
    return failed(
        CHECK,
        f"the file declares pipeline {pipeline.name} and no DAG of it",
        "assign the result of replay_dag(pipeline, ...) to a name at the top level of the file: Airflow finds no other.",
    )
