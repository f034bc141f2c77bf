"""One root read as plain JSON, Avro and Parquet: its committed intervals, their objects, and the tables' rows."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from oracle.place import Objects

LINEAGE = ("_topic", "_kafka_partition", "_offset", "_timestamp")
DEAD = "dead_letters"
TOTALS = ("records", "dead_letters", "aborted", "control", "absent", "lost")
Partition = tuple[str, int]
_DELETED = 2  # Iceberg spec, Manifests: status of an entry
_DATA = 0


@dataclass(frozen=True, slots=True)
class CommittedInterval:
    """A committed interval: its offsets in the ledger, and its entry in the record, its plan and its report."""

    bounds: tuple[str, str]
    entry: Mapping[str, Any]
    ranges: Mapping[Partition, tuple[int, int]]
    done: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    report: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return f"[{self.bounds[0]}, {self.bounds[1]})"

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.ranges.values())

    def planned(self, topic: str) -> Mapping[str, Any]:
        """Return the plan's fields of a topic, empty if the plan does not have the topic."""
        topics = (self.plan or {}).get("topics", ())
        return next((t for t in topics if t["name"] == topic), {})

    def readable_from(self, place: Partition) -> int:
        """Return the offset at which the plan starts to read a partition: earlier ones of the range were lost."""
        ranges = self.planned(place[0]).get("ranges", ())
        return int(ranges[place[1]][4]) if place[1] < len(ranges) else self.ranges[place][0]

    def files(self, table: str) -> tuple[str, ...]:
        """Return the keys of the data files that the record names as added."""
        return tuple((self.done or {}).get("added", {}).get(table, ()))


@dataclass(frozen=True, slots=True)
class Ledger:
    """All pages of one root: its entries in order of time, and its boundaries."""

    entries: tuple[Mapping[str, Any], ...]
    boundaries: Mapping[str, Mapping[str, Any]]

    def committed(self) -> Iterator[Mapping[str, Any]]:
        return (entry for entry in self.entries if entry["committed"] is not None)

    def ranges(
        self, root: Mapping[str, Any], interval: tuple[str, str]
    ) -> dict[Partition, tuple[int, int]]:
        """Return the offsets of an interval by partition. A boundary without a partition means its origin."""
        ranges: dict[Partition, tuple[int, int]] = {}
        for topic, known in root["topics"].items():
            ends = [self.boundaries[at].get(topic, []) for at in interval]
            for number, origin in enumerate(known["origins"]):
                start, end = (row[number][0] if number < len(row) else origin for row in ends)
                ranges[topic, number] = (start, end)
        return ranges


def read_ledger(objects: Objects, root: Mapping[str, Any]) -> Ledger:
    """Read every page that the root names. Raises FileNotFoundError."""
    pages = [objects.json(key) for _, _, key in root["pages"]]
    entries = sorted((e for page in pages for e in page["entries"]), key=lambda e: e["interval"])
    boundaries = {b["at"]: b["positions"] for page in pages for b in page["boundaries"]}
    return Ledger(tuple(entries), boundaries)


def done_in(record: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a record contains about an entry's interval."""
    return next((d for d in record["intervals"] if d["interval"] == entry["interval"]), None)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file in the current manifests. Bounds are Iceberg's bytes by column id.

    `partition`: column id, transform and value of each field of the file's own partition spec.
    """

    key: str
    rows: int
    size_bytes: int
    manifest: str
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    partition: tuple[tuple[int, str, Any], ...] = ()


class Tables:
    """The Iceberg tables of a lake, read according to the spec. Manifests never change, so each is read once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._manifests: dict[str, tuple[LiveFile, ...]] = {}

    def metadata(self, key: str | None) -> Mapping[str, Any]:
        """Return a table's metadata, empty if it has none yet."""
        if key is None:
            return {}
        metadata: Mapping[str, Any] = self._objects.json(key)
        return metadata

    def named(self, metadata: Mapping[str, Any]) -> list[str]:
        """Return the other keys that readers of this metadata may read: older manifest lists and metadata files."""
        places = [snapshot["manifest-list"] for snapshot in metadata.get("snapshots", ())]
        places += [line["metadata-file"] for line in metadata.get("metadata-log", ())]
        return [self._objects.key_of(place) for place in places]

    def live(self, metadata_key: str | None) -> list[LiveFile]:
        """Return the data files of a table's current snapshot.

        Raises FileNotFoundError, and ValueError for what is never written: delete files, locations outside the lake.
        """
        metadata = self.metadata(metadata_key)
        current = metadata.get("current-snapshot-id")
        snapshots = metadata.get("snapshots", ())
        snapshot = next((s for s in snapshots if s["snapshot-id"] == current), None)
        if snapshot is None:
            return []
        specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
        files: list[LiveFile] = []
        for line in self._avro(snapshot["manifest-list"]):
            if line["content"] != _DATA:
                raise ValueError(f"{metadata_key} has delete files: {line['manifest_path']}")
            path = line["manifest_path"]
            if path not in self._manifests:
                self._manifests[path] = tuple(self._entries(path, specs[line["partition_spec_id"]]))
            files += self._manifests[path]
        return files

    def _entries(self, path: str, spec: list[Mapping[str, Any]]) -> Iterator[LiveFile]:
        for entry in self._avro(path):
            if entry["status"] == _DELETED:
                continue
            file = entry["data_file"]
            yield LiveFile(
                key=self._objects.key_of(file["file_path"]),
                rows=file["record_count"],
                size_bytes=file["file_size_in_bytes"],
                manifest=path,
                lower={b["key"]: b["value"] for b in file["lower_bounds"] or ()},
                upper={b["key"]: b["value"] for b in file["upper_bounds"] or ()},
                partition=tuple(
                    (f["source-id"], f["transform"], file["partition"][f["name"]]) for f in spec
                ),
            )

    def _avro(self, location: str) -> list[Any]:
        key = self._objects.key_of(location)
        return list(fastavro.reader(io.BytesIO(self._objects.body(key))))


def rows_of(objects: Objects, key: str, columns: list[dict[str, Any]]) -> pa.Table:
    """Return a data file's rows under the table's column names, matched by field id as Iceberg's readers do.

    Raises FileNotFoundError, and ValueError if the file has a column id that the table does not have.
    """
    table = pq.read_table(pa.BufferReader(objects.body(key)))
    by_id = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in table.schema}
    names = {c["id"]: c["name"] for c in columns}
    if unknown_ids := sorted(set(by_id) - set(names)):
        raise ValueError(f"{key} has column id {unknown_ids[0]}, which the table does not have")
    arrays = {
        name: table[by_id[number]] if number in by_id else pa.nulls(table.num_rows)
        for number, name in names.items()
    }
    return pa.table(arrays)
