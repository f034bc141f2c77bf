"""Writes a table's rows as Parquet files: Iceberg field ids, bounded memory, a file per partition value.

Rows wait in memory until they fill a row group. Files grow in a local folder until they reach their target size. Then
each file is uploaded in one request. Neither a table nor a file is ever held whole in memory.

If there are only a few partition values, each has an open file. As soon as there are more, all rows go through
`TableSpill`, which returns each value's rows together at the end. So a value has one file, or as many as its size
requires, regardless of the order of the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallystick.engine.conform import conformed
from tallystick.engine.encodings import encodings_of
from tallystick.engine.room import ReportRoom
from tallystick.engine.spill import TableSpill
from tallystick.engine.upload import Upload
from tallystick.format.plan import PlannedTable
from tallystick.format.report import FileReport, Lineage
from tallystick.format.upkeep import DEFAULT
from tallystick.tables.partitioning import PartitionValues, partitions_in, split_by_partition
from tallystick.tables.schema import arrow_schema
from tallystick.tables.statistics import column_statistics, split_offsets

Source = tuple[str, int]
"""A topic, by its name in the ledger, and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """Limits of the memory, the file sizes and the open files of one table's writer.

    `waiting_bytes`: rows held in memory; if there are more than `files_open` partition values, also their sorted copy.
    `file_bytes`: None is that of the table.
    """

    group_rows: int = 262_144
    group_bytes: int = 48 << 20
    waiting_bytes: int = 96 << 20
    file_bytes: int | None = None
    files_open: int = 32


@dataclass(slots=True, kw_only=True)
class _OpenFile:
    """One file that is being written, and the rows that wait for its next row group."""

    path: Path
    partition: PartitionValues
    waiting: list[tuple[pa.Table, Source | None]] = field(default_factory=list)
    rows: int = 0
    waiting_rows: int = 0
    waiting_bytes: int = 0
    sink: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    lineage: dict[Source, tuple[int, int]] = field(default_factory=dict)


class TableWriter:
    """A stream of one table's rows into files. Use it as a context manager, so that no local file remains."""

    def __init__(
        self,
        table: PlannedTable,
        *,
        partition_by: Sequence[str],
        upload: Upload,
        folder: Path,
        limits: WriteLimits | None = None,
        room: ReportRoom | None = None,
    ) -> None:
        """Create a writer that uploads with `upload` and keeps its local files in `folder`.

        `room`: the limit for the task's share of the report; None: it is not checked.
        """
        self._table = table
        self._schema = arrow_schema(table.columns)
        self._partition_by = tuple(partition_by)
        self._has_lineage = "_offset" in self._schema.names
        self._upload = upload
        self._folder = folder
        self._limits = limits or WriteLimits()
        file_bytes = self._limits.file_bytes
        self._file_bytes = table.file_size_bytes if file_bytes is None else file_bytes
        self._room = room
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._seen: set[PartitionValues] = set()
        self._spill: TableSpill | None = None
        self._files: list[FileReport] = []
        self._opened = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._open.values():
            # The error that matters was raised already, and the incomplete file is deleted below.
            with contextlib.suppress(Exception):
                _finish(opened)
            opened.path.unlink(missing_ok=True)
        self._open.clear()
        if self._spill is not None:
            self._spill.close()

    def write(self, rows: pa.Table, *, source: Source | None = None) -> None:
        """Write rows that have the table's columns by name, with exactly the planned types.

        `source`: where all of these rows come from. If it is None, their lineage columns are read, if there are any.
        Raises InvalidPipeline as soon as the rows have more partition values than a report has room for files.
        """
        ordered = pa.Table.from_arrays(
            [_planned(rows.column(f.name), f) for f in self._schema], schema=self._schema
        )
        if self._spill is not None:
            self._expect(partitions_in(ordered, self._partition_by, self._table.columns))
            self._spill.add(ordered)
            return
        parts = list(self._split(ordered))
        self._expect({partition for partition, _ in parts})
        if len(self._open.keys() | {partition for partition, _ in parts}) > self._limits.files_open:
            self._begin_spill().add(ordered)
            return
        for partition, part in parts:
            self._add(self._file_of(partition), part, source)
        while sum(o.waiting_bytes for o in self._open.values()) > self._limits.waiting_bytes:
            self._write_group(max(self._open.values(), key=lambda o: o.waiting_bytes))

    def close(self) -> tuple[FileReport, ...]:
        """Write and upload the remaining rows; return one report per file, in upload order.

        Safe to repeat with a new writer that gets all rows again: uploads go under fresh keys, see AttemptPrefix.upload.
        After an error, discard this writer: some of the spilled rows are written, and the others are gone.
        """
        if self._spill is not None:
            for partition, tables in self._spill.by_partition():
                for rows in tables:
                    self._add(self._file_of(partition), rows, None)
                if partition in self._open:
                    self._send(partition)
            self._spill.close()
            self._spill = None
        for partition in list(self._open):
            self._send(partition)
        return tuple(self._files)

    def _split(self, rows: pa.Table) -> Iterator[tuple[PartitionValues, pa.Table]]:
        return split_by_partition(rows, self._partition_by, self._table.columns)

    def _expect(self, partitions: set[PartitionValues]) -> None:
        """Count the values that will have a file; raises InvalidPipeline if they are too many for a report."""
        before = len(self._seen)
        self._seen |= partitions
        if self._room is not None and len(self._seen) > before:
            self._room.expect(self._table, self._partition_by, len(self._seen))

    def _begin_spill(self) -> TableSpill:
        """Start to sort all rows before they are written; open files get the rest of their rows at the end."""
        self._spill = TableSpill(
            folder=self._folder,
            name=self._table.name,
            schema=self._schema,
            split=self._split,
            waiting_bytes=self._limits.waiting_bytes,
        )
        for opened in self._open.values():
            for rows, _ in opened.waiting:
                self._spill.add(rows)
            opened.waiting, opened.waiting_rows, opened.waiting_bytes = [], 0, 0
        return self._spill

    def _file_of(self, partition: PartitionValues) -> _OpenFile:
        opened = self._open.get(partition)
        if opened is None:
            self._opened += 1
            path = self._folder / f"{self._table.name}-{self._opened}.parquet"
            opened = self._open[partition] = _OpenFile(path=path, partition=partition)
        return opened

    def _add(self, opened: _OpenFile, rows: pa.Table, source: Source | None) -> None:
        opened.waiting.append((rows, source))
        opened.waiting_rows += rows.num_rows
        opened.waiting_bytes += rows.nbytes
        if (
            opened.waiting_rows >= self._limits.group_rows
            or opened.waiting_bytes >= self._limits.group_bytes
        ):
            self._write_group(opened)

    def _write_group(self, opened: _OpenFile) -> None:
        rows = pa.concat_tables([part for part, _ in opened.waiting])
        if self._has_lineage:
            for part, source in opened.waiting:
                _note_lineage(opened.lineage, part, source)
        opened.waiting, opened.waiting_rows, opened.waiting_bytes = [], 0, 0
        opened.rows += rows.num_rows
        if opened.writer is None:
            opened.sink = pa.OSFile(str(opened.path), "wb")
            opened.writer = parquet_writer(
                opened.sink, rows, self._table.compression, version=self._table.parquet_version
            )
        opened.writer.write_table(rows, row_group_size=self._limits.group_rows)
        if opened.sink is not None and opened.sink.tell() >= self._file_bytes:
            self._send(opened.partition)

    def _send(self, partition: PartitionValues) -> None:
        opened = self._open[partition]
        if opened.waiting:
            self._write_group(opened)
            if partition not in self._open:
                return  # The last group filled the file, and _write_group sent it.
        _finish(opened)
        footer = pq.read_metadata(opened.path)
        size_bytes = opened.path.stat().st_size
        key, etag = self._upload(self._table.name, opened.path)
        self._files.append(
            FileReport(
                table=self._table.name,
                key=key,
                etag=etag,
                size_bytes=size_bytes,
                rows=opened.rows,
                partition=opened.partition,
                columns=column_statistics(footer, self._table.columns, where=key),
                lineage=tuple(
                    Lineage(topic=topic, partition=number, first=first, last=last)
                    for (topic, number), (first, last) in sorted(opened.lineage.items())
                ),
                split_offsets=split_offsets(footer),
            )
        )
        opened.path.unlink()
        del self._open[partition]


