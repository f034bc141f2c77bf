"""The operators of a run: plan, stage, commit. Each reads the run from Airflow, calls the core, and logs the result.

They pass only keys by XCom. Everything else is in immutable objects on S3, so that a cleared task finds it there.

    plan    {"interval": [start, end] or null, "version": n, "plans": [{"plan", "sha256", "committed"}]}
    stage   [{"plan", "report"}]
    commit  {"pipeline", "version", "interval", "covered": [[start, end]], "held": [[start, end]],
             "gaps": [[start, end]], "record": key or null, "totals": {class: offsets}, "generation": n or null,
             "committed": {"intervals", "already", "totals", "rows": {table: n}, "bytes"}}

docs/reference/airflow.md describes these values. If a task fails, it pushes {"kind", "message", "hint"} with the key
`error`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException

from tallystick.airflow.clusters.opening import cluster_of
from tallystick.airflow.clusters.port import Cluster
from tallystick.airflow.connections import registry_named, settings_named
from tallystick.airflow.deferring import staged_by, submit
from tallystick.airflow.environment import check_conf
from tallystick.airflow.job import JobDied
from tallystick.airflow.lines import log_lines
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.messages import committed_lines, dead_line, planned_lines, stale_line
from tallystick.airflow.metrics import counted, measured, record_commit, record_duration
from tallystick.airflow.notes import commit_note, leave_note
from tallystick.airflow.outcome import airflow_errors, raise_reported_error, read_result, with_span
from tallystick.airflow.retention import found_at_risk, risk_note, warning_lines
from tallystick.airflow.run import params_and_dates, request_of, span_of, utc
from tallystick.airflow.run_summary import Covered, Own
from tallystick.airflow.spark_submit import ScrubbedSparkSubmit
from tallystick.airflow.together import is_first_try, is_running
from tallystick.airflow.trigger import DriverTrigger
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import Corrupt, InvalidRequest, NotYet, TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.job_file import job_file
from tallystick.operations.plan import PlanRequest, PlanResult, plan
from tallystick.operations.retention_guard import SpanOutlook
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.operations.stage import still_granted, to_stage
from tallystick.operations.stage_together import OtherPlans, StageTogether
from tallystick.pipeline import Pipeline
from tallystick.runtime import system_runtime
from tallystick.runtime.parent import die_with_parent
from tallystick.store.open import open_store

PLAN, STAGE, COMMIT, PUBLISH = "plan", "stage", "commit", "publish"
NOT_YET_RETRY = timedelta(seconds=20)


def open_lake(pipeline: Pipeline) -> Lake:
    """Open the pipeline's lake with this machine's clock, and set the loggers of libraries to WARNING."""
    return open_warehouse(pipeline.warehouse)


def open_warehouse(uri: str) -> Lake:
    """Open the lake at `uri` with this machine's clock, and set the loggers of libraries to WARNING."""
    for name in ("botocore", "boto3", "urllib3", "pyiceberg"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs each try to connect as an error; the error that ends them all names the server and the cause.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return Lake(counted(open_store(uri)), system_runtime())


class PlanOperator(BaseOperator):
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
        self.linked: str | None = None
        self.at_risk: Sequence[SpanOutlook] = ()

    @measured(PLAN)
    def execute(self, context: Any) -> dict[str, Any]:
        """Plan, and return the keys. Safe to repeat: the same request finds its own grants and gets the same plans."""
        started = time.monotonic()
        run = context["dag_run"]
        with airflow_errors(_span(context), context["ti"]):
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
                message = with_span(error, _span(context)).message
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
            leave_note(ti, risk_note(self.at_risk))


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


class StageOperator(SparkSubmitOperator):
    """The operator that stages all plans of the run with one spark-submit, or starts none if nothing is left to stage.

    Each try is an attempt with a prefix of its own, and ends with this task. The files that it stages are not visible
    before the commit. `stage_together`: how many plans one spark-submit stages at most, if some are of other runs of the
    DAG; the stage tasks of those runs then start none. If it is 1, each run starts its own.
    `deferrable`: the driver runs on the cluster of the connection, and the task waits for it in the triggerer.
    """

    template_fields: Sequence[str] = ()
    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#f6e8d5"
    _driver: tuple[Cluster, str] | None = None

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        job_root: str,
        spark_conf: Mapping[str, str] | None = None,
        spark_conn_id: str = "spark_default",
        spark_binary: str | None = None,
        stage_together: int = 1,
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        # durable=False: if it were True, a cleared task could find its earlier job "already completed" and do nothing.
        super().__init__(conn_id=spark_conn_id, spark_binary=spark_binary, durable=False, **kwargs)
        self.pipeline = pipeline
        self.job_root = job_root
        self.spark_conf = check_conf(spark_conf or {})
        # A driver on a cluster stages the plans of its own run only: nothing waits in this task for others.
        self.stage_together = 1 if deferrable else stage_together
        self.deferrable = deferrable
        self.linked: str | None = None

    # The provider's execute returns nothing; this one returns the XCom that `commit` reads.
    @measured(STAGE, is_timed=False)
    def execute(self, context: Any) -> list[dict[str, Any]]:  # type: ignore[override]
        """Stage the plans that are left, and return the keys of plans and reports.

        Safe to repeat: each try has its own attempt id, and nothing is visible before the commit (C4, C5, C6).
        """
        die_with_parent()
        started = time.monotonic()
        planned = _pull(context, PLAN)["plans"]
        with airflow_errors(_span(context), context["ti"]):
            job = job_file(self.pipeline, self.job_root)
            deployed = self.pipeline.fingerprint(job.read_bytes())
            lake = open_lake(self.pipeline)
            left = to_stage(
                lake, [p["plan"] for p in planned if not p["committed"]], fingerprint=deployed
            )
            for key in [*(p["plan"] for p in planned if p["committed"]), *left.committed]:
                self._log_committed(lake, key, deployed)
            log_lines(self.log.warning, (f"not staged: {why}" for why in left.lost))
            if not left.plans:
                self.log.info("nothing to stage: no Spark is started")
                return []
            _same_plans(lake, left.plans, planned)
            if self.deferrable:
                self._submit_and_defer(lake, job, left.plans, context["ti"].id.hex)
            staged = self._stage(lake, job, left.plans, context)
        return self._staged(lake, staged, time.monotonic() - started)

    def _staged(
        self, lake: Lake, staged: list[dict[str, Any]], elapsed_s: float
    ) -> list[dict[str, Any]]:
        self.linked = next((lake.where(s["report"]) for s in staged if s["report"]), None)
        self.log.info("staged %d plan(s) in %.1f s", len(staged), elapsed_s)
        record_duration(STAGE, self.pipeline.name, elapsed_s)
        return staged

    def _submit_and_defer(
        self, lake: Lake, job: Path, plans: Sequence[Plan], attempt: str
    ) -> NoReturn:
        """Submit a driver to the cluster, and end this process until the driver has ended.

        Safe to repeat: each try has its own attempt id. If this process dies after the submission, the driver runs to its
        end, no run uses what it staged, and the next try submits another one (C4, C5).
        """
        self.log.info("attempt %s", attempt)
        cluster, master = cluster_of(self._conn_id)
        driver = submit(
            cluster,
            name=f"tallystick-{self.pipeline.name}-{attempt}",
            job=str(job),
            arguments=_arguments(lake, plans, attempt),
            conf=self.spark_conf,
        )
        self._driver = cluster, driver
        log_lines(self.log.info, [f"driver {driver} on {master}: this task waits without a slot"])
        now, limit = time.time(), self.execution_timeout
        until = None if limit is None else now + limit.total_seconds()
        self.defer(
            trigger=DriverTrigger(conn_id=self._conn_id, driver=driver, until=until),
            method_name=self.driver_ended.__name__,
            kwargs={
                "plans": [one.key for one in plans],
                "attempt": attempt,
                "driver": driver,
                "submitted": now,
            },
        )

    @measured(STAGE, is_timed=False)
    def driver_ended(
        self,
        context: Any,
        event: Mapping[str, Any],
        *,
        plans: list[keys.PlanKey],
        attempt: str,
        driver: str,
        submitted: float,
    ) -> list[dict[str, Any]]:
        """Continue after the driver has ended: return the keys of plans and reports. Safe to repeat: it only reads."""
        with airflow_errors(_span(context), context["ti"]):
            lake = open_lake(self.pipeline)
            log_lines(self.log.info, [f"driver {driver} ended: {event.get('state')}"])
            staged = staged_by(lake, plans, attempt, event)
        return self._staged(lake, staged, time.time() - submitted)

    def _stage(
        self, lake: Lake, job: Path, plans: Sequence[Plan], context: Any
    ) -> list[dict[str, Any]]:
        """Stage the plans, together with other runs if that is switched on. Safe to repeat: see `execute`."""
        ti = context["ti"]
        attempt = ti.id.hex
        if self.stage_together < 2:
            return self._submit(lake, job, plans, attempt=attempt)
        together = StageTogether(
            lake=lake,
            request=request_of(context["dag_run"]),
            attempt=attempt,
            fresh=is_first_try(ti, self.retries or 0),
            is_running=is_running(ti, self.task_id),
            note=self._note,
        )
        reports = together.reports(plans)
        staged: list[dict[str, Any]] = [{"plan": p, "report": r} for p, r in reports.items()]
        if rest := [plan for plan in plans if plan.key not in reports]:
            others = self._claim_others(lake, rest, attempt)
            staged += self._submit(lake, job, rest, attempt=attempt, others=others)
        return staged

    def _claim_others(self, lake: Lake, own: Sequence[Plan], attempt: str) -> list[Plan]:
        """Claim plans of other runs for this attempt, fewer if the lake cannot be read. Safe to repeat: as `claim`."""
        others = OtherPlans(
            lake=lake, own=own, attempt=attempt, plans_max=self.stage_together - len(own)
        )
        try:
            for plan in others.claim_more():
                self._note(f"also stages {plan.interval} of {plan.request}")
        except TallystickError as error:
            self._note(f"searches no further for plans of other runs: {error}")
        return others.claimed

    def _note(self, line: str) -> None:
        log_lines(self.log.info, [line])

    def _log_committed(self, lake: Lake, plan_key: keys.PlanKey, deployed: str) -> None:
        log_lines(self.log.info, [f"{plan_key} is committed already"])
        found = lake.plan(plan_key)
        if found is not None and found.fingerprint != deployed:
            changed = (
                f"{found.interval} was committed by another job or declaration than the one deployed now.",
                "Next: clear this run's plan task with its downstream to replace it.",
            )
            log_lines(self.log.warning, changed)

    def _submit(
        self,
        lake: Lake,
        job: Path,
        plans: Sequence[Plan],
        *,
        attempt: str,
        others: Sequence[Plan] = (),
    ) -> list[dict[str, Any]]:
        with TemporaryDirectory(prefix="tallystick-") as private:  # mode 0700
            result = Path(private) / "result.json"
            hook = ScrubbedSparkSubmit(
                conf=self.spark_conf,
                kafka_name=self.pipeline.kafka,
                kafka=settings_named(KafkaSettings, self.pipeline.kafka),
                result_file=result,
                conn_id=self._conn_id,
                spark_binary=self._spark_binary,
                name=f"tallystick-{self.pipeline.name}",
                application_args=[
                    *_arguments(lake, plans, attempt),
                    *_other_arguments(lake, others, self.stage_together - len(plans)),
                ],
            )
            self._hook = hook
            self.log.info("attempt %s", attempt)
            try:
                hook.submit(str(job))
            except JobDied as error:
                raise_reported_error(result)
                if not result.is_file():
                    raise (error.error or error) from None
                # The driver died later, while it staged plans of other runs: they stage them again.
                log_lines(self.log.warning, [f"this run's plans are staged, but {error}"])
            return read_result(result, plans)

    def on_kill(self) -> None:
        """Kill the driver if there is one."""
        if self._hook is not None:
            self._hook.on_kill()
        if self._driver is not None:
            # The task is not deferred yet, so no trigger kills the driver.
            cluster, driver = self._driver
            with suppress(TallystickError):
                cluster.kill(driver)


def _arguments(lake: Lake, plans: Sequence[Plan], attempt: str) -> list[str]:
    arguments: list[str] = []
    for one in plans:
        arguments += ["--plan", f"{lake.where(one.key)}@{one.sha256}"]
    return [*arguments, "--attempt", keys.check_attempt(attempt)]


def _other_arguments(lake: Lake, others: Sequence[Plan], others_max: int) -> list[str]:
    if others_max < 1:
        return []
    arguments: list[str] = []
    for one in others:
        arguments += ["--other", f"{lake.where(one.key)}@{one.sha256}"]
    return [*arguments, "--others-max", str(others_max)]


def _same_plans(lake: Lake, plans: Sequence[Plan], planned: Sequence[Mapping[str, Any]]) -> None:
    digests = {p["plan"]: p["sha256"] for p in planned}
    for one in plans:
        if one.sha256 != digests[one.key]:
            raise Corrupt(
                f"{lake.where(one.key)}: expected digest {digests[one.key]}, found {one.sha256}.",
                hint="clear this run's plan task, which writes a new plan: this plan was overwritten.",
            )


class CommitOperator(BaseOperator):
    """The operator that commits the staged reports, one swap per plan, and emits an Asset event. It starts no JVM."""

    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#d8e4f5"

    def __init__(self, *, pipeline: Pipeline, asset: Asset, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.pipeline = pipeline
        self.asset = asset
        self.linked: str | None = None

    @measured(COMMIT)
    def execute(self, context: Any) -> dict[str, Any]:
        """Commit, log the result, and return what is committed of the run's interval.

        Safe to repeat: a plan that is committed remains committed, and is reported as committed already (C9, C11, C12).
        The Asset event is emitted again: consumers skip versions that they have seen. If the task fails because one plan
        is lost, Airflow emits no event, although the other plans are committed. The next event's version covers them.
        """
        started = time.monotonic()
        planned = _pull(context, PLAN)
        reports = {one["plan"]: one["report"] for one in _pull(context, STAGE)}
        with airflow_errors(_span(context), context["ti"]):
            lake = open_lake(self.pipeline)
            own = self._commit_all(
                lake, [p["plan"] for p in planned["plans"] if not p["committed"]], reports
            )
            covered = Covered.read(lake, planned["interval"])
            left = self._stale(lake, planned["interval"])
        log_lines(self.log.info, covered.lines())
        if left:
            log_lines(self.log.warning, [stale_line(left)])
        self.log.info("done in %.1f s", time.monotonic() - started)
        self.linked = lake.where(covered.record) if covered.record else None
        committed = {"committed": own.to_json()}
        event = {"pipeline": self.pipeline.name, **covered.to_json(), **committed}
        context["outlet_events"][self.asset].extra = event
        leave_note(context["ti"], commit_note(covered, own, request_of(context["dag_run"])))
        return event

    def _stale(self, lake: Lake, interval_json: list[str] | None) -> Mapping[Interval, Interval]:
        """Return what is stale in the run's interval, and in later time whose lookback may have read the interval."""
        lookback = self.pipeline.lookback
        if lookback is None or interval_json is None:
            return {}
        interval, back = Interval.from_json(interval_json, "interval"), lookback.back

        def from_snapshot(snapshot: Snapshot) -> Mapping[Interval, Interval]:
            ends = [ref.until for ref in snapshot.root.pages]
            until = max([interval.end, *ends]) if back is None else interval.end + back
            near = snapshot.ledger(interval.start, until)
            reached = (e.interval for e in near.entries if e.interval.start <= until)
            return snapshot.stale_among(i for i in reached if i.end > interval.start)

        return lake.read(from_snapshot)

    def _commit_all(
        self,
        lake: Lake,
        plan_keys: Sequence[keys.PlanKey],
        reports: Mapping[str, keys.ReportKey | None],
    ) -> Own:
        own = Own()
        failed: TallystickError | None = None
        for key in plan_keys:
            try:
                result = self._commit_one(lake, key, reports.get(key))
            except TallystickError as error:
                # The other plans are independent: if one was taken over, they must still be committed.
                log_lines(self.log.warning, [f"not committed: {key}: {error}"])
                failed = failed or error
            else:
                shown = committed_lines(result) if result else [f"{key} was committed already"]
                log_lines(self.log.info, shown)
                if result is not None:
                    report = _report(lake, reports.get(key))
                    own.add(result, report)
                    record_commit(lake, self.pipeline.name, result, report)
                    if (dead := dead_line(result)) is not None:
                        log_lines(self.log.warning, [dead])
        if failed is not None:
            raise failed
        return own

    def _commit_one(
        self, lake: Lake, plan_key: keys.PlanKey, report_key: keys.ReportKey | None
    ) -> CommitResult | None:
        from tallystick.tables.staging import (
            IcebergTables,  # PyIceberg is loaded when the task runs, never when the DAG is parsed
        )

        if report_key is None:
            if still_granted(lake, plan_key) is None:
                return None
            raise InvalidRequest(
                f"the stage task of this run returned no report for {plan_key}.",
                hint="clear the stage task with its downstream to stage the plan.",
            )
        tables = IcebergTables(lake.store, lake.runtime)
        return commit(lake, tables, plan_key=plan_key, report_key=report_key)


def _report(lake: Lake, key: keys.ReportKey | None) -> Report | None:
    """Return the committed report for its counts; None if gc has deleted it, which is no error after the commit."""
    return None if key is None else lake.report(key)


def _span(context: Any) -> str:
    return span_of(context["dag_run"], context["params"])


def _pull(context: Any, task: str) -> Any:
    found = context["ti"].xcom_pull(task_ids=task)
    if found is None:
        with airflow_errors(_span(context), context["ti"]):
            raise InvalidRequest(
                f"the {task} task of this run returned no XCom: it has not run, or its XCom was cleared.",
                hint=f"clear the {task} task with its downstream.",
            )
    return found
