"""The columns of a topic that follows its schemas: those of all versions, merged."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tallystick.engine.decode.avro.columns import avro_columns
from tallystick.engine.decode.protobuf.columns import protobuf_columns
from tallystick.errors import InvalidPipeline
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Column
from tallystick.pipeline.merging import merged_columns

log = logging.getLogger(__name__)
_KINDS = {"AVRO": avro_columns, "PROTOBUF": protobuf_columns}


def followed_columns(schemas: Iterable[FrozenSchema]) -> tuple[Column, ...]:
    """Return the columns that the records of all schemas fit, merged in the order of their ids; none if there is none.

    A schema that is not valid, or that has another type for a column than the ones before it, is left out: its records do
    not fit the columns (`misfits`).
    """
    found: tuple[Column, ...] = ()
    for schema in schemas:
        try:
            own = _KINDS[schema.kind](schema) if schema.kind in _KINDS else ()
        except InvalidPipeline as error:
            log.warning("schema %d of %s: %s", schema.id, schema.subject, error.message)
            continue
        if not own:
            continue
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
