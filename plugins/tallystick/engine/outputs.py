"""Writes one part of one output of a DataFrame job, and checks it against the pipeline's declaration.

A record-level table keeps `_topic`, `_kafka_partition`, `_offset` and `_timestamp` of the record that each row comes
from: the transform must not drop or change them, and an offset outside the plan's readable ranges is refused. A table
with keys has one row per key: its rows come sorted by the keys, so that two rows of one key follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from tallystick.engine.combine import key_values
from tallystick.engine.parquet import TableWriter, spans_of
from tallystick.engine.records import coalesce, named_by_ledger
from tallystick.engine.task import Attempt
from tallystick.engine.transform import fitted
from tallystick.errors import InvalidPipeline, listed
from tallystick.format.plan import Plan
from tallystick.format.report import FileReport
from tallystick.pipeline import Table


def write_output(
    work: Attempt,
    name: str,
    task: str,
    batches: Iterable[pa.RecordBatch],
    *,
    scratch: Path | None = None,
) -> tuple[FileReport, ...]:
    """Write rows of the table `name` under the attempt's prefix and return the uploaded files.

    If the table has keys, `batches` must be sorted by them and contain all rows of each of their keys. Safe to repeat,
    also at the same time: every upload has its own key, and only files that the driver takes into the report count (C4).
    Raises InvalidPipeline if rows do not fit the declaration, or have too many partition values for a report.
    """
    table = work.pipeline.table(name)
    assert table is not None  # named_outputs checks this
    where = f"job {work.pipeline.job}, table {name!r}"
    last: pa.Table | None = None
    with (
        TemporaryDirectory(prefix="tallystick-", dir=scratch) as folder,
        TableWriter(
            work.planned(name),
            partition_by=table.partition_by,
            upload=work.upload(task),
            folder=Path(folder),
            limits=work.limits,
            room=work.room(task),
        ) as writer,
    ):
        for batch in coalesce(batches):
            rows = fitted(table, pa.Table.from_batches([batch]), where)
            rows = named_by_ledger(rows, work.plan.read_names)
            if table.aggregates:
                last = _check_keys(table, last, rows, where)
            else:
                _check_lineage(work.plan, rows, where)
            writer.write(rows)
        return writer.close()


def _check_keys(table: Table, last: pa.Table | None, rows: pa.Table, where: str) -> pa.Table:
    """Refuse a key with two rows; `last` is the key of the row before these. Return the key of their last row."""
    found = pa.table({name: key_values(rows.column(name)) for name in table.keys})
    seen = found if last is None else pa.concat_tables([last, found])
    counted = seen.group_by(list(table.keys), use_threads=False).aggregate([([], "count_all")])
    for row in counted.to_pylist() if counted.num_rows != seen.num_rows else ():
        if (times := row.pop("count_all")) > 1:
            key = listed(f"{name}={'null' if v is None else v}" for name, v in row.items())
            raise _mismatch(
                f"{where}: expected one row per key, found {times} rows of the key {key}"
            )
    return found.slice(found.num_rows - 1)


def _check_lineage(plan: Plan, rows: pa.Table, where: str) -> None:
    readable = {(t.name, p): r.readable for t in plan.topics for p, r in enumerate(t.ranges)}
    for (topic, partition), first, last in spans_of(rows):
        span = readable.get((topic, partition))
        if span is None or not span.start <= first <= last < span.end:
            raise _mismatch(
                f"{where}: expected rows of {topic}[{partition}] at the planned offsets {span or '(none)'}, found "
                f"offsets {first} to {last}"
            )


def _mismatch(message: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"{message}.",
        hint="correct the transform or the pipeline's declaration, deploy both and clear `plan`.",
    )
