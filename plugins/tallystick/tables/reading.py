"""Reads one table at one metadata file: with PyIceberg for users and tests, from manifests alone for verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile, clear_manifest_cache
from pyiceberg.table import FileScanTask, StaticTable

from tallystick.format.canonical import corrupt
from tallystick.format.columns import TableColumn
from tallystick.store import Store
from tallystick.tables.deletes import read_deletes, target_of
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.iceberg import partition_spec, schema_columns
from tallystick.tables.partitioning import PartitionValue, stored_value
from tallystick.tables.snapshots import entries, holds_files, manifests
from tallystick.tables.staging import load_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """One data file of a table: key relative to the lake URI, size, rows, partition tuple.

    `deletes`: the delete file with the `deleted` positions whose rows are not in the table any more.
    """

    key: str
    size_bytes: int
    rows: int
    partition: tuple[PartitionValue, ...]
    deletes: str | None = None
    deleted: int = 0
    spec_id: int = 0


def metadata_uri(store: Store, metadata_key: str) -> str:
    """Return the metadata file's URI, which any Iceberg reader can open."""
    return StoreFileIO(store).location(metadata_key)


def static_table(store: Store, metadata_key: str) -> StaticTable:
    """Open a table read-only at this metadata file; later commits are not visible.

    Its files are read whole, through the store. Raises Corrupt if the metadata is gone or unreadable.
    """
    # PyIceberg caches manifests by path for the whole process, and two stores in memory may have the same paths.
    clear_manifest_cache()
    io = StoreFileIO(store)
    return StaticTable(
        identifier=("static-table", metadata_key),
        metadata=load_metadata(io, metadata_key),
        metadata_location=io.location(metadata_key),
        io=io,
        catalog=NoopCatalog("static-table"),
    )


def live_files(store: Store, metadata_key: str) -> Iterator[LiveFile]:
    """Yield every data file of the table's current snapshot from its manifests. No data file is opened.

    Raises Corrupt if metadata or a manifest is gone or unreadable, or if a data file has two delete files.
    """
    io = StoreFileIO(store)
    head = load_metadata(io, metadata_key).current_snapshot()
    live = [m for m in manifests(io, head) if holds_files(m)]
    deletes = _deletes(io, [m for m in live if m.content == ManifestContent.DELETES])
    for manifest in live:
        if manifest.content == ManifestContent.DELETES:
            continue
        for entry in entries(io, manifest):
            file = entry.data_file
            deleted = deletes.get(file.file_path)
            yield LiveFile(
                key=io.key(file.file_path),
                size_bytes=file.file_size_in_bytes,
                rows=file.record_count,
                partition=tuple(
                    stored_value(file.partition[i]) for i in range(len(file.partition))
                ),
                deletes=None if deleted is None else io.key(deleted.file_path),
                deleted=0 if deleted is None else deleted.record_count,
                spec_id=manifest.partition_spec_id,
            )


def current_spec(
    store: Store,
    metadata_key: str,
    partition_by: Sequence[str],
    columns: Sequence[TableColumn],
    table: str,
) -> int:
    """Return the id of the partition spec with these rules; an id that no file has if no file was written with them."""
    known = load_metadata(StoreFileIO(store), metadata_key).partition_specs
    return partition_spec(columns, partition_by, table=table, known=known).spec_id


def table_columns(store: Store, metadata_key: str) -> tuple[TableColumn, ...]:
    """Return the columns of a table's rows, with the ids, types and requiredness of the metadata. Raises Corrupt."""
    return schema_columns(load_metadata(StoreFileIO(store), metadata_key).schema())


class RowsByFile:
    """The rows of a table's data files in the columns that its metadata has now, one file at a time.

    Columns are matched by id (PyIceberg does it), so a file may have them under older names or in narrower types. Deleted
    positions are returned like all others.
    """

    def __init__(self, store: Store, metadata_key: str) -> None:
        self._table = static_table(store, metadata_key)
        self._store = store
        io = StoreFileIO(store)
        self._files = {
            io.key(task.file.file_path): task.file for task in self._table.scan().plan_files()
        }

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns of the rows, with the ids, types and requiredness of the metadata."""
        return schema_columns(self._table.schema())

    def read(self, key: str) -> pa.Table:
        """Return the rows of a data file in their order. Raises Corrupt if the file is gone or unreadable."""
        file = self._files.get(key)
        if file is None:
            raise corrupt(f"{self._store.uri}/{key}", "expected a file that the table lists")
        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        return scan.to_table([FileScanTask(file)])


def deleted_positions(store: Store, file: LiveFile) -> Iterator[int]:
    """Yield the deleted positions of a data file, ascending. Raises Corrupt if its delete file is gone or unreadable."""
    if file.deletes is None:
        return
    io = StoreFileIO(store)
    yield from read_deletes(io, io.location(file.deletes), target=io.location(file.key))


def _deletes(io: StoreFileIO, live: Sequence[ManifestFile]) -> dict[str, DataFile]:
    """Return the delete file of each data file by its location."""
    found: dict[str, DataFile] = {}
    for manifest in live:
        for entry in entries(io, manifest):
            target = target_of(entry)
            if target in found:
                raise corrupt(
                    target, f"expected one delete file, found a second: {entry.data_file.file_path}"
                )
            found[target] = entry.data_file
    return found
