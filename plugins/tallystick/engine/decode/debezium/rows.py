"""Decodes batches of change events into the declared columns, in JSON or Avro, with a schema registry or without.

In JSON an event is the value itself, or the field `payload` of it: Kafka Connect's JsonConverter writes an object with
the fields `schema` and `payload` if schemas.enable is set, as it is by default. Each record can be of either form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.engine.decode.avro.rows import avro_content
from tallystick.engine.decode.avro.schema import avro_schema
from tallystick.engine.decode.debezium.columns import OP, EventColumns
from tallystick.engine.decode.debezium.events import EventContent
from tallystick.engine.decode.debezium.other import KNOWN, NO_OP, reason_of_fields, reason_of_text
from tallystick.engine.decode.decoder import Decoded, Decoder, Positions, Reason, schema_of
from tallystick.engine.decode.groups import BatchParts, ContentDecoder, FramedDecoder, PlainDecoder
from tallystick.engine.decode.json.rows import JsonContent, json_misfit
from tallystick.engine.decode.json.scan import Array
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Column, Debezium, Format, Json
from tallystick.pipeline.debezium import TOMBSTONE_OP

_WRAPPED_BEGINS = (b'{"schema"', b'{"payload"')
_ABOVE_WRAPPED = "payload."


def debezium_decoder(declared: Format, registries: Sequence[PlannedRegistry] = ()) -> Decoder:
    """Return the decoder of a `debezium` format; raises InvalidPipeline for options that it does not have.

    `registries` have the schemas of a format with a registry.
    """
    debezium = Debezium.of(declared)
    decoder: Decoder
    if debezium.registry is None:
        decoder = PlainDecoder(declared, _JsonEvents(debezium))
    else:
        schemas = PlannedRegistry.schemas_of(registries, debezium.registry)
        decoder = FramedDecoder(declared, schemas, _contents(debezium))
    return _WithTombstones(decoder, debezium.op) if debezium.tombstones == "keep" else decoder


def debezium_misfit(declared: Format, schema: FrozenSchema) -> Reason | None:
    """Return why the events of a schema cannot be read into the columns of a `debezium` format, else None.

    A schema of Debezium that is not that of change events, such as that of heartbeats, is no misfit.
    """
    found = _contents(Debezium.of(declared))(schema)
    return found if isinstance(found, Reason) and found.kind not in KNOWN else None


def _contents(debezium: Debezium) -> Callable[[FrozenSchema], ContentDecoder | Reason]:
    """Return the function that returns the decoder of a registered schema's events, or the reason why there is none."""
    if debezium.format == "avro":
        return lambda schema: _avro_events(debezium, schema)
    content = _JsonEvents(debezium)
    return lambda schema: json_misfit(schema) or content


class _JsonEvents:
    """A decoder of events in JSON."""

    def __init__(self, debezium: Debezium) -> None:
        self._bare = _json_content(debezium, "")
        self._wrapped = _json_content(debezium, _ABOVE_WRAPPED)
        self._schema = schema_of(debezium.planned(()))

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        wrapped = begins_wrapped(values, prefix)
        if wrapped.all() or not wrapped.any():
            content = self._wrapped if wrapped.any() else self._bare
            found, without = content.read(values, prefix=prefix)
            if not without.size:
                return found
        parts = BatchParts(len(values), self._schema)
        for is_wrapped, contents in (
            (False, (self._bare, self._wrapped)),
            (True, (self._wrapped, self._bare)),
        ):
            left: Positions = np.flatnonzero(wrapped == is_wrapped)
            for content in contents:
                if left.size:
                    found, without = content.read(values.take(pa.array(left)), prefix=prefix)
                    parts.add(left, found)
                    left = left[without]
            for position in left.tolist():
                reason = reason_of_text(values[position].as_py()[prefix:])
                parts.refuse(np.array([position]), reason)
        return parts.joined()


def _json_content(debezium: Debezium, above: str) -> EventContent:
    columns = EventColumns(debezium, above=above)
    first, deleted = JsonContent(Json(columns.first)), JsonContent(Json(columns.deleted))
    return EventContent(debezium, columns, first, deleted)


def begins_wrapped(values: pa.BinaryArray, prefix: int) -> Array:
    """Return which values begin as Kafka Connect writes an event together with its schema.

    It only determines which of the two forms is tried first: a value of the other one, with blanks for example, is found
    there.
    """
    _, offsets, content = values.buffers()
    found = np.zeros(len(values), np.bool_)
    if content is None or not content.size:
        return found
    text = np.frombuffer(content, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
    for begin in _WRAPPED_BEGINS:
        large = np.flatnonzero(np.diff(ends) >= prefix + len(begin))
        same = np.ones(len(large), np.bool_)
        for number, byte in enumerate(begin):
            same &= text[ends[large] + prefix + number] == byte
        found[large[same]] = True
    return found


class _AvroEvents:
    """A decoder of events of one Avro schema."""

    def __init__(self, content: EventContent, schema: pa.Schema) -> None:
        self._content = content
        self._schema = schema

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        found, without = self._content.read(values, prefix=prefix)
        if not without.size:
            return found
        parts = BatchParts(len(values), self._schema)
        parts.add(np.arange(len(values)), found)
        parts.refuse(
            without, Reason(kind=NO_OP, detail="expected an operation, found null", field=OP)
        )
        return parts.joined()


def _avro_events(debezium: Debezium, schema: FrozenSchema) -> ContentDecoder | Reason:
    columns = EventColumns(debezium)
    contents = []
    for read in (columns.first, columns.deleted):
        content = _avro_content(read, schema)
        if isinstance(content, Reason):
            return content
        contents.append(content)
    return _AvroEvents(EventContent(debezium, columns, *contents), schema_of(debezium.planned(())))


def _avro_content(columns: Sequence[Column], schema: FrozenSchema) -> ContentDecoder | Reason:
    content = avro_content(columns, schema)
    if schema.kind != "AVRO" or (isinstance(content, Reason) and content.field is None):
        return content
    found = avro_schema(schema.text, [reference.text for reference in schema.references])
    names = [name for name, _ in found.parts]
    return content if OP in names else reason_of_fields(names)


class _WithTombstones:
    """A decoder whose rows of null values have the operation `tombstone`."""

    def __init__(self, decoder: Decoder, op: str) -> None:
        self._decoder = decoder
        self._op = op

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values of a batch of records; the other columns are not read."""
        decoded = self._decoder.decode(batch)
        values = batch.column("value")
        if not values.null_count:
            return decoded
        null = values.is_null().take(pa.array(decoded.kept))
        number = decoded.rows.schema.get_field_index(self._op)
        ops = pc.if_else(null, TOMBSTONE_OP, decoded.rows.column(number))
        field = decoded.rows.schema.field(number)
        return replace(decoded, rows=decoded.rows.set_column(number, field, ops))
