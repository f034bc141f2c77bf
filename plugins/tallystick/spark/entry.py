"""Runs the driver of a job: checks the arguments and plans, stages each plan, writes its report, reports the outcome.

After the plans of its own run, it may stage small plans of other runs (`tallystick.spark.together`).

Nothing here makes rows visible: the commit checks a report before it uses it. If a driver was declared dead but still
runs, it can only leave files and a report under its own attempt.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.engine.attempt import assemble
from tallystick.errors import Corrupt, InvalidPipeline, JobChanged, Superseded, TallystickError
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.format.report import Report
from tallystick.lake import Lake
from tallystick.operations.stage import still_granted
from tallystick.runtime import system_runtime
from tallystick.runtime.loading import loading
from tallystick.runtime.parent import die_with_jvm
from tallystick.runtime.version import VERSION
from tallystick.spark.arguments import PlanRef, parse_arguments
from tallystick.spark.order import Order, pipeline_of
from tallystick.spark.outcome import (
    RESULT_FILE_ENV,
    FileOutcome,
    LakeOutcome,
    OutcomeWriter,
    StagedPlan,
    exit_code,
    scratch_full,
)
from tallystick.spark.plan_stager import PlanStager, Staging
from tallystick.spark.together import stage_others
from tallystick.spark.without_spark import stage_without_spark
from tallystick.store.open import open_store

log = logging.getLogger("tallystick.spark")


def main(transform: Callable[..., Any], *, staging: Staging | None = None) -> None:
    """Run a job with this process's arguments and environment, and exit; see `tallystick.spark.run`."""
    die_with_jvm(os.environ)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    # Silence chatty libraries.
    for name in ("py4j", "botocore", "boto3", "urllib3", "numba"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs each try to connect as an error; the error that ends them all names the server and the cause.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    job = _running_file()
    staging = staging or stage_arrow
    sys.exit(run_job(transform, sys.argv[1:], environ=os.environ, job=job, staging=staging))


def run_job(
    transform: Callable[..., Any],
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    job: Path,
    staging: Staging,
) -> int:
    """Stage the plans of `argv` and return the exit code. `job` is the file whose source is part of the fingerprint.

    Safe to repeat: every run writes under the prefix of its attempt, each object under a fresh key, the report last.
    """
    outcome: OutcomeWriter = FileOutcome(environ.get(RESULT_FILE_ENV))
    try:
        arguments = parse_arguments(argv)
        if arguments.without_spark:
            staging = _without_spark(staging)
        lake = Lake(open_store(arguments.plans[0].lake_uri), system_runtime(), proven=True)
        if arguments.to_lake:
            outcome = LakeOutcome(lake, arguments.plans[0].key, arguments.attempt)
        stager = PlanStager(
            lake=lake,
            transform=transform,
            attempt=arguments.attempt,
            environ=environ,
            staging=staging,
        )
        driver = _Driver(stager, job.read_bytes())
        staged = driver.stage_all(arguments.plans)
        # The result is complete: if this process dies while it stages plans of other runs, its own run is not affected.
        outcome.write_results(staged)
        if arguments.others_max:
            stage_others(lake, arguments, driver.stage_other)
    except TallystickError as error:
        log.error("not staged: %s", error)
        outcome.write_error(error)
        return exit_code(error)
    except Exception as error:  # Airflow's task must find any error in the result file
        log.exception("not staged")
        known = scratch_full(error) or error
        outcome.write_error(known)
        return exit_code(known)
    finally:
        _stop_spark()
    return 0


def _without_spark(staging: Staging) -> Staging:
    """Return the staging of a job that runs in this process. Raises InvalidPipeline if the job needs Spark."""
    if staging is not stage_arrow:
        raise InvalidPipeline(
            "the job computes with Spark's DataFrames, and it was started without Spark.",
            hint="remove without_spark_offsets_max from replay_dag, or write the job with `run` (Arrow).",
        )
    return stage_without_spark


def _stop_spark() -> None:
    """Stop Spark if this process has started it. Safe to repeat: see `stop_session`."""
    if "pyspark" in sys.modules:
        from tallystick.spark.session import stop_session

        stop_session()


@dataclass(frozen=True, slots=True)
class _Driver:
    """What one run of a job stages plans with. `job_source` is the source of its file."""

    stager: PlanStager
    job_source: bytes

    def stage_all(self, refs: Sequence[PlanRef]) -> list[StagedPlan]:
        """Stage the plans of the own run and write their reports. Safe to repeat: see `run_job`."""
        lake = self.stager.lake
        log.info("tallystick %s, attempt %s, %d plan(s)", VERSION, self.stager.attempt, len(refs))
        staged = []
        # Check all plans before the first is staged: if the job has changed, none of the run is staged.
        plans = [_left(lake, ref, self.job_source) for ref in refs]
        before: list[tuple[Plan, Report]] = []
        # In the order of time: a lookback reads the rows of earlier intervals that the same run has staged.
        for ref, plan in sorted(
            zip(refs, plans, strict=True), key=lambda one: keys.plan_interval(one[0].key)
        ):
            if plan is None:
                staged.append(StagedPlan(plan=ref.key, report=None))
            else:
                report = self.stager.stage(plan, before)
                before.append((plan, report))
                staged.append(StagedPlan(plan=plan.key, report=report.key))
        return staged

    def stage_other(self, ref: PlanRef) -> bool:
        """Stage a plan of another run and write its report under the key that its claim announces.

        Returns False if there is nothing to stage. Safe to repeat: see `run_job`.
        """
        plan = _left(self.stager.lake, ref, self.job_source)
        if plan is None:
            return False
        self.stager.stage(plan, key=keys.claimed_report(plan.key, self.stager.attempt))
        return True


def _left(lake: Lake, ref: PlanRef, job_source: bytes) -> Plan | None:
    """Return a plan that is still to be staged, or None if it is committed or superseded (the commit task reports it)."""
    try:
        plan = _checked(lake, ref, job_source)
    except Superseded as error:
        log.warning("not staged: %s", error)
        return None
    if plan is None:
        log.info("%s is committed already: nothing to stage", ref.key)
    return plan


def _checked(lake: Lake, ref: PlanRef, job_source: bytes) -> Plan | None:
    """Return a plan that is still to be staged, or None if it is committed.

    Raises Superseded if its grant is gone, Corrupt if the plan's digest is not the expected one, JobChanged if the plan
    was made with another fingerprint.
    """
    plan = still_granted(lake, ref.key)
    if plan is None:
        return None
    if plan.sha256 != ref.sha256:
        raise Corrupt(
            f"{lake.where(ref.key)}: expected digest {ref.sha256}, for which this job was started, found {plan.sha256}.",
            hint="clear the plan task, which writes a new plan: this plan was overwritten.",
        )
    running = pipeline_of(plan).fingerprint(job_source)
    if running != plan.fingerprint:
        raise JobChanged(
            f"the job of {plan.interval}: expected fingerprint {plan.fingerprint[:12]} as planned, found {running[:12]}.",
            hint="clear the plan task to replan the interval with the current job.",
        )
    return plan


def stage_arrow(
    lake: Lake,
    order: Order,
    transform: Callable[..., Any],
    staged: Sequence[tuple[Plan, Report]] = (),
) -> Report:
    """Stage an Arrow job by one Spark stage that reads, transforms and writes; raises the errors of its tasks.

    `staged` is not used: an Arrow job has no lookback.
    """
    del staged
    work = order.work(
        lake.store, transform
    )  # raises InvalidPipeline for a pipeline of another kind, before anything is read
    if not order.splits:
        return assemble(work, (), ())
    # A driver without Spark must not load pyspark.
    with loading():
        from tallystick.spark.session import stage_session
        from tallystick.spark.stage import stage_splits

    session = stage_session(order.target.plan, tasks=len(order.groups))
    log.info(
        "spark %s at %s: %d task(s), one stage",
        session.version,
        session.sparkContext.master,
        len(order.groups),
    )
    return assemble(work, order.splits, stage_splits(session, order, transform))


def _running_file() -> Path:
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        raise InvalidPipeline(
            "run(transform) was not called from a job file.",
            hint="start the file with spark-submit, with run(transform) under `if __name__ == '__main__'`.",
        )
    return Path(file)
