"""The tasks `plan` and `commit` of tallystick as processes: what Airflow's operators call, without Airflow.

    python -m bench.whole_job.contenders.tallystick_tasks plan|commit FOLDER

FOLDER has the order as `order.json` and the job file; the tasks leave `plans.json` there, and read `result.json`, which
the job has written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bench.whole_job.contender import Case
from tallystick import Column, Json, Pipeline, Table, Topic
from tallystick.connections.kafka import KafkaSettings
from tallystick.connections.resolve import resolve
from tallystick.format.interval import Interval, Request
from tallystick.lake import Lake
from tallystick.operations.run_request import RunDates, parse_params
from tallystick.runtime import system_runtime
from tallystick.store.open import open_store

if TYPE_CHECKING:
    from tallystick.kafka.planning import LogPlanner
    from tallystick.registry.port import SchemaRegistry

ORDER = "order.json"
CLICK_TYPES = {
    "event_id": "string",
    "event_type": "string",
    "user_id": "long",
    "session": "string",
    "ts": "long",
    "page": "string",
    "referrer": "string",
    "price": "double",
    "qty": "int",
    "device": "struct<os: string, ver: string>",
}
TOTAL_TYPES = {"event_type": "string", "hour": "long", "events": "long", "revenue": "double"}
CLICK = [Column(name, kind) for name, kind in CLICK_TYPES.items()]
TOTAL = [Column(name, kind) for name, kind in TOTAL_TYPES.items()]
_END = """

if __name__ == "__main__":
    run(transform)
"""
JOBS: dict[Case, str] = {
    "one": '''"""Clicks unchanged."""

import pyarrow as pa

from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    return {"events": records}
'''
    + _END,
    "three": '''"""Clicks unchanged, and their number and revenue per type and hour."""

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.spark import run


def transform(records: pa.Table) -> dict[str, pa.Table]:
    sums = pa.table(
        {
            "event_type": records["event_type"],
            "hour": pc.divide(records["ts"], 3_600_000),
            "revenue": pc.multiply(records["price"], records["qty"]),
        }
    )
    totals = sums.group_by(["event_type", "hour"]).aggregate([([], "count_all"), ("revenue", "sum")])
    names = ["event_type", "hour", "events", "revenue"]
    return {"events": records, "totals": totals.rename_columns(names)}
'''
    + _END,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What one run of tallystick replays, and into which lake."""

    case: Case
    topic: str
    warehouse: str
    from_ms: int
    to_ms: int

    def pipeline(self) -> Pipeline:
        """Return the declaration, as a user writes it."""
        tables = [Table("events", columns=CLICK)]
        if self.case == "three":
            totals = Table(
                "totals",
                columns=TOTAL,
                keys=["event_type", "hour"],
                combine={"events": "sum", "revenue": "sum"},
            )
            tables.append(totals)
        return Pipeline(
            name="clicks",
            topics=[Topic(self.topic, decode=Json(CLICK))],
            warehouse=self.warehouse,
            job="job.py",
            tables=tables,
        )

    def write(self, folder: Path) -> None:
        """Write the order and the job file. Safe to repeat: both are replaced."""
        (folder / ORDER).write_text(json.dumps(asdict(self)))
        (folder / "job.py").write_text(JOBS[self.case])


def main(task: str, folder: Path) -> None:
    """Run one task on the order of the folder."""
    run_task(task, folder, ReplayOrder(**json.loads((folder / ORDER).read_text())))


def run_task(task: str, folder: Path, order: ReplayOrder) -> None:
    """Run one task on an order. Safe to repeat: see `plan_interval` and `commit_staged`."""
    lake = Lake(open_store(order.warehouse), system_runtime())
    if task == "plan":
        _plan(lake, order, folder)
    else:
        commit_staged(lake, [folder])


def _plan(lake: Lake, order: ReplayOrder, folder: Path) -> None:
    from tallystick.kafka.planning import LogPlanner

    request = Request(dag="clicks", run="bench", clear=0)
    source = (folder / "job.py").read_bytes()
    with LogPlanner(resolve(KafkaSettings, "default", environ=os.environ)) as log:
        plan_interval(lake, log, order, request, source, folder)


def plan_interval(
    lake: Lake,
    log: LogPlanner,
    order: ReplayOrder,
    request: Request,
    job_source: bytes,
    folder: Path,
) -> None:
    """Plan the span of the order as the data interval of a run, and write its plans to `plans.json` in the folder.

    Safe to repeat: the plan of the same request is found in the ledger.
    """
    from tallystick.operations.plan import PlanRequest, plan

    start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (order.from_ms, order.to_ms))
    planned = plan(
        lake,
        log,
        PlanRequest(
            pipeline=order.pipeline(),
            job_source=job_source,
            request=request,
            params=parse_params({}),
            dates=RunDates(
                data_interval=Interval(start=start, end=end), run_after=end + timedelta(hours=1)
            ),
            first=start,
        ),
        open_registry=_registry,
    )
    refs = []
    for interval in planned.intervals:
        stored = lake.plan(interval.plan)
        assert stored is not None
        refs.append(f"{order.warehouse}/{stored.key}@{stored.sha256}")
    (folder / "plans.json").write_text(json.dumps(refs))


def _registry(name: str) -> SchemaRegistry:
    from tallystick.connections.registry import RegistrySettings
    from tallystick.registry.client import RegistryClient

    return RegistryClient(resolve(RegistrySettings, name, environ=os.environ))


def commit_staged(lake: Lake, folders: Sequence[Path]) -> None:
    """Commit what `result.json` of each folder names, in order. Safe to repeat: a commit is found in the ledger."""
    from tallystick.operations.commit import commit
    from tallystick.tables.staging import IcebergTables

    tables = IcebergTables(lake.store, lake.runtime)
    for folder in folders:
        for staged in json.loads((folder / "result.json").read_text()):
            commit(lake, tables, plan_key=staged["plan"], report_key=staged["report"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
