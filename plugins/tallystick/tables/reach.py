"""Finds the objects that table metadata reaches: all that a reader of it, or of its older snapshots, may open."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot

from tallystick.store import Store
from tallystick.tables.file_io import StoreFileIO
from tallystick.tables.snapshots import entries, holds_files, manifests
from tallystick.tables.staging import load_metadata

READERS = 8


class IcebergReach:
    """The reader of metadata, manifest lists and manifests. Data files are only named by them, and never opened."""

    def __init__(self, store: Store) -> None:
        self._io = StoreFileIO(store)

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the keys of all objects that these metadata files reach, including the files themselves.

        All snapshots in a metadata file count, not only the current one, so that time travel finds their files and the
        table is complete for every Iceberg reader. Older metadata files in its log do not count: no reader opens them
        through the log, and each of them would need its own manifests. Raises Corrupt if any object is gone or
        unreadable, so that nothing is deleted with incomplete marks.
        """
        found: set[str] = set()
        with ThreadPoolExecutor(READERS) as pool:
            snapshots: dict[str, Snapshot] = {}
            for key, loaded in zip(
                metadata, pool.map(lambda k: load_metadata(self._io, k), metadata), strict=True
            ):
                found.add(key)
                snapshots.update({s.manifest_list: s for s in loaded.snapshots})
            lists = pool.map(lambda s: manifests(self._io, s), snapshots.values())
            by_path: dict[str, ManifestFile] = {}
            for location, inside in zip(snapshots, lists, strict=True):
                found.add(self._io.key(location))
                by_path.update({m.manifest_path: m for m in inside})
            for keys_ in pool.map(self._files, by_path.values()):
                found.update(keys_)
        return frozenset(found)

    def _files(self, manifest: ManifestFile) -> Iterable[str]:
        named = [self._io.key(manifest.manifest_path)]
        if holds_files(manifest):
            named += [self._io.key(e.data_file.file_path) for e in entries(self._io, manifest)]
        return named
