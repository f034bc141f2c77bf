"""Writes shared files in this process, one after the other: for lakes whose small files one machine can rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tallystick.engine.rewriting import write_shared_file
from tallystick.format import keys
from tallystick.format.compaction import SharedFile
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.compact.choosing import ChosenCompaction, TableFile
from tallystick.operations.compact.orders import listed_files, orders_of
from tallystick.tables.reading import RowsByFile


class LocalWriter:
    """The writer of shared files of one `compact` call. `scratch`: the folder for the file that is being written."""

    def __init__(self, lake: Lake, *, scratch: Path | None = None) -> None:
        self._lake, self._scratch = lake, scratch
        self._rows: dict[str, RowsByFile] = {}

    def files(self, name: str, table: RootTable) -> Iterator[TableFile]:
        """Yield the files that the table lists, from its manifests."""
        yield from listed_files(self._lake, name, table)

    def write(
        self, chosen: ChosenCompaction, compaction: keys.CompactionId
    ) -> Iterator[SharedFile]:
        """Yield one shared file per group. Safe to repeat: every file has a fresh key."""
        rows = self._rows_of(chosen)
        store, runtime = self._lake.store, self._lake.runtime
        for order in orders_of(chosen, compaction, rows.columns):
            yield write_shared_file(store, runtime, order, rows.read, scratch=self._scratch)

    def _rows_of(self, chosen: ChosenCompaction) -> RowsByFile:
        metadata = chosen.state.metadata
        assert metadata is not None  # a table without metadata has no files to choose
        if metadata not in self._rows:
            self._rows[metadata] = RowsByFile(self._lake.store, metadata)
        return self._rows[metadata]
