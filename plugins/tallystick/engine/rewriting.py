"""Rewrites the rows of several files into one shared file, and reads it back before anything names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tallystick.engine.conform import conformed
from tallystick.engine.parquet import TableWriter, WriteLimits
from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import RowOrder, Run, SharedFile
from tallystick.format.plan import PlannedTable
from tallystick.format.report import FileReport
from tallystick.runtime import Runtime
from tallystick.store import Store
from tallystick.store.create_once import create_fresh
from tallystick.tables.partitioning import PartitionValue
from tallystick.tables.row_order import read_places, sorted_rows
from tallystick.tables.schema import arrow_schema

SORT_BYTES_MAX = 2 << 30
"""Arrow takes rows of text only out of less than 2 GiB. A larger file is not sorted."""
ONE_FILE = WriteLimits(file_bytes=1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A run, and the object and row number where its rows are now. `shared`: the shared file that the object is."""

    run: Run
    key: str
    first: int
    shared: SharedFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFileOrder:
    """All that is needed to write one shared file. `sort_by`: names of columns; none: one run follows the other."""

    table: PlannedTable
    compaction: keys.CompactionId
    number: int
    partition: tuple[PartitionValue, ...]
    sources: tuple[RunSource, ...]
    sort_by: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The part of the keys that names the file of a compaction."""
        return f"{self.number:05d}"


def write_shared_file(
    store: Store,
    runtime: Runtime,
    order: SharedFileOrder,
    read: Callable[[str], pa.Table],
    *,
    scratch: Path | None = None,
) -> SharedFile:
    """Write the rows of the order's runs into one file, one run after the other or sorted; read it back, and compare.

    `read` returns the rows of a file in the table's columns. Holds the rows of one shared file in memory, three times if
    it is sorted. Safe to repeat: the file and its row order have fresh keys, and nothing reads them before a root names
    the file. Raises Corrupt if a file has fewer rows than its run, if rows are of another partition than their files
    were, or if the written file has other rows.
    """
    schema = arrow_schema(order.table.columns)
    rows = pa.concat_tables(_conform(part, schema) for part in _parts(store, order, read))
    stored_order: RowOrder | None = None
    if order.sort_by and rows.nbytes < SORT_BYTES_MAX:
        runs = np.repeat(np.arange(len(order.sources)), [s.run.rows for s in order.sources])
        rows, body = sorted_rows(rows, order.sort_by, runs)
        stored_order = _store_order(store, runtime, order, body)
    file = _write_file(store, runtime, order, rows, scratch)
    _check_same(store, file, rows)
    shared = SharedFile(
        file=file, runs=tuple(source.run for source in order.sources), order=stored_order
    )
    if read_places(store, shared) is None:
        raise _other_content(store, file, rows)
    return shared


def _write_file(
    store: Store,
    runtime: Runtime,
    order: SharedFileOrder,
    rows: pa.Table,
    scratch: Path | None,
) -> FileReport:
    def upload(table: str, path: Path) -> tuple[str, str]:
        return create_fresh(
            store,
            lambda uuid: keys.shared_file(table, order.compaction, order.task, uuid),
            path,
            runtime=runtime,
            what=f"uploading to {store.uri} under {keys.shared_prefix(table, order.compaction)}",
        )

    with (
        TemporaryDirectory(prefix="tallystick-", dir=scratch) as folder,
        TableWriter(
            order.table,
            partition_by=order.table.partition_by,
            upload=upload,
            folder=Path(folder),
            limits=ONE_FILE,
        ) as writer,
    ):
        writer.write(rows)
        files = writer.close()
    _check_partition(order, files)
    return files[0]


def _store_order(store: Store, runtime: Runtime, order: SharedFileOrder, body: bytes) -> RowOrder:
    """Create the row order of a sorted file. Safe to repeat: its key is fresh, and nothing reads it before a root."""
    table = order.table
    key, etag = create_fresh(
        store,
        lambda uuid: keys.row_order(table.name, order.compaction, order.task, uuid),
        body,
        runtime=runtime,
        what=f"creating the row order of a shared file of {table.name} in {store.uri}",
    )
    ids = {column.name: column.id for column in table.columns}
    return RowOrder(key=key, etag=etag, sorted_by=tuple(ids[name] for name in order.sort_by))


def _parts(store: Store, order: SharedFileOrder, read: Callable[[str], pa.Table]) -> list[pa.Table]:
    """Return the rows of each run. A file that has several runs is read once if they follow each other."""
    parts: list[pa.Table] = []
    held: tuple[str, pa.Table] | None = None
    for source in order.sources:
        if held is None or held[0] != source.key:
            held = (source.key, _numbered(store, source, read(source.key)))
        part = held[1].slice(source.first, source.run.rows)
        if len(part) != source.run.rows:
            raise Corrupt(
                f"{source.key}: expected {source.run.rows} rows from row number {source.first} on, found {len(part)}.",
                hint="run `tally verify --deep`: the file is not the one that was listed. Nothing was changed.",
            )
        parts.append(part)
    return parts


def _numbered(store: Store, source: RunSource, rows: pa.Table) -> pa.Table:
    """Return the rows of a file in the order of their numbers, which differs from the file's if it is sorted."""
    if source.shared is None or source.shared.order is None:
        return rows
    places = read_places(store, source.shared)
    if places is None:
        raise Corrupt(
            f"{store.uri}/{source.shared.order.key}: expected the row order of {source.key}, found no object.",
            hint="run the compaction again: if another one has moved these rows, gc has deleted it. If the error comes "
            "back, run `tally verify`.",
        )
    return places.numbered(rows)


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
    raise _other_content(store, file, rows)


def _other_content(store: Store, file: FileReport, rows: pa.Table) -> Corrupt:
    return Corrupt(
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
