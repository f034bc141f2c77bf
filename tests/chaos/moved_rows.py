"""Reads tables whose rows compactions have moved, for the oracle: each moved file is found under its own key again.

The oracle compares a table's files with those that reports list. A shared file is therefore read as the moved files of
which it consists, each with the rows that no delete file deletes. This uses no code of tallystick: compactions are read
as JSON, row orders of sorted files as Parquet, delete files according to the Iceberg spec.
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import audit as auditing
from oracle.audit import Finding, Place
from oracle.place import Listed, Objects
from oracle.reading import LiveFile, Tables
from oracle.watcher import Watcher

_DELETES = 1  # Iceberg spec, Manifest lists: content of a manifest
_DELETED = 2  # Iceberg spec, Manifests: status of an entry
_POSITION_DELETES = 1  # Iceberg spec, Manifests: content of a data file


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedFile:
    """Where the rows of a moved file are: the positions in a shared file."""

    key: str
    shared: str
    positions: Sequence[int]


class CompactedObjects(Objects):
    """The objects of a lake. A moved file's rows are read from its shared file."""

    def __init__(self, place: Place, **how: Any) -> None:
        super().__init__(place, **how)
        self.moved: dict[str, MovedFile] = {}

    def body(self, key: str) -> bytes:
        """Return an object that must exist; a moved file is written anew from the rows of the shared file."""
        moved = self.moved.get(key)
        if moved is None:
            return super().body(key)
        rows = pq.read_table(pa.BufferReader(super().body(moved.shared)))
        alone = io.BytesIO()
        pq.write_table(rows.take(pa.array(moved.positions)), alone)
        return alone.getvalue()


