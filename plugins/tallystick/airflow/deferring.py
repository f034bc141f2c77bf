"""Submits a driver to a cluster for a stage task that waits in the triggerer, and reads what the driver has staged.

The driver has no connection to its task: its arguments name the plans, and it writes its outcome to the lake under a key
that the task computes from the plan and the attempt (`keys.outcome`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowException

from tallystick.airflow.clusters.port import Cluster, DriverRequest
from tallystick.errors import InvalidPipeline, TallystickError, error_of_kind
from tallystick.format import keys
from tallystick.format.outcome import StageOutcome
from tallystick.lake import Lake

TO_LAKE = "--outcome-to-lake"
# The driver's machine has its own environment. Spark's UI listens on every interface and has no login.
_CONF = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def submit(
    cluster: Cluster, *, name: str, job: str, arguments: Sequence[str], conf: Mapping[str, str]
) -> str:
    """Submit the driver of one attempt and return its id. Safe to repeat: see `Cluster.submit`."""
    request = DriverRequest(
        name=name, job=job, arguments=[*arguments, TO_LAKE], conf={**conf, **_CONF}
    )
    return cluster.submit(request)


def staged_by(
    lake: Lake, plan_keys: Sequence[keys.PlanKey], attempt: str, ended: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the plans and reports of a driver that has ended. `ended`: its last state and the cluster's message.

    The outcome decides, not the state: a driver can stage everything and be lost afterwards. Without an outcome the error
    is one that Airflow retries, except if the job succeeded, because a retry would end the same way.
    """
    key = keys.outcome(plan_keys[0], attempt)
    found = lake.store.get(key)
    state, message = ended.get("state"), ended.get("message")
    if found is None and state == "succeeded":
        raise InvalidPipeline(
            "the job succeeded and staged nothing.",
            hint="end the job file with `if __name__ == '__main__': run(transform)` (tallystick.spark).",
        )
    if found is None:
        why = f": {message}" if message else ""
        raise AirflowException(
            f"the driver ended in state {state!r} before it wrote an outcome{why}. Next: read the driver's log on the "
            "cluster; the task retries by itself."
        )
    outcome = StageOutcome.decode(found.body, where=lake.where(key))
    if outcome.error is not None:
        raise _error(outcome)
    staged = {one.plan: one.report for one in outcome.plans}
    if sorted(staged) != sorted(plan_keys):
        raise InvalidPipeline(
            f"outcome of the driver: expected {len(plan_keys)} plans of this run, found others: {sorted(staged)[:3]}.",
            hint="deploy the same version of tallystick for Airflow and for Spark, then clear the stage task.",
        )
    return [{"plan": plan, "report": report} for plan, report in staged.items()]


def _error(outcome: StageOutcome) -> Exception:
    assert outcome.error is not None
    fields = outcome.error
    error = error_of_kind(fields.kind, fields.message, hint=fields.hint)
    if type(error) is TallystickError:
        return AirflowException(f"{fields.message} Next: {fields.hint}")
    return error
