"""Reads one table at one metadata file: with PyIceberg for users and tests, from manifests alone for verify."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable

from tallystick.store import Store
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.partitioning import PartitionValue, stored_value
from tallystick.tables.snapshots import entries, holds_files, manifests
from tallystick.tables.staging import load_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """One data file of a table: key relative to the lake URI, size, rows, partition tuple."""

    key: str
    size_bytes: int
    rows: int
    partition: tuple[PartitionValue, ...]


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

    Raises Corrupt if metadata or a manifest is gone or unreadable.
    """
    io = StoreFileIO(store)
    head = load_metadata(io, metadata_key).current_snapshot()
    for manifest in manifests(io, head):
        if not holds_files(manifest):
            continue
        for entry in entries(io, manifest):
            file = entry.data_file
            yield LiveFile(
                key=io.key(file.file_path),
                size_bytes=file.file_size_in_bytes,
                rows=file.record_count,
                partition=tuple(
                    stored_value(file.partition[i]) for i in range(len(file.partition))
                ),
            )