def _planned(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column in its planned type: the lake can have the fields of a struct in another order, or optional."""
    if values.type == field.type:
        return values
    chunks = [conformed(chunk, field.type, f"column {field.name!r}") for chunk in values.chunks]
    return pa.chunked_array(chunks, field.type)


def _note_lineage(
    lineage: dict[Source, tuple[int, int]], rows: pa.Table, source: Source | None
) -> None:
    """Widen the spans of a file's lineage by some of its rows."""
    if source is None:
        spans = spans_of(rows)
    else:
        found = pc.min_max(rows.column("_offset")).as_py()
        spans = [(source, found["min"], found["max"])]
    for place, low, high in spans:
        first, last = lineage.get(place, (low, high))
        lineage[place] = (min(first, low), max(last, high))


def spans_of(rows: pa.Table) -> list[tuple[Source, int, int]]:
    """Return each topic-partition of rows with lineage, with its smallest and largest offset."""
    grouped = rows.group_by(["_topic", "_kafka_partition"], use_threads=False)
    spans = grouped.aggregate([("_offset", "min"), ("_offset", "max")])
    return [
        ((row["_topic"], row["_kafka_partition"]), row["_offset_min"], row["_offset_max"])
        for row in spans.to_pylist()
    ]


def _finish(opened: _OpenFile) -> None:
    if opened.writer is not None:
        opened.writer.close()
        opened.writer = None
    if opened.sink is not None:
        opened.sink.close()
        opened.sink = None


def parquet_writer(
    sink: pa.NativeFile,
    sample: pa.Table,
    compression: str = DEFAULT.compression,
    *,
    version: int = DEFAULT.parquet_version,
) -> pq.ParquetWriter:
    """Open a Parquet file for rows like `sample`, whose values determine the encodings."""
    repeating, encodings = encodings_of(sample, version)
    return pq.ParquetWriter(
        sink,
        sample.schema,
        compression="none" if compression == "uncompressed" else compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=repeating,
        column_encoding=encodings or None,
        data_page_version=f"{version}.0",
        coerce_timestamps=None,
        store_schema=True,
    )
