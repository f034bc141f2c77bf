"""The task `stage`: one spark-submit or driver for all plans of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from tallystick.airflow.clusters.opening import cluster_of
from tallystick.airflow.clusters.port import Cluster
from tallystick.airflow.connections import settings_named
from tallystick.airflow.deferring import staged_by, submit
from tallystick.airflow.environment import check_conf
from tallystick.airflow.job import JobDied
from tallystick.airflow.lines import log_lines
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.metrics import measured, record_duration
from tallystick.airflow.opening import open_lake
from tallystick.airflow.operators.context import RunStep, pulled
from tallystick.airflow.outcome import raise_reported_error, read_result
from tallystick.airflow.run import request_of
from tallystick.airflow.spark_submit import ScrubbedSparkSubmit, WithoutSpark
from tallystick.airflow.task_ids import PLAN, STAGE
from tallystick.airflow.together import is_first_try, is_running
from tallystick.airflow.trigger import DriverTrigger
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import Corrupt, TallystickError
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.lake import Lake
from tallystick.operations.job_file import job_file
from tallystick.operations.stage import to_stage
from tallystick.operations.stage_together import OtherPlans, StageTogether
from tallystick.pipeline import Pipeline
from tallystick.protocol.staging import offsets
from tallystick.runtime.parent import die_with_parent


class StageOperator(RunStep, SparkSubmitOperator):
    """The operator that stages all plans of the run with one spark-submit, or starts none if nothing is left to stage.

    Each try is an attempt with a prefix of its own, and ends with this task. The files that it stages are not visible
    before the commit. `stage_together`: how many plans one spark-submit stages at most, if some are of other runs of the
    DAG; the stage tasks of those runs then start none. If it is 1, each run starts its own.
    `deferrable`: the driver runs on the cluster of the connection, and the task waits for it in the triggerer.
    `without_spark_offsets_max`: plans with at most this many offsets together are staged by a plain Python process of
    this machine, without a JVM.
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
        without_spark_offsets_max: int = 0,
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
        self.without_spark_offsets_max = without_spark_offsets_max

    # The provider's execute returns nothing; this one returns the XCom that `commit` reads.
    def execute(self, context: Any) -> list[dict[str, Any]]:  # type: ignore[override]
        """Stage the plans that are left, and return the keys of plans and reports. Safe to repeat: see `stage_plans`."""
        return self.stage_plans(context, pulled(context, PLAN)["plans"])

    @measured(STAGE, is_timed=False)
    def stage_plans(
        self, context: Any, planned: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Stage the plans that are left, and return the keys of plans and reports.

        Safe to repeat: each try has its own attempt id, and nothing is visible before the commit (C4, C5, C6).
        """
        die_with_parent()
        started = time.monotonic()
        with self.errors(context):
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
            if self.deferrable and not self._is_without_spark(left.plans):
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
        with self.errors(context):
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

    def _is_without_spark(self, plans: Sequence[Plan]) -> bool:
        most = self.without_spark_offsets_max
        return most > 0 and sum(map(offsets, plans)) <= most

    def _log_committed(self, lake: Lake, plan_key: keys.PlanKey, deployed: str) -> None:
        log_lines(self.log.info, [f"{plan_key} is committed already"])
        found = lake.plan(plan_key)
        if found is not None and found.fingerprint != deployed:
            changed = (
                f"{found.interval} was committed by another job or declaration than the one deployed now.",
                self.named("Next: clear this run's plan task with its downstream to replace it."),
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
            without_spark = self._is_without_spark(plans)
            hook = (WithoutSpark if without_spark else ScrubbedSparkSubmit)(
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
