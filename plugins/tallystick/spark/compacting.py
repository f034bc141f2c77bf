"""Runs a compaction by Spark, one task per shared file: for lakes whose small files one process would rewrite for hours.

The driver chooses the files, grants, and publishes, as `tally compact` does in one process. Only the shared files are
written by tasks.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pyspark.sql import SparkSession

from tallystick.engine.rewriting import SharedFileOrder, write_shared_file
from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.compaction import SharedFile
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.compact import compact
from tallystick.operations.compact.arguments import parse_compact_arguments
from tallystick.operations.compact.choosing import ChosenCompaction, TableFile
from tallystick.operations.compact.orders import listed_files, orders_of
from tallystick.runtime import system_runtime
from tallystick.runtime.parent import die_with_jvm
from tallystick.spark.landing import RESULT, Batches, answer
from tallystick.spark.outcome import RESULT_FILE_ENV, FileOutcome, exit_code, scratch_full
from tallystick.spark.session import failures_max, start_session, stop_session
from tallystick.spark.stage import collected, raise_decisive
from tallystick.store.open import open_store
from tallystick.tables.reading import RowsByFile, table_columns
from tallystick.tables.staging import IcebergTables

log = logging.getLogger("tallystick.spark")


class SparkWriter:
    """The writer of shared files of one `compact` call: the files of a compaction are written at once, one per task."""

    def __init__(self, lake: Lake, session: SparkSession) -> None:
        self._lake, self._session = lake, session

    def files(self, name: str, table: RootTable) -> Iterator[TableFile]:
        """Yield the files that the table lists, from its manifests."""
        yield from listed_files(self._lake, name, table)

    def write(
        self, chosen: ChosenCompaction, compaction: keys.CompactionId
    ) -> Iterator[SharedFile]:
        """Yield one shared file per group. Raises the most decisive of the tasks' errors.

        Safe to repeat, also if Spark runs a task twice: every file has a fresh key, and only those of the tasks whose
        answers arrived are listed.
        """
        metadata = chosen.state.metadata
        assert metadata is not None  # a table without metadata has no files to choose
        uri, store = self._lake.store.uri, self._lake.store
        orders = orders_of(chosen, compaction, table_columns(store, metadata))
        tries_max = failures_max(self._session)

        def task(batches: Batches) -> Batches:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield answer(partial(_write, uri, metadata, orders[index]), tries_max)

        count = len(orders)
        log.info("table %s: %d shared file(s), one task each", chosen.table, count)
        tasks = self._session.range(0, count, 1, count)
        rows = collected(self._session, tasks.mapInArrow(task, RESULT))
        raise_decisive(rows)
        for row in rows:
            yield SharedFile.from_text(row["result"], "result of a compaction task")


def _write(uri: str, metadata: str, order: SharedFileOrder) -> str:
    """Write one shared file in a task of its own. Safe to repeat: see `write_shared_file`."""
    store = open_store(uri)
    rows = RowsByFile(store, metadata)
    return write_shared_file(store, system_runtime(), order, rows.read).to_text()


def main() -> None:
    """Run a compaction with this process's arguments and environment, and exit as `tallystick.spark.run` does."""
    die_with_jvm(os.environ)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for name in ("py4j", "botocore", "boto3", "urllib3", "pyiceberg"):
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.exit(run_compaction(sys.argv[1:], environ=os.environ))


def run_compaction(argv: Sequence[str], *, environ: Mapping[str, str]) -> int:
    """Compact the lake of `argv` and return the exit code. Safe to repeat: `compact` is."""
    outcome = FileOutcome(environ.get(RESULT_FILE_ENV))
    try:
        arguments = parse_compact_arguments(argv)
        lake = Lake(open_store(arguments.lake_uri), system_runtime())
        session = start_session(f"tallystick compact {lake.store.uri}")
        tables = IcebergTables(lake.store, lake.runtime)
        found = compact(lake, tables, SparkWriter(lake, session), arguments.options)
        outcome.write_value(found.to_json())
        log.info("compacted %s at version %d", found.uri, found.version)
    except TallystickError as error:
        log.error("not compacted: %s", error)
        outcome.write_error(error)
        return exit_code(error)
    except Exception as error:  # Airflow's task must find any error in the result file
        log.exception("not compacted")
        known = scratch_full(error) or error
        outcome.write_error(known)
        return exit_code(known)
    finally:
        stop_session()
    return 0