class CompactedTables(Tables):
    """The tables of a lake, read according to the spec, with delete files and shared files.

    `moved`: the moved files of each read metadata file, by table metadata key and by their own key.
    """

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects)
        self._compactions: dict[str, Mapping[str, Any]] = {}
        self._deletes: dict[str, tuple[str, frozenset[int]]] = {}
        self._orders: dict[str, dict[int, list[int]]] = {}
        self._sizes: dict[str, Listed | None] = {}
        self.moved: dict[str, dict[str, MovedFile]] = {}

    def live(self, metadata_key: str | None) -> list[LiveFile]:
        """Return the files that reports list and that the current snapshot has, in place or moved.

        Raises FileNotFoundError, and ValueError if deleted positions are not exactly whole moved files of a shared file.
        """
        files, deleted = self._snapshot(metadata_key)
        moved: dict[str, MovedFile] = {}
        found: list[LiveFile] = []
        for file in files:
            positions = deleted.pop(file.key, frozenset())
            if "/shared/" in file.key:
                found += self._split(file, positions, moved)
            elif positions:
                raise ValueError(
                    f"{len(positions)} rows of {file.key} are deleted: it is no shared file"
                )
            else:
                found.append(file)
        if deleted:
            raise ValueError(
                f"{metadata_key} has deletes of {min(deleted)}, which it does not list"
            )
        self.moved[metadata_key or ""] = moved
        if isinstance(self._objects, CompactedObjects):
            self._objects.moved |= moved
        return found

    def reached(self, metadata_key: str, listed: Container[str]) -> set[str]:
        """Return the data files and delete files of a table's snapshots, except those whose manifests gc has deleted."""
        found: set[str] = set()
        for snapshot in self.metadata(metadata_key).get("snapshots", ()):
            if self._objects.key_of(snapshot["manifest-list"]) not in listed:
                continue
            for line in self._avro(snapshot["manifest-list"]):
                if self._objects.key_of(line["manifest_path"]) not in listed:
                    continue
                for entry in self._avro(line["manifest_path"]):
                    if entry["status"] != _DELETED:
                        found.add(self._objects.key_of(entry["data_file"]["file_path"]))
        return found

    def _snapshot(
        self, metadata_key: str | None
    ) -> tuple[list[LiveFile], dict[str, frozenset[int]]]:
        """Return the data files of the current snapshot, and the deleted positions by data file."""
        metadata = self.metadata(metadata_key)
        current = metadata.get("current-snapshot-id")
        snapshots = metadata.get("snapshots", ())
        snapshot = next((s for s in snapshots if s["snapshot-id"] == current), None)
        files: list[LiveFile] = []
        deleted: dict[str, frozenset[int]] = {}
        if snapshot is None:
            return files, deleted
        specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
        for line in self._avro(snapshot["manifest-list"]):
            path = line["manifest_path"]
            if line["content"] == _DELETES:
                for target, positions in self._deleted_by(path):
                    if target in deleted:
                        raise ValueError(f"{metadata_key} has two delete files of {target}")
                    deleted[target] = positions
                continue
            if path not in self._manifests:
                self._manifests[path] = tuple(self._entries(path, specs[line["partition_spec_id"]]))
            files += self._manifests[path]
        return files, deleted

    def _deleted_by(self, manifest: str) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield the data file and the deleted positions of each delete file of a manifest."""
        for entry in self._avro(manifest):
            if entry["status"] == _DELETED:
                continue
            file = entry["data_file"]
            if file["content"] != _POSITION_DELETES:
                raise ValueError(
                    f"{file['file_path']} has content {file['content']}, not positions"
                )
            key = self._objects.key_of(file["file_path"])
            if key not in self._deletes:
                self._deletes[key] = self._read_deletes(key, file["record_count"])
            yield self._deletes[key]

    def _read_deletes(self, key: str, count: int) -> tuple[str, frozenset[int]]:
        rows = pq.read_table(pa.BufferReader(self._objects.body(key)))
        (target,) = set(rows["file_path"].to_pylist())
        positions = rows["pos"].to_pylist()
        if len(positions) != count or sorted(set(positions)) != positions:
            raise ValueError(f"{key} has the positions {positions}, in its manifest are {count}")
        return self._objects.key_of(target), frozenset(positions)

    def _split(
        self, file: LiveFile, positions: frozenset[int], moved: dict[str, MovedFile]
    ) -> Iterator[LiveFile]:
        """Yield the moved files of a shared file that are not deleted."""
        stored = self._size(file.key)
        if stored is None or stored.size_bytes != file.size_bytes:
            raise ValueError(
                f"{file.key} has {file.size_bytes} bytes in its manifest, stored is {stored}"
            )
        counted = 0
        for key, rows, own in self._runs(file):
            counted += len(own)
            if len(own) != rows:
                raise ValueError(f"{key} has {rows} rows, {len(own)} are in {file.key}")
            gone = sum(position in positions for position in own)
            if gone == rows:
                continue
            if gone or key in moved:
                raise ValueError(
                    f"{key} is in {file.key}, {gone} of its {rows} rows deleted, or twice"
                )
            moved[key] = MovedFile(key=key, shared=file.key, positions=own)
            was = self._size(key)
            size_bytes = was.size_bytes if was is not None else file.size_bytes
            yield replace(file, key=key, rows=rows, size_bytes=size_bytes)
        if counted != file.rows or (positions and max(positions) >= counted):
            raise ValueError(
                f"{file.key} has {file.rows} rows in its manifest, {counted} are of moved files"
            )

    def _runs(self, file: LiveFile) -> Iterator[tuple[str, int, Sequence[int]]]:
        """Yield the moved files of a shared file, as its compaction lists them: key, rows, and positions in it."""
        _, table, _, number, _ = file.key.split("/")
        key = f"compactions/{table}/{number}.json"
        if key not in self._compactions:
            self._compactions[key] = self._objects.json(key)
        shared = next(
            (f for f in self._compactions[key]["files"] if f["file"]["key"] == file.key), None
        )
        if shared is None:
            raise ValueError(f"{file.key} is not in {key}")
        if shared["order"] is not None:
            places = self._sorted(shared["order"]["key"])
            for number, run in enumerate(shared["runs"]):
                yield run[0], run[1], places.get(number, [])
            return
        first = 0
        for run in shared["runs"]:
            yield run[0], run[1], range(first, first + run[1])
            first += run[1]

    def _sorted(self, order: str) -> dict[int, list[int]]:
        """Return the positions of each run of a sorted file, from its row order."""
        if order not in self._orders:
            found: dict[int, list[int]] = {}
            rows = pq.read_table(pa.BufferReader(self._objects.body(order)))
            for position, run in enumerate(rows["run"].to_pylist()):
                found.setdefault(run, []).append(position)
            self._orders[order] = found
        return self._orders[order]

    def _size(self, key: str) -> Listed | None:
        if key not in self._sizes:
            self._sizes[key] = self._objects.head(key)
        return self._sizes[key]


class CompactedWatcher(Watcher):
    """A concurrent reader that also reads shared files and delete files."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._tables = CompactedTables(self._objects)


def audit(place: Place, *sent: Any, **how: Any) -> Finding:
    """Audit a lake as `oracle.audit.audit` does, with moved rows read where they are."""
    with (
        patch.object(auditing, "Objects", CompactedObjects),
        patch.object(auditing, "Tables", CompactedTables),
    ):
        return auditing.audit(place, *sent, **how)
