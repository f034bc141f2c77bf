"""Sorts rows of many partition values on the local disk, so that each value's rows can be written together.

A writer can keep a few Parquet files open, but not thousands. If it closed a file for each batch and value, it would
write thousands of small files. So rows wait in memory, as whole batches, until they fill it. Then they are sorted by
partition and written as one run: an Arrow IPC file with one record batch per partition value. At the end, the rows of
each value are read from all runs, in the order in which they were added. Memory holds one buffer and its sorted copy,
regardless of the number of values and rows. The disk holds the rows once, compressed. Nothing is uploaded before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tallystick.tables.partitioning import PartitionValues
from tallystick.tables.schema import no_rows

Split = Callable[[pa.Table], Iterator[tuple[PartitionValues, pa.Table]]]
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One sorted file: the numbers of each partition value's record batches in it."""

    path: Path
    places: dict[PartitionValues, list[int]]


@dataclass(slots=True, kw_only=True)
class TableSpill:
    """A buffer of rows that are added in any order and read by partition; `name` begins the names of its files."""

    folder: Path
    name: str
    schema: pa.Schema
    split: Split
    waiting_bytes: int
    _waiting: list[pa.Table] = field(default_factory=list)
    _held_bytes: int = 0
    _runs: list[_Run] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add rows; when `waiting_bytes` are held, write them to the disk as one run."""
        self._waiting.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self.waiting_bytes:
            self._write_run()

    def by_partition(self) -> Iterator[tuple[PartitionValues, Iterator[pa.Table]]]:
        """Yield each partition value once, with its rows in the order in which they were added.

        Read all rows of one value before the next value.
        """
        last = self._sorted()
        with ExitStack() as stack:
            readers = [
                (run.places, pa.ipc.open_file(stack.enter_context(pa.OSFile(str(run.path)))))
                for run in self._runs
            ]
            values = dict.fromkeys(value for run in self._runs for value in run.places)
            for value in dict.fromkeys((*values, *last)):
                yield value, _rows_of(value, readers, last)

    def close(self) -> None:
        """Remove the files. Safe to repeat: missing files are ignored."""
        for run in self._runs:
            run.path.unlink(missing_ok=True)
        self._waiting, self._held_bytes, self._runs = [], 0, []

    def _sorted(self) -> dict[PartitionValues, pa.Table]:
        rows = pa.concat_tables([no_rows(self.schema), *self._waiting])
        self._waiting, self._held_bytes = [], 0
        return dict(self.split(rows))

    def _write_run(self) -> None:
        path = self.folder / f"{self.name}-{len(self._runs)}.spill"
        run = _Run(path=path, places={})
        self._runs.append(run)  # first, so that close() removes an incomplete file too
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, self.schema, options=_OPTIONS) as writer,
        ):
            written = 0
            for value, rows in self._sorted().items():
                # One batch, unless a column has more bytes than Arrow's 32-bit offsets can count.
                batches = rows.combine_chunks().to_batches()
                run.places[value] = list(range(written, written + len(batches)))
                written += len(batches)
                for batch in batches:
                    writer.write_batch(batch)


def _rows_of(
    value: PartitionValues,
    readers: list[tuple[dict[PartitionValues, list[int]], pa.ipc.RecordBatchFileReader]],
    last: dict[PartitionValues, pa.Table],
) -> Iterator[pa.Table]:
    for places, reader in readers:
        for place in places.get(value, ()):
            yield pa.Table.from_batches([reader.get_batch(place)])
    if value in last:
        yield last.pop(value)
