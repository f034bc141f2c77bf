"""The task `commit`: the swap, and the events of what it committed. It starts no JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

from tallystick.airflow.interval_events import emit_interval_events
from tallystick.airflow.lineage import LineageEvents
from tallystick.airflow.lines import log_lines
from tallystick.airflow.links import LakeObjectLink
from tallystick.airflow.messages import committed_lines, dead_line, stale_line
from tallystick.airflow.metrics import measured, record_commit
from tallystick.airflow.notes import commit_note
from tallystick.airflow.opening import open_lake
from tallystick.airflow.operators.context import RunStep, pulled
from tallystick.airflow.run import request_of
from tallystick.airflow.run_summary import Covered, Own
from tallystick.airflow.task_ids import COMMIT, PLAN, STAGE
from tallystick.errors import InvalidRequest, TallystickError
from tallystick.format import keys
from tallystick.format.interval import Interval
from tallystick.format.report import Report
from tallystick.lake import Lake, Snapshot
from tallystick.operations.commit import CommitResult, commit
from tallystick.operations.stage import still_granted
from tallystick.pipeline import Pipeline


class CommitStep(LineageEvents, RunStep):
    """The step of an operator that commits the staged reports, one swap per plan, and emits an Asset event."""

    asset: Asset
    interval_asset: Asset

    @measured(COMMIT)
    def commit_plans(
        self,
        context: Any,
        planned: Mapping[str, Any],
        staged: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Commit, log the result, and return what is committed of the run's interval.

        Safe to repeat: a plan that is committed remains committed, and is reported as committed already (C9, C11, C12).
        The Asset event is emitted again: consumers skip versions that they have seen; the events per interval are not. If
        the task fails because one plan is lost, Airflow emits no event, although the other plans are committed. The next
        event's version covers them, and clearing the task emits their events per interval.
        """
        started = time.monotonic()
        reports = {one["plan"]: one["report"] for one in staged}
        with self.errors(context):
            lake = open_lake(self.pipeline)
            try:
                own = self._commit_all(
                    lake,
                    [
                        p["plan"]
                        for p in planned["plans"]
                        if not p["committed"] or p["plan"] in reports
                    ],
                    reports,
                )
            finally:
                self.note_lineage(planned)  # after the swaps, also if one of the plans was lost
            covered = Covered.read(lake, planned["interval"])
            left = self._stale(lake, planned["interval"])
            if not emit_interval_events(
                context,
                self.interval_asset,
                pipeline=self.pipeline.name,
                lake=lake,
                covered=covered,
                own=own,
            ):
                # Airflow emits an event without a partition for an outlet that has none.
                self.outlets = [self.asset]
        log_lines(self.log.info, covered.lines())
        if left:
            log_lines(self.log.warning, [stale_line(left)])
        self.log.info("done in %.1f s", time.monotonic() - started)
        self.linked = lake.where(covered.record) if covered.record else None
        committed = {"committed": own.to_json()}
        event = {"pipeline": self.pipeline.name, **covered.to_json(), **committed}
        context["outlet_events"][self.asset].extra = event
        self.leave(context["ti"], commit_note(covered, own, request_of(context["dag_run"])))
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
                        log_lines(self.log.warning, [self.named(dead)])
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


class CommitOperator(CommitStep):
    """The operator that commits the staged reports, one swap per plan, and emits an Asset event. It starts no JVM."""

    operator_extra_links = (LakeObjectLink(),)
    ui_color = "#d8e4f5"

    def __init__(
        self, *, pipeline: Pipeline, asset: Asset, interval_asset: Asset, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[asset, interval_asset], **kwargs)
        self.pipeline = pipeline
        self.asset = asset
        self.interval_asset = interval_asset

    def execute(self, context: Any) -> dict[str, Any]:
        """Commit, and return what is committed of the run's interval. Safe to repeat: see `commit_plans`."""
        return self.commit_plans(context, pulled(context, PLAN), pulled(context, STAGE))


def _report(lake: Lake, key: keys.ReportKey | None) -> Report | None:
    """Return the committed report for its counts; None if gc has deleted it, which is no error after the commit."""
    return None if key is None else lake.report(key)
