"""Builds a DAG that runs garbage collection, with one task per lake.

dag = gc_dag({"flights": "s3://lake/flights"}, delete=True)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, Param

from tallystick.airflow.lines import log_lines
from tallystick.airflow.opening import open_warehouse
from tallystick.airflow.outcome import airflow_errors
from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.operations.gc import CANCEL_AFTER, Collection, collect

RETRIES = 2
RETRY_DELAY = timedelta(minutes=5)


def gc_dag(
    lakes: Mapping[str, str],
    *,
    delete: bool = False,
    schedule: Any = "@daily",
    start_date: datetime = datetime(2024, 1, 1, tzinfo=UTC),
    reader_grace: timedelta | None = None,
    cancel_after: timedelta | None = CANCEL_AFTER,
    dag_id: str = "gc",
    tags: Iterable[str] = ("tallystick",),
    is_paused_upon_creation: bool | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Return a DAG that runs gc on each lake (name to lake URI) in a separate task, one lake at a time.

    `delete`: if False, each task only logs what it would delete; the Trigger form can change this for one run.
    `reader_grace`, `cancel_after`: as in `tallystick.operations.gc.collect`. Its runs have no data interval, so there is
    no catchup.
    Raises InvalidPipeline if there is no lake, or if the name of a lake is not valid.
    """
    if not lakes:
        raise InvalidPipeline("gc_dag names no lake.", hint='use {"flights": "s3://..."}.')
    dag = DAG(
        dag_id,
        schedule=schedule,
        start_date=start_date,
        catchup=False,
        description="Deletes what no table, reader or run of a lake needs any more",
        doc_md=_DOC,
        params={
            "delete": Param(
                delete,
                type="boolean",
                title="Delete",
                description_md="Off: log what would be deleted, and change nothing.",
            )
        },
        tags=set(tags),
        max_active_runs=1,
        max_active_tasks=1,
        is_paused_upon_creation=is_paused_upon_creation,
        default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY, **(default_args or {})},
    )
    dag.fileloc = sys._getframe(1).f_code.co_filename
    for name, warehouse in lakes.items():
        CollectOperator(
            task_id=keys.check_name(name, "lake"),
            warehouse=warehouse,
            reader_grace=reader_grace,
            cancel_after=cancel_after,
            dag=dag,
        )
    return dag


class CollectOperator(BaseOperator):
    """The operator that runs gc on one lake, at the same time as any other task. It starts no JVM."""

    ui_color = "#e4e4e4"

    def __init__(
        self,
        *,
        warehouse: str,
        reader_grace: timedelta | None,
        cancel_after: timedelta | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.warehouse = warehouse
        self.reader_grace = reader_grace
        self.cancel_after = cancel_after

    def execute(self, context: Any) -> dict[str, Any]:
        """Run gc, log the result, and return the number of objects and bytes.

        Safe to repeat: `collect` is; if a task died, its retry finishes the work (C13).
        """
        from tallystick.tables.reach import (
            IcebergReach,  # PyIceberg is loaded when the task runs, never when the DAG is parsed
        )

        started = time.monotonic()
        with airflow_errors(ti=context["ti"]):
            lake = open_warehouse(self.warehouse)
            if lake.load() is None and next(iter(lake.store.list("")), None) is None:
                self.log.info("%s is empty: no run was planned there", lake.store.uri)
                return {"lake": lake.store.uri, "deleted": False, "objects": 0, "bytes": 0}
            found = collect(
                lake,
                IcebergReach(lake.store),
                delete=bool(context["params"]["delete"]),
                reader_grace=self.reader_grace,
                cancel_after=self.cancel_after,
            )
        log_lines(self.log.info, collected_lines(found))
        self.log.info("done in %.1f s", time.monotonic() - started)
        return {
            "lake": found.uri,
            "deleted": found.deleted,
            "objects": found.total.objects,
            "bytes": found.total.size_bytes,
        }


def collected_lines(found: Collection) -> Iterator[str]:
    """Yield the log lines of a collection."""
    verb = "deleted" if found.deleted else "would delete (a dry run)"
    yield f"{found.uri} at version {found.version}: {verb} {_heap(found.total)}; {_heap(found.total_kept)} remain"
    for kind, heap in found.garbage.items():
        yield f"  {kind}: {_heap(heap)}, e.g. {found.examples[kind][0]}"
    for one in found.cancelled:
        left = "its committed rows remain" if one.committed else "a gap remains"
        cancelled = "cancelled" if found.deleted else "would cancel"
        yield (
            f"{cancelled} the grant of {one.interval} to {one.request}, planned {keys.instant(one.planned_at)}: {left}; "
            "clear that run's plan task to plan it again"
        )
    if found.foreign:
        yield f"not written by tallystick, and not deleted: {found.foreign[0]}"
    yield from found.remarks


def _heap(heap: Any) -> str:
    return f"{heap.objects:,} objects ({heap.size_bytes:,} bytes)"


_DOC = """\
### Garbage collection

Deletes attempts that lost, plans that were superseded, and metadata that no table, reader or run needs any more. Safe
to run at any time: a commit in progress decides again and loses nothing. **Trigger** with *Delete* off logs what would
be deleted. Grants older than a week are cancelled: clear that run's plan task to plan it again.
"""
