"""The task `replay` of a DAG with `one_task`: the steps of `plan`, `stage` and `commit`, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException

from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.notes import leave_note
from tallystick.airflow.opening import open_lake
from tallystick.airflow.operators.commit import CommitStep
from tallystick.airflow.operators.plan import PlanStep
from tallystick.airflow.operators.stage import StageOperator
from tallystick.airflow.outcome import in_one_task
from tallystick.operations.commit import committed_report


class ReplayOperator(PlanStep, CommitStep, StageOperator):
    """The operator that plans, stages and commits a run: the start of a task is paid once instead of three times.

    Each step does what its own operator does, and writes the same objects. So the task may be killed and started again at
    any moment. It is rescheduled like PlanOperator, and stages only the plans of its own run.
    """

    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#e3ead5"

    def __init__(
        self, *, first: datetime, infers: bool, asset: Asset, interval_asset: Asset, **kwargs: Any
    ) -> None:
        # By its name: Airflow's metaclass gives CommitStep an __init__ of its own, which super() would find.
        StageOperator.__init__(self, outlets=[asset, interval_asset], **kwargs)
        self.first = first
        self.infers = infers
        self.asset = asset
        self.interval_asset = interval_asset
        self._notes: list[str] = []
        self._stopped = False

    # The XCom is that of `commit`, a dict; that of StageOperator is a list.
    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]
        """Plan, stage and commit; return what is committed of the run's interval, as `commit` does.

        Safe to repeat: the same request finds its own plans (C3). A plan that is not committed yet is staged again, under
        the prefix of this try (C4, C5), and one that is committed remains committed (C9, C11, C12).
        """
        self._notes = []
        planned = self.plan_intervals(context)
        self._end_if_stopped()
        earlier = self._committed_before(context, planned["plans"])
        staged = self.stage_plans(context, planned["plans"])
        self._end_if_stopped()
        return self.commit_plans(context, planned, [*earlier, *staged])

    def on_kill(self) -> None:
        """Kill the job, and commit nothing afterwards: Airflow ends this process some seconds later."""
        self._stopped = True
        super().on_kill()

    def leave(self, ti: Any, text: str) -> None:
        """Push the notes of all steps so far: an XCom has one text."""
        self._notes.append(text)
        leave_note(ti, "; ".join(self._notes))

    def named(self, text: str) -> str:
        """Return a text that names tasks to clear, with the name of this one."""
        return in_one_task(text)

    def _end_if_stopped(self) -> None:
        if self._stopped:
            raise AirflowException("Airflow ended this task before its commit.")

    def _committed_before(
        self, context: Any, plans: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the plans that an earlier try of this request committed, with their reports; this try counts them."""
        keys = [one["plan"] for one in plans if one["committed"]]
        if not keys:
            return []
        with self.errors(context):
            lake = open_lake(self.pipeline)
            reports = lake.read(
                lambda snapshot: {key: committed_report(lake, snapshot, key) for key in keys}
            )
        return [{"plan": key, "report": report} for key, report in reports.items() if report]
