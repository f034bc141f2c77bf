"""What a table's metadata reaches: every object that a reader of it, or of its older snapshots, may open."""

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
    """Reads metadata, manifest lists and manifests; data files are named by them and never opened."""

    def __init__(self, store: Store) -> None:
        self._io = StoreFileIO(store)

    def reached(self, metadata: Collection[str]) -> frozenset[str]:
        """Return the keys of everything that these metadata files reach, themselves included.

        All snapshots that a metadata file lists count, not the current one alone: who travels in time finds their files,
        and the table is whole for every Iceberg reader. Older metadata files that its log names do not count: no reader
        opens them through it, and each of them would need manifests of its own. Raises Corrupt where anything is gone or
        unreadable, so that nobody deletes by half a mark.
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
