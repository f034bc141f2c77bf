"""Writes shared files in this process, one after the other: for lakes whose small files one machine can rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tallystick.engine.rewriting import RunSource, SharedFileOrder, write_shared_file
from tallystick.format import keys
from tallystick.format.compaction import SharedFile
from tallystick.format.plan import PlannedTable
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.compact.choosing import ChosenCompaction, TableFile
from tallystick.operations.compact.groups import FileGroup
from tallystick.tables.reading import RowsByFile, current_spec, live_files


class LocalWriter:
    """The writer of shared files of one `compact` call. `scratch`: the folder for the file that is being written."""

    def __init__(self, lake: Lake, *, scratch: Path | None = None) -> None:
        self._lake, self._scratch = lake, scratch
        self._rows: dict[str, RowsByFile] = {}

    def files(self, name: str, table: RootTable) -> Iterator[TableFile]:
        """Yield the files that the table lists, from its manifests."""
        if table.metadata is None:
            return
        store = self._lake.store
        spec = current_spec(store, table.metadata, table.partition_by, table.columns, name)
        for file in live_files(store, table.metadata):
            yield TableFile(
                key=file.key,
                size_bytes=file.size_bytes,
                rows=file.rows,
                partition=file.partition,
                is_current=file.spec_id == spec,
            )

    def write(
        self, table: ChosenCompaction, compaction: keys.CompactionId, groups: Sequence[FileGroup]
    ) -> Iterator[SharedFile]:
        """Yield one shared file per group. Safe to repeat: every file has a fresh key."""
        rows = self._rows_of(table)
        planned = PlannedTable(
            name=table.table,
            uuid=table.state.uuid,
            # The metadata may have a column as optional that the root has as required: files lack it.
            columns=rows.columns,
            partition_by=table.state.partition_by,
        )
        for number, group in enumerate(groups):
            order = SharedFileOrder(
                table=planned,
                compaction=compaction,
                number=number,
                partition=group.partition,
                sources=tuple(RunSource(run=f.run, key=f.key, first=f.first) for f in group.files),
            )
            yield write_shared_file(
                self._lake.store, self._lake.runtime, order, rows.read, scratch=self._scratch
            )

    def _rows_of(self, table: ChosenCompaction) -> RowsByFile:
        metadata = table.state.metadata
        assert metadata is not None  # a table without metadata has no files to choose
        if metadata not in self._rows:
            self._rows[metadata] = RowsByFile(self._lake.store, metadata)
        return self._rows[metadata]
