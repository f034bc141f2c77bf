"""Whether the schemas of a registry fit the columns of a format, without any record."""

from __future__ import annotations

from tallystick.engine.decode.avro.rows import avro_content
from tallystick.engine.decode.debezium.rows import debezium_misfit
from tallystick.engine.decode.decoder import Reason
from tallystick.engine.decode.json.rows import json_misfit
from tallystick.engine.decode.protobuf.rows import protobuf_misfit
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Format
from tallystick.pipeline.debezium import DEBEZIUM
from tallystick.pipeline.formats import JSON
from tallystick.pipeline.schema_formats import AVRO


def misfit(declared: Format, schema: FrozenSchema) -> Reason | None:
    """Return why the records of a schema cannot be read into the columns of a format with a registry, else None."""
    if declared.name == JSON:
        return json_misfit(schema)
    if declared.name == DEBEZIUM:
        return debezium_misfit(declared, schema)
    if declared.name == AVRO:
        found = avro_content(declared.columns, schema)
        return found if isinstance(found, Reason) else None
    return protobuf_misfit(declared, schema)
