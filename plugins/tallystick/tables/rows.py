"""Reads the rows of a committed plan for an output, one data file in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tallystick.errors import Corrupt
from tallystick.format.report import FileReport
from tallystick.store import Store


class StoredRows:
    """The rows that an attempt staged for one table, file by file in the order of its report, which never changes."""

    def __init__(self, store: Store, files: Sequence[FileReport]) -> None:
        self._store, self._files = store, files

    def __len__(self) -> int:
        return sum(f.rows for f in self._files)

    def batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows from row number `start` on. Raises Corrupt if a file is gone or unreadable."""
        for file in self._files:
            if start >= file.rows:
                start -= file.rows
                continue
            found = self._store.get(file.key)
            if found is None:
                raise Corrupt(
                    f"{self._store.uri}/{file.key} does not exist, and an output needs its rows.",
                    hint="restore it from a bucket version; the record of sent rows remains.",
                )
            try:
                for batch in pq.ParquetFile(pa.BufferReader(found.body)).iter_batches():
                    if start < len(batch):
                        yield batch.slice(start)
                    start = max(0, start - len(batch))
            except (pa.ArrowException, OSError) as error:
                raise Corrupt(
                    f"{self._store.uri}/{file.key} cannot be read as Parquet: {str(error).splitlines()[0]}.",
                    hint="restore it from a bucket version; the record of sent rows remains.",
                ) from error
