"""Decodes batches of Avro values into the declared columns: plain values of one schema, or Confluent's wire format."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tallystick.engine.decode.avro.reader import AvroReader
from tallystick.engine.decode.bound import Bound, UnboundError
from tallystick.engine.decode.decoder import Decoded, Decoder, Reason
from tallystick.engine.decode.groups import ContentDecoder, FramedDecoder, PlainDecoder
from tallystick.engine.decode.halves import in_halves
from tallystick.engine.decode.source import wanted
from tallystick.errors import InvalidPipeline
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Column, Format
from tallystick.pipeline.schema_formats import Avro


def avro_decoder(declared: Format, registries: Sequence[PlannedRegistry]) -> Decoder:
    """Return the decoder of an `avro` format.

    Raises InvalidPipeline for options that it does not have, for a schema that is not valid, and if the columns do not
    fit the schema of a format without a registry.
    """
    avro = Avro.of(declared)
    if avro.registry is not None:
        schemas = PlannedRegistry.schemas_of(registries, avro.registry)
        return FramedDecoder(declared, schemas, lambda s: avro_content(declared.columns, s))
    assert isinstance(avro.schema, str)
    try:
        return PlainDecoder(declared, AvroContent(declared.columns, avro.schema))
    except UnboundError as error:
        raise InvalidPipeline(
            f"Avro schema: {error.reason}.",
            hint="correct the column's type or source, or the schema.",
        ) from error


def avro_content(columns: Sequence[Column], schema: FrozenSchema) -> ContentDecoder | Reason:
    """Return the decoder of a registered schema's values, or the reason why they cannot be read into the columns."""
    if schema.kind != "AVRO":
        detail = f"expected an Avro schema, found {schema.kind} as schema {schema.id}"
        return Reason(kind="schema", detail=detail)
    try:
        return AvroContent(columns, schema.text, [r.text for r in schema.references])
    except UnboundError as error:
        reason = error.reason
        detail = f"schema {schema.id} ({schema.subject} version {schema.version}): {reason.detail}"
        return Reason(kind="schema", field=reason.field, detail=detail)
    except InvalidPipeline as error:
        return Reason(kind="schema", detail=f"schema {schema.id}: {error.message}")


class AvroContent:
    """A decoder of the values of one schema.

    Raises InvalidPipeline if the schema is not valid, and UnboundError if the columns do not fit it.
    """

    def __init__(
        self, columns: Sequence[Column], text: str, references: Sequence[str] = ()
    ) -> None:
        self._reader = AvroReader(text, wanted(columns), references)
        self._bound = Bound(columns, self._reader.schema)

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        return in_halves(
            values,
            lambda part: self._bound.decoded(self._reader.read(part, prefix=prefix)),
            self._bound.empty,
        )
