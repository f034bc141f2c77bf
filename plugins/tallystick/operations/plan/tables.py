"""The tables of a plan's swap: what the declaration makes of the root's tables, and what a job writes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tallystick.errors import SchemaChanged
from tallystick.format.columns import TableColumn
from tallystick.format.plan import PlannedTable
from tallystick.format.root import Root, RootTable
from tallystick.pipeline import Column, Pipeline
from tallystick.protocol import evolution

log = logging.getLogger(__name__)


def evolved_tables(
    root: Root, pipeline: Pipeline, *, new_uuid: Callable[[], str]
) -> dict[str, RootTable]:
    """Return the root's tables with the columns, partitioning and upkeep that the pipeline declares, and its new tables.

    Raises SchemaChanged if a table cannot follow its declaration.
    """
    tables = dict(root.tables)
    for name in pipeline.written_columns():
        known = tables.get(name)
        found = evolved_table(known, pipeline, name)
        for change in found.changes:
            log.info("table %s: %s", name, change)
        for left in found.left:
            log.warning(
                "table %s: column %r is in the lake and not declared: it is null in new rows; dropped=[%r] removes it; "
                "renamed_from=%r gives it another name",
                name,
                left,
                left,
                left,
            )
        tables[name] = RootTable(
            uuid=known.uuid if known else new_uuid(),
            metadata=known.metadata if known else None,
            columns=found.columns,
            partition_by=pipeline.partition_by(name),
            dropped=found.dropped,
            former_names=found.former_names,
            partition_fields=found.partition_fields,
            upkeep=pipeline.upkeep_of(name),
        )
    return tables


def evolved_table(known: RootTable | None, pipeline: Pipeline, name: str) -> evolution.EvolvedTable:
    """Return what the declaration makes of one table, `known` as in the root; raises SchemaChanged."""
    declared = evolution.DeclaredTable(
        columns=tuple(map(_declared, pipeline.written_columns()[name])),
        partition_by=pipeline.partition_by(name),
        dropped=pipeline.dropped(name),
        upkeep=pipeline.upkeep_of(name),
    )
    found = evolution.evolve(known, declared)
    if isinstance(found, evolution.TableRefused):
        raise SchemaChanged(f"table {name}: {found.problem}.", hint=found.hint)
    return found


def _declared(column: Column) -> evolution.DeclaredColumn:
    return evolution.DeclaredColumn(
        name=column.name,
        type=column.type,
        required=column.required,
        renamed_from=column.renamed_from,
        fields=tuple(map(_declared, column.fields)),
    )


def planned_tables(tables: Mapping[str, RootTable], pipeline: Pipeline) -> tuple[PlannedTable, ...]:
    """Return the tables as a plan contains them: the declared columns, with the ids of the root."""
    planned: list[PlannedTable] = []
    for name, columns in pipeline.written_columns().items():
        table = tables[name]
        planned.append(
            PlannedTable(
                name=name,
                uuid=table.uuid,
                columns=_with_ids(columns, table.columns),
                partition_by=table.partition_by,
                file_size_bytes=table.upkeep.file_size_bytes,
                compression=table.upkeep.compression,
                parquet_version=table.upkeep.parquet_version,
            )
        )
    return tuple(planned)


def _with_ids(
    declared: Sequence[Column], columns: Sequence[TableColumn]
) -> tuple[TableColumn, ...]:
    """Return the table's columns that are declared, in the table's order, with their declared parts alone."""
    by_name = {c.name: c for c in declared}
    return tuple(
        replace(c, fields=_with_ids(by_name[c.name].fields, c.fields))
        for c in columns
        if c.name in by_name
    )
