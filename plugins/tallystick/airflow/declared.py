"""Reads the DAGs of a loaded DAG file as plain values, for `tally check`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from airflow.sdk import DAG
from airflow.timetables.base import DataInterval, TimeRestriction

from tallystick.airflow.operators.plan import PlanStep
from tallystick.airflow.task_ids import PLAN, REPLAY
from tallystick.airflow.timetables import is_bounded
from tallystick.operations.check.schedule import RUNS_COUNTED_MAX, DeclaredDag


def declared_dags(values: Iterable[Any], now: datetime) -> tuple[DeclaredDag, ...]:
    """Return the DAGs of `replay_dag` among the values of a module."""
    dags = {id(value): value for value in values if isinstance(value, DAG)}
    plans = ((dag, dag.task_dict.get(PLAN) or dag.task_dict.get(REPLAY)) for dag in dags.values())
    return tuple(_declared(dag, plan, now) for dag, plan in plans if isinstance(plan, PlanStep))


def _declared(dag: DAG, plan: PlanStep, now: datetime) -> DeclaredDag:
    return DeclaredDag(
        dag_id=dag.dag_id,
        pipeline=plan.pipeline,
        job_root=plan.job_root,
        first=plan.first,
        last=getattr(dag.timetable, "last", None),
        catchup=dag.catchup,
        due=_due(dag, now),
    )


def _due(dag: DAG, now: datetime) -> int | None:
    """Return how many intervals the scheduler would run if the DAG were unpaused; None if it has none of tallystick's."""
    timetable: Any = dag.timetable
    if not is_bounded(timetable):
        return None
    restriction = TimeRestriction(None, None, dag.catchup)
    before: DataInterval | None = None
    for count in range(RUNS_COUNTED_MAX):
        info = timetable.next_dagrun_info(
            last_automated_data_interval=before, restriction=restriction
        )
        if info is None or info.run_after > now:
            return count
        before = info.data_interval
    return RUNS_COUNTED_MAX
