"""Stages one plan: builds its order, stages it with the user's transform, and writes its report.

Imports no pyspark: `tally replay` and a driver without Spark use it, too.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.engine.input_splits import split_plan
from tallystick.format import keys
from tallystick.format.plan import Plan
from tallystick.format.report import Report, account_totals
from tallystick.lake import Lake
from tallystick.pipeline import DEAD_LETTERS
from tallystick.spark.order import Order, Target, pipeline_of

log = logging.getLogger("tallystick.spark")
Staging = Callable[[Lake, Order, Callable[..., Any], Sequence[tuple[Plan, Report]]], Report]
"""Stages an order with the user's transform, and returns the report, which is not written yet.

Its last argument: the earlier plans that this run has staged, and their reports, for a job with a lookback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStager:
    """What one attempt stages plans with. `environ` has the connections of Kafka."""

    lake: Lake
    transform: Callable[..., Any]
    attempt: str
    environ: Mapping[str, str]
    staging: Staging

    def stage(
        self,
        plan: Plan,
        before: Sequence[tuple[Plan, Report]] = (),
        *,
        key: keys.ReportKey | None = None,
    ) -> Report:
        """Stage one plan and write its report, under `key` if a claim has announced one; return the report.

        `before`: the earlier plans that this attempt has staged. Safe to repeat: every attempt writes under its own
        prefix, each object under a fresh key, the report last.
        """
        started = time.monotonic()
        report = self.staging(self.lake, self._order(plan), self.transform, before)
        if key is not None:
            report = replace(report, key=key)
        # The report is written last: it exists only if everything that it names exists (C5).
        self.lake.put_new(report.key, report.encode())
        _log_report(report, time.monotonic() - started)
        return report

    def _order(self, plan: Plan) -> Order:
        pipeline = pipeline_of(plan)
        splits = split_plan(plan, records_per_task=pipeline.records_per_task)
        log.info("interval %s, plan %s, generation %d", plan.interval, plan.key, plan.generation)
        for topic in plan.topics:
            offsets = sum(r.readable.length for r in topic.ranges)
            log.info(
                "topic %s: %d offsets in %d partition(s)", topic.name, offsets, len(topic.ranges)
            )
        settings = resolve(KafkaSettings, pipeline.kafka, environ=self.environ)
        return Order(
            target=Target(lake_uri=self.lake.store.uri, plan=plan, attempt=self.attempt),
            splits=splits,
            kafka=json.loads(settings.as_env_json()),
        )


def _log_report(report: Report, elapsed_s: float) -> None:
    totals = account_totals(report.accounts)
    log.info("account: %s", ", ".join(f"{name} {count}" for name, count in totals.items()))
    for table in sorted({f.table for f in report.files}):
        files = [f for f in report.files if f.table == table]
        size_bytes = sum(f.size_bytes for f in files)
        log.info(
            "table %s: %s rows in %d file(s), %s bytes",
            table,
            f"{report.rows(table):,}",
            len(files),
            f"{size_bytes:,}",
        )
    if not totals["dead_letters"]:
        log.info("table %s: no dead letters", DEAD_LETTERS)
    log.info("report %s after %.1f s", report.key, elapsed_s)
