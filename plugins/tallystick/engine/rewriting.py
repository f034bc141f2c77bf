"""Rewrites the rows of several files into one shared file, and reads it back before anything names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from tallystick.engine.conform import conformed
from tallystick.engine.parquet import TableWriter, WriteLimits
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import Run, SharedFile
from tallystick.format.plan import PlannedTable
from tallystick.format.report import FileReport
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.store.create_once import create_fresh
from tallystick.tables.partitioning import PartitionValue
from tallystick.tables.schema import arrow_schema

ONE_FILE = WriteLimits(file_bytes=1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A run, and the object and position where its rows are now."""

    run: Run
    key: str
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFileOrder:
    """All that is needed to write one shared file. `columns`: those of the table's metadata."""

    table: PlannedTable
    compaction: keys.CompactionId
    number: int
    partition: tuple[PartitionValue, ...]
    sources: tuple[RunSource, ...]


def write_shared_file(
    store: Store,
    runtime: Runtime,
    order: SharedFileOrder,
    read: Callable[[str], pa.Table],
    *,
    scratch: Path | None = None,
) -> SharedFile:
    """Write the rows of the order's runs into one file, one run after the other; read it back, and compare.

    `read` returns the rows of a file in the table's columns. Holds the rows of one shared file in memory. Safe to
    repeat: the file has a fresh key, and nothing reads it before a root names it. Raises Corrupt if a file has fewer rows
    than its run, if rows are of another partition than their files were, or if the written file has other rows.
    """
    schema = arrow_schema(order.table.columns)
    rows = pa.concat_tables(_conform(part, schema) for part in _parts(order, read))
    task = f"{order.number:05d}"

    def upload(table: str, path: Path) -> tuple[str, str]:
        return create_fresh(
            store,
            lambda uuid: keys.shared_file(table, order.compaction, task, uuid),
            path,
            runtime=runtime,
            what=f"uploading to {store.uri} under {keys.shared_prefix(table, order.compaction)}",
        )

    with (
        TemporaryDirectory(prefix="tallystick-", dir=scratch) as folder,
        TableWriter(
            order.table,
            partition_by=order.table.partition_by,
            source=None,
            upload=upload,
            folder=Path(folder),
            limits=ONE_FILE,
        ) as writer,
    ):
        writer.write(rows)
        files = writer.close()
    _check_partition(order, files)
    (file,) = files
    _check_same(store, file, rows)
    return SharedFile(file=file, runs=tuple(source.run for source in order.sources))


def _parts(order: SharedFileOrder, read: Callable[[str], pa.Table]) -> list[pa.Table]:
    """Return the rows of each run. A file that has several runs is read once if they follow each other."""
    parts: list[pa.Table] = []
    held: tuple[str, pa.Table] | None = None
    for source in order.sources:
        if held is None or held[0] != source.key:
            held = (source.key, read(source.key))
        part = held[1].slice(source.first, source.run.rows)
        if len(part) != source.run.rows:
            raise Corrupt(
                f"{source.key}: expected {source.run.rows} rows from position {source.first} on, found {len(part)}.",
                hint="run `tally verify --deep`: the file is not the one that was listed. Nothing was changed.",
            )
        parts.append(part)
    return parts


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        chunks = [conformed(c, field.type, field.name) for c in rows.column(field.name).chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _check_partition(order: SharedFileOrder, files: Sequence[FileReport]) -> None:
    found = [file.partition for file in files]
    if found != [order.partition]:
        raise Corrupt(
            f"table {order.table.name}: expected rows of partition {order.partition} as their files have it, found "
            f"{found}.",
            hint="run `tally verify --deep`. Nothing was changed.",
        )


def _check_same(store: Store, file: FileReport, rows: pa.Table) -> None:
    """Compare the stored file with the rows that were read: it is the only copy as soon as the old files are deleted."""
    stored = store.get(file.key)
    if stored is not None and stored.etag == file.etag:
        found = pq.read_table(pa.BufferReader(stored.body), schema=rows.schema)
        if same_rows(found, rows):
            return
    raise Corrupt(
        f"{store.uri}/{file.key}: expected the {len(rows)} rows that were written, found other content.",
        hint="run the compaction again. Nothing was changed: no table names the file.",
    )


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Return True if both have the same values in the same order. Floats are compared by their bits: NaN equals NaN."""
    if one.schema != other.schema:
        return False
    pairs = zip(one.columns, other.columns, strict=True)
    return all(_bits(a).equals(_bits(b)) for a, b in pairs)


def _bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _bit_type(values.type)
    return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], kind)


def _bit_type(kind: pa.DataType) -> pa.DataType:
    """Return a type of the same layout, at any depth, with integers in the place of floats."""
    types = pa.types
    if types.is_float32(kind):
        return pa.int32()
    if types.is_float64(kind):
        return pa.int64()
    if types.is_list(kind):
        return pa.list_(_with_bits(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_with_bits(kind.key_field), _with_bits(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_with_bits(field) for field in kind])
    return kind


def _with_bits(field: pa.Field) -> pa.Field:
    return field.with_type(_bit_type(field.type))
