"""The decision on a pipeline's tables: whether the columns and partitioning that it declares fit those of the lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.errors import SchemaChanged, listed
from tallystick.format.columns import DeclaredColumn, allocate
from tallystick.format.root import RootTable
from tallystick.pipeline import Pipeline


def planned_tables(
    known_tables: Mapping[str, RootTable], pipeline: Pipeline, new_uuid: Callable[[], str]
) -> dict[str, RootTable]:
    """Return the tables of a lake after a plan of the pipeline; raises SchemaChanged if they do not fit."""
    tables = dict(known_tables)
    for name in pipeline.written_columns():
        tables[name] = planned_table(known_tables.get(name), pipeline, name, new_uuid)
    return tables


def planned_table(
    known: RootTable | None, pipeline: Pipeline, name: str, new_uuid: Callable[[], str]
) -> RootTable:
    """Return one table after a plan of the pipeline; raises SchemaChanged if it does not fit. `known`: as in the lake."""
    rules = pipeline.partition_by(name)
    declared = [
        DeclaredColumn(name=c.name, type=c.type, required=c.required)
        for c in pipeline.written_columns()[name]
    ]
    if known is not None and known.partition_by != rules:
        raise SchemaChanged(
            f"table {name}: expected partitioning by {listed(known.partition_by)} as in the lake, found "
            f"{listed(rules)} in the pipeline.",
            hint="declare the old partitioning, or write to a table of another name.",
        )
    try:
        ids = allocate(
            known.columns if known else (),
            declared,
            has_rows=known is not None and known.metadata is not None,
        )
    except ValueError as error:
        raise SchemaChanged(
            f"table {name}: {error}.",
            hint="never change a column's type; add a column as required=False, or under another name.",
        ) from error
    return RootTable(
        uuid=known.uuid if known else new_uuid(),
        metadata=known.metadata if known else None,
        columns=ids,
        partition_by=rules,
    )
