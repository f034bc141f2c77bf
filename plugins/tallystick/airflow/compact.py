"""Builds a DAG that compacts the small files of lakes, with one task per lake.

dag = compact_dag({"flights": "s3://lake/flights"}, spark_conn_id="spark_default")
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import DAG, BaseOperator

from tallystick.airflow.environment import check_conf
from tallystick.airflow.job import JobDied
from tallystick.airflow.lines import log_lines
from tallystick.airflow.opening import open_warehouse
from tallystick.airflow.outcome import airflow_errors, raise_reported_error
from tallystick.errors import InvalidPipeline
from tallystick.format import keys
from tallystick.lake import Lake
from tallystick.operations.compact import CompactOptions, CompactResult, compact, would_compact
from tallystick.operations.compact.arguments import CompactArguments, to_argv
from tallystick.operations.compact.choosing import FILES_MIN

RETRIES = 2
RETRY_DELAY = timedelta(minutes=5)
OLDER_THAN = timedelta(days=1)
JOB = Path(__file__).parents[1] / "spark" / "jobs" / "compact_files.py"
"""The file that spark-submit starts; only Spark's processes import it."""


def compact_dag(
    lakes: Mapping[str, str],
    *,
    spark_conn_id: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    spark_binary: str | None = None,
    tables: Mapping[str, Iterable[str]] | None = None,
    older_than: timedelta = OLDER_THAN,
    target_bytes: int | None = None,
    min_files: int = FILES_MIN,
    schedule: Any = "@daily",
    start_date: datetime = datetime(2024, 1, 1, tzinfo=UTC),
    dag_id: str = "compact",
    tags: Iterable[str] = ("tallystick",),
    is_paused_upon_creation: bool | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Return a DAG that compacts each lake (name to lake URI) in a separate task, one lake at a time.

    `spark_conn_id`: the Spark connection for lakes that one process would rewrite for hours: one Spark task writes one
    shared file. None: the task itself writes them, one after the other, without a JVM. `spark_conf` and `spark_binary`
    are those of `replay_dag`. `tables`: the tables to compact by the name of the lake, all if it has no entry.
    Intervals that ended longer ago than `older_than` are compacted. `target_bytes`: the size of a shared file; None: each
    table's declared `file_size_bytes`. `min_files`: the small files that are worth a shared file. Its runs have no data
    interval, so there is no catchup.
    Raises InvalidPipeline if there is no lake, if the name of a lake is not valid, or if `tables` names another lake.
    """
    if not lakes:
        raise InvalidPipeline("compact_dag names no lake.", hint='use {"flights": "s3://..."}.')
    chosen = {name: tuple(some) for name, some in (tables or {}).items()}
    if unknown := sorted(chosen.keys() - lakes.keys()):
        raise InvalidPipeline(
            f"compact_dag: tables names {unknown[0]!r}, which is no lake of it.",
            hint="use the names of the lakes, e.g. tables={'flights': ['events']}.",
        )
    dag = DAG(
        dag_id,
        schedule=schedule,
        start_date=start_date,
        catchup=False,
        description="Rewrites small files of committed intervals into shared files",
        doc_md=_DOC,
        tags=set(tags),
        max_active_runs=1,
        max_active_tasks=1,
        is_paused_upon_creation=is_paused_upon_creation,
        default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY, **(default_args or {})},
    )
    dag.fileloc = sys._getframe(1).f_code.co_filename
    for name, warehouse in lakes.items():
        CompactOperator(
            task_id=keys.check_name(name, "lake"),
            warehouse=warehouse,
            tables=chosen.get(name, ()),
            older_than=older_than,
            target_bytes=target_bytes,
            min_files=min_files,
            spark_conn_id=spark_conn_id,
            spark_conf=spark_conf,
            spark_binary=spark_binary,
            dag=dag,
        )
    return dag


class CompactOperator(BaseOperator):
    """The operator that compacts one lake, at the same time as any other task.

    It starts a JVM only if it has a Spark connection and there is something to do.
    """

    ui_color = "#e4e4e4"

    def __init__(
        self,
        *,
        warehouse: str,
        tables: tuple[str, ...] = (),
        older_than: timedelta = OLDER_THAN,
        target_bytes: int | None = None,
        min_files: int = FILES_MIN,
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_binary: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.warehouse = warehouse
        self.tables = tables
        self.older_than = older_than
        self.target_bytes = target_bytes
        self.min_files = min_files
        self.spark_conf = check_conf(spark_conf or {})
        self._conn_id = spark_conn_id
        self._spark_binary = spark_binary
        self._hook: Any = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Compact the lake, log the result, and return it as JSON.

        Safe to repeat: `compact` is; the files of a task that died are left to gc (C2).
        """
        from tallystick.operations.compact.local import (
            LocalWriter,  # PyIceberg is loaded when the task runs, never when the DAG is parsed
        )
        from tallystick.tables.staging import IcebergTables

        started = time.monotonic()
        with airflow_errors(ti=context["ti"]):
            lake = open_warehouse(self.warehouse)
            if lake.load() is None:
                self.log.info("%s is empty: no run was planned there", lake.store.uri)
                return CompactResult(uri=lake.store.uri, version=0, tables={}, left={}).to_json()
            options = CompactOptions(
                until=(lake.runtime.now() - self.older_than).replace(microsecond=0),
                tables=self.tables,
                target_bytes=self.target_bytes,
                files_min=self.min_files,
            )
            writer = LocalWriter(lake)
            if self._conn_id is None:
                found = compact(lake, IcebergTables(lake.store, lake.runtime), writer, options)
            else:
                found = would_compact(lake, writer, options)
                if found.tables:
                    found = self._submit(lake, options)
        log_lines(self.log.info, compacted_lines(found))
        self.log.info("done in %.1f s", time.monotonic() - started)
        return found.to_json()

    def _submit(self, lake: Lake, options: CompactOptions) -> CompactResult:
        """Run the compaction by Spark. Safe to repeat: `compact` is."""
        # Airflow's provider for Spark is loaded only if it is used.
        from tallystick.airflow.spark_submit import ScrubbedSparkSubmit

        with TemporaryDirectory(prefix="tallystick-") as private:  # mode 0700
            result = Path(private) / "result.json"
            hook = ScrubbedSparkSubmit(
                conf=self.spark_conf,
                result_file=result,
                conn_id=self._conn_id,
                spark_binary=self._spark_binary,
                name=f"tallystick-compact-{self.task_id}",
                application_args=to_argv(
                    CompactArguments(lake_uri=lake.store.uri, options=options)
                ),
            )
            self._hook = hook
            try:
                hook.submit(str(JOB))
            except JobDied as error:
                raise_reported_error(result)
                raise (error.error or error) from None
            return CompactResult.from_json(json.loads(result.read_text(encoding="utf-8")))

    def on_kill(self) -> None:
        """Kill the driver if there is one."""
        if self._hook is not None:
            self._hook.on_kill()


def compacted_lines(found: CompactResult) -> Iterator[str]:
    """Yield the log lines of a compaction."""
    if not found.tables and not found.left:
        yield f"{found.uri} at version {found.version}: nothing to compact"
    for name, one in found.tables.items():
        yield (
            f"{name}: {one.files_before:,} files ({one.bytes_before:,} bytes) became {one.files_after:,} "
            f"({one.bytes_after:,} bytes), with {one.rows:,} rows"
        )
    for key, why in found.left.items():
        yield f"{key} was not published ({why}): no table has its files, and gc deletes them; the next run makes it again"


_DOC = """\
### Compaction

Rewrites the small files of committed intervals into shared files of the declared size. No row changes, and each
interval can still be replaced alone. Safe to run at any time, at the same time as runs, readers and gc. What was
rewritten is deleted by gc once no snapshot of the table lists it.
"""
