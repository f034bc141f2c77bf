"""Turns a chosen compaction into orders of shared files, which this process or a Spark task writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.engine.rewriting import RunSource, SharedFileOrder
from tallystick.format import keys
from tallystick.format.columns import TableColumn
from tallystick.format.plan import PlannedTable
from tallystick.format.root import RootTable
from tallystick.lake import Lake
from tallystick.operations.compact.choosing import ChosenCompaction, TableFile
from tallystick.tables.reading import current_spec, live_files


def listed_files(lake: Lake, name: str, table: RootTable) -> Iterator[TableFile]:
    """Yield the files that the table lists, from its manifests. Raises Corrupt."""
    if table.metadata is None:
        return
    spec = current_spec(lake.store, table.metadata, table.partition_by, table.columns, name)
    for file in live_files(lake.store, table.metadata):
        yield TableFile(
            key=file.key,
            size_bytes=file.size_bytes,
            rows=file.rows,
            partition=file.partition,
            is_current=file.spec_id == spec,
        )


def orders_of(
    chosen: ChosenCompaction, compaction: keys.CompactionId, columns: Sequence[TableColumn]
) -> list[SharedFileOrder]:
    """Return one order per group. `columns`: those of the table's metadata, as the rows will be read.

    The metadata may have a column as optional that the root has as required, because files lack it; and it may lack a
    column that was added since the last commit, or have it under its former name.
    """
    state = chosen.state
    ids = {column.name: column.id for column in state.columns}
    names = {column.id: column.name for column in columns}
    planned = PlannedTable(
        name=chosen.table,
        uuid=state.uuid,
        columns=tuple(columns),
        partition_by=state.partition_by,
        compression=state.upkeep.compression,
        parquet_version=state.upkeep.parquet_version,
    )
    return [
        SharedFileOrder(
            table=planned,
            compaction=compaction,
            number=number,
            partition=group.partition,
            sources=tuple(
                RunSource(run=f.run, key=f.key, first=f.first, shared=f.shared) for f in group.files
            ),
            sort_by=tuple(names[ids[n]] for n in state.upkeep.sort_by if ids[n] in names),
        )
        for number, group in enumerate(chosen.groups)
    ]
