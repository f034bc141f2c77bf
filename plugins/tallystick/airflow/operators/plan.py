"""The task `plan`: grants, and one plan per grant. It starts no JVM."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk.exceptions import AirflowRescheduleException

from tallystick.airflow.connections import registry_named, settings_named
from tallystick.airflow.lines import log_lines
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.messages import planned_lines
from tallystick.airflow.metrics import measured
from tallystick.airflow.opening import open_lake
from tallystick.airflow.operators.context import RunStep, run_span
from tallystick.airflow.outcome import with_span
from tallystick.airflow.retention import found_at_risk, risk_note, warning_lines
from tallystick.airflow.run import params_and_dates, request_of, utc
from tallystick.airflow.task_ids import PLAN
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import Corrupt, NotYet
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations.job_file import job_file
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.retention_guard import SpanOutlook
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.pipeline import Pipeline

NOT_YET_RETRY = timedelta(seconds=20)


class PlanStep(RunStep):
    """The step of an operator that gets the run's grants in its interval, and writes one plan per grant."""

    job_root: str
    first: datetime
    infers: bool = False
    at_risk: Sequence[SpanOutlook] = ()

    @measured(PLAN)
    def plan_intervals(self, context: Any) -> dict[str, Any]:
        """Plan, and return the keys. Safe to repeat: the same request finds its own grants and gets the same plans."""
        started = time.monotonic()
        run = context["dag_run"]
        with self.errors(context):
            params, dates = params_and_dates(
                run, parse_params(dict(context["params"])), infers=self.infers
            )
            request = PlanRequest(
                pipeline=self.pipeline,
                job_source=job_file(self.pipeline, self.job_root).read_bytes(),
                request=request_of(run),
                params=params,
                dates=dates,
                first=utc(self.first),
            )
            line = (
                f"pipeline {self.pipeline.name}, requested by {request.request}, mode {params.mode}"
            )
            log_lines(self.log.info, [line])
            lake = open_lake(self.pipeline)
            try:
                planned = self.plan_run(lake, request)
            except NotYet as error:
                message = with_span(error, run_span(context)).message
                log_lines(self.log.info, [f"not yet: {message}"])
                at = next_try_at(self.pipeline, dates, datetime.now(UTC))
                # Airflow's exception has no type annotations.
                raise AirflowRescheduleException(at) from None  # type: ignore[no-untyped-call]
            plans = _left_to_stage(lake, planned)
        log_lines(self.log.info, planned_lines(planned, plans))
        self._warn_of_retention(context["ti"])
        self.log.info("planned in %.1f s", time.monotonic() - started)
        self.linked = lake.where(plans[0].key) if plans else None
        return _plan_xcom(planned, plans)

    def plan_run(self, lake: Lake, request: PlanRequest) -> PlanResult:
        """Plan with the ledger and the log in Kafka."""
        # The Kafka client is loaded when the task runs, never when the DAG file is parsed.
        from tallystick.kafka.planning import LogPlanner

        with LogPlanner(settings_named(KafkaSettings, self.pipeline.kafka)) as log:
            planned = plan(lake, log, request, open_registry=registry_named)
        # Without a request to Kafka: planning has described the topics.
        self.at_risk = found_at_risk(lake, log.described, dag=request.request.dag)
        return planned

    def _warn_of_retention(self, ti: Any) -> None:
        """Log the gaps whose records a topic may drop soon, each with its command, and note them for the run's page."""
        for line, command in warning_lines(self.at_risk):
            log_lines(self.log.warning, [line])
            if command:
                self.log.warning("%s", f"  {command}")  # one line, to be copied
        if self.at_risk:
            self.leave(ti, risk_note(self.at_risk))


class PlanOperator(PlanStep):
    """The operator that gets the run's grants in its interval, and writes one plan per grant. It starts no JVM.

    If the lateness of the interval has not passed, or an open transaction still covers it, the task is rescheduled. This
    frees its slot and uses no retry.
    """

    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#e3f0ea"

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        job_root: str,
        first: datetime,
        infers: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.job_root = job_root
        self.first = first
        self.infers = infers

    def execute(self, context: Any) -> dict[str, Any]:
        """Plan, and return the keys. Safe to repeat: see `plan_intervals`."""
        return self.plan_intervals(context)


def next_try_at(pipeline: Pipeline, dates: RunDates, now: datetime) -> datetime:
    """Return when to plan again: after the interval's lateness, or soon if only a transaction is still open."""
    soon = now + NOT_YET_RETRY
    if dates.data_interval is None:
        return max(soon, dates.run_after)
    return max(soon, dates.data_interval.end + pipeline.lateness)


def _left_to_stage(lake: Lake, planned: PlanResult) -> list[Plan]:
    plans: list[Plan] = []
    for interval in planned.intervals:
        if interval.committed:
            continue
        stored = lake.plan(interval.plan)
        if stored is None:
            raise Corrupt(
                f"{lake.where(interval.plan)} was granted at version {planned.version} and is gone.",
                hint="clear this task to plan the interval again. Find out what deleted the plan: tallystick did not.",
            )
        plans.append(stored)
    return plans


def _plan_xcom(planned: PlanResult, plans: Sequence[Plan]) -> dict[str, Any]:
    digests = {p.key: p.sha256 for p in plans}
    return {
        "interval": planned.interval.to_json() if planned.interval else None,
        "version": planned.version,
        "plans": [
            {"plan": p.plan, "sha256": digests.get(p.plan), "committed": p.committed}
            for p in planned.intervals
        ],
    }
