"""The columns of a topic that follows its schemas: those of all versions, merged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tallystick.engine.decode.avro.columns import avro_columns
from tallystick.engine.decode.protobuf.columns import protobuf_columns
from tallystick.errors import InvalidPipeline
from tallystick.format.columns import TableColumn
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Column
from tallystick.pipeline.merging import merged_columns

log = logging.getLogger(__name__)
_KINDS = {"AVRO": avro_columns, "PROTOBUF": protobuf_columns}


def followed_columns(
    schemas: Iterable[FrozenSchema], table: Sequence[TableColumn] = ()
) -> tuple[Column, ...]:
    """Return the columns that the records of all schemas fit, merged in the order of their ids; none if there is none.

    `table`: the columns that the table has. They stay, also if no schema has them any more, and they stay as wide. A
    schema that is not valid, or that has another type for a column than the table or the ones before it, is left out: its
    records do not fit the columns (`misfits`).
    """
    read = [(schema, own) for schema in schemas if (own := _columns_of(schema))]
    if not read:
        return ()
    found = tuple(_of_table(column, [own for _, own in read]) for column in table)
    for schema, own in read:
        merged = own if not found else merged_columns(found, own)
        if merged is None:
            log.warning(
                "schema %d (%s version %d) has another type for a column than the versions before it",
                schema.id,
                schema.subject,
                schema.version,
            )
            continue
        found = merged
    return found


def _columns_of(schema: FrozenSchema) -> tuple[Column, ...]:
    try:
        return _KINDS[schema.kind](schema) if schema.kind in _KINDS else ()
    except InvalidPipeline as error:
        log.warning("schema %d of %s: %s", schema.id, schema.subject, error.message)
        return ()


def _of_table(column: TableColumn, schemas: Sequence[Sequence[Column]]) -> Column:
    """Return a table's column, which is read from the field of the first schema that has the column."""
    same = [c for own in schemas for c in own if c.name.lower() == column.name.lower()]
    return Column(
        column.name,
        column.type,
        column.required,
        source=same[0].source if same else None,
        fields=[_of_table(part, [c.fields for c in same]) for part in column.fields],
    )
