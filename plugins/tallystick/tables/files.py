"""Reads which files the metadata of a table lists, in its current and its older snapshots. Opens no data file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from tallystick.store import Store
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.snapshots import entries, holds_files, manifests
from tallystick.tables.staging import load_metadata

READERS = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    """The files that a metadata file lists, by their keys.

    `data`: the live data files with their sizes in bytes, `rows` their rows without deleted ones. `deletes`: the delete
    files of every snapshot. `current`: all that a reader of the current snapshot opens, with the metadata file itself;
    `older`: what only older snapshots list. `oldest_at`: the time of the oldest snapshot; None: there is none. `log`: the
    earlier metadata files.
    """

    rows: int
    data: Mapping[str, int]
    deletes: frozenset[str]
    current: frozenset[str]
    older: frozenset[str]
    snapshots: int
    oldest_at: datetime | None
    log: tuple[str, ...]


@dataclass(slots=True)
class _Listed:
    """What was found of a table so far."""

    rows: int = 0
    data: dict[str, int] = field(default_factory=dict)
    deletes: set[str] = field(default_factory=set)
    current: set[str] = field(default_factory=set)
    every: set[str] = field(default_factory=set)


_Entry = tuple[str, int, int, bool]
"""The key of a file, its size in bytes, its rows, and True if it is a data file."""


class FilesReader:
    """A reader that remembers the manifest lists and manifests that it has read: versions of a table share most of them.

    It also finds what versions reach, as `IcebergReach` does, for gc's marks.
    """

    def __init__(self, store: Store) -> None:
        self._io = StoreFileIO(store)
        # By location: the manifests of a manifest list, and the keys of the files of a manifest.
        self._manifests: dict[str, list[ManifestFile]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}

    def table_files(self, metadata_key: str) -> ListedFiles:
        """Read a metadata file with the manifests of each of its snapshots.

        Raises Corrupt if any of them is gone or unreadable.
        """
        metadata = load_metadata(self._io, metadata_key)
        head = metadata.current_snapshot()
        found = _Listed(current={metadata_key}, every={metadata_key})
        with ThreadPoolExecutor(READERS) as pool:
            by_path = self._read_lists(metadata.snapshots, pool)
            live = {m.manifest_path for m in self._manifests[head.manifest_list]} if head else set()
            read = pool.map(self._entries, by_path.values())
            for path, named in zip(by_path, read, strict=True):
                self._add(found, path, named, live=path in live)
        found.every |= {self._io.key(s.manifest_list) for s in metadata.snapshots}
        if head is not None:
            found.current.add(self._io.key(head.manifest_list))
        return ListedFiles(
            rows=found.rows,
            data=found.data,
            deletes=frozenset(found.deletes),
            current=frozenset(found.current),
            older=frozenset(found.every - found.current),
            snapshots=len(metadata.snapshots),
            oldest_at=min((_time(s) for s in metadata.snapshots), default=None),
            log=tuple(self._io.key(one.metadata_file) for one in metadata.metadata_log),
        )

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the keys of all objects that these metadata files reach, including the files themselves.

        Raises Corrupt if any object is gone or unreadable.
        """
        found = set(metadata)
        with ThreadPoolExecutor(READERS) as pool:
            loaded = pool.map(lambda key: load_metadata(self._io, key), metadata)
            snapshots = {s.manifest_list: s for one in loaded for s in one.snapshots}
            by_path = self._read_lists(snapshots.values(), pool)
            unread = [m for path, m in by_path.items() if path not in self._keys]
            for manifest, named in zip(unread, pool.map(self._entries, unread), strict=True):
                self._keys[manifest.manifest_path] = tuple(key for key, *_ in named)
        found.update(self._io.key(location) for location in snapshots)
        for path in by_path:
            found.add(self._io.key(path))
            found.update(self._keys[path])
        return frozenset(found)

    def _read_lists(
        self, snapshots: Iterable[Snapshot], pool: ThreadPoolExecutor
    ) -> dict[str, ManifestFile]:
        """Return the manifests of these snapshots, each once, by location."""
        asked = {s.manifest_list: s for s in snapshots}
        unread = [s for location, s in asked.items() if location not in self._manifests]
        for snapshot, inside in zip(
            unread, pool.map(lambda s: manifests(self._io, s), unread), strict=True
        ):
            self._manifests[snapshot.manifest_list] = inside
        return {m.manifest_path: m for location in asked for m in self._manifests[location]}

    def _entries(self, manifest: ManifestFile) -> list[_Entry]:
        # Only these values: the statistics of a million files need gigabytes.
        if not holds_files(manifest):
            return []
        files = (entry.data_file for entry in entries(self._io, manifest))
        return [
            (
                self._io.key(f.file_path),
                f.file_size_in_bytes,
                f.record_count,
                f.content == DataFileContent.DATA,
            )
            for f in files
        ]

    def _add(self, found: _Listed, path: str, named: list[_Entry], *, live: bool) -> None:
        self._keys[path] = tuple(key for key, *_ in named)
        keys = {self._io.key(path), *self._keys[path]}
        found.every |= keys
        found.deletes |= {key for key, _, _, is_data in named if not is_data}
        if live:
            found.current |= keys
            for key, size_bytes, rows, is_data in named:
                # A delete file has a row for each row that is deleted.
                found.rows += rows if is_data else -rows
                if is_data:
                    found.data[key] = size_bytes


def _time(snapshot: Snapshot) -> datetime:
    return EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)
