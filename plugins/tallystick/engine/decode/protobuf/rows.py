"""Decodes batches of Protobuf values into the declared columns: plain values of one message, or Confluent's wire format.

In the wire format, the position of the value's message in its file follows the schema id: the number of indexes and the
indexes, from the outermost message inwards, as zigzag varints; one zero byte means the first message.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.engine.decode.bound import Bound, UnboundError
from tallystick.engine.decode.decoder import Decoded, Decoder, Reason
from tallystick.engine.decode.groups import (
    BatchParts,
    ContentDecoder,
    FramedDecoder,
    PlainDecoder,
)
from tallystick.engine.decode.halves import in_halves
from tallystick.engine.decode.json.scan import Array
from tallystick.engine.decode.protobuf.compile import check_protoc, compiled_descriptors
from tallystick.engine.decode.protobuf.descriptors import (
    descriptor_set,
    file_descriptor,
    message_at,
    message_type,
)
from tallystick.engine.decode.protobuf.reader import ProtobufReader
from tallystick.engine.decode.source import wanted
from tallystick.errors import InvalidPipeline
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Column, Format
from tallystick.pipeline.schema_formats import Protobuf
from tallystick.tables.schema import arrow_schema

log = logging.getLogger(__name__)
ROOT_FILE = "schema.proto"
# The deepest position of a message in its file.
INDEXES_MAX = 64
Indexes = tuple[int, ...]


def protobuf_decoder(declared: Format, registries: Sequence[PlannedRegistry]) -> Decoder:
    """Return the decoder of a `protobuf` format.

    Raises InvalidPipeline for options that it does not have, for a schema that is not valid, and if the columns do not
    fit the message of a format without a registry.
    """
    protobuf = Protobuf.of(declared)
    columns = tuple(declared.columns)
    if protobuf.registry is not None:
        schemas = PlannedRegistry.schemas_of(registries, protobuf.registry)
        return FramedDecoder(declared, schemas, lambda s: protobuf_content(columns, s))
    assert isinstance(protobuf.schema, str)
    assert protobuf.message is not None
    descriptors = compiled(protobuf.schema)
    try:
        return PlainDecoder(declared, MessageContent(columns, descriptors, protobuf.message))
    except UnboundError as error:
        raise InvalidPipeline(
            f"Protobuf message {protobuf.message}: {error.reason}.",
            hint="correct the column's type or source, or the schema.",
        ) from error


@cache
def compiled(text: str) -> bytes:
    """Return the compiled descriptors of one .proto text; raises InvalidPipeline."""
    return compiled_descriptors({ROOT_FILE: text}, ROOT_FILE)


def compiled_schema(schema: FrozenSchema) -> str:
    """Return the compiled descriptors of a registered schema, in base64; nothing if protoc does not compile it.

    Raises InvalidPipeline if protoc is not installed.
    """
    check_protoc()
    protos = {reference.name: reference.text for reference in schema.references}
    try:
        if (root := file_descriptor(schema.text)) is not None:
            others = {name: file_of(name, text) for name, text in protos.items()}
            found = descriptor_set(root, others)
            message_type(found, message_at(found, (0,)) or "")  # raises if the files do not fit
        else:
            found = compiled_descriptors({**protos, ROOT_FILE: schema.text}, ROOT_FILE)
    except InvalidPipeline as error:
        # One invalid version does not stop the others: its records are dead letters.
        log.warning(
            "schema %d (%s version %d): %s", schema.id, schema.subject, schema.version, error
        )
        return ""
    return base64.b64encode(found).decode()


def file_of(name: str, text: str) -> Any:
    """Return the descriptor of a file that a compiled schema imports; raises InvalidPipeline if it is not compiled."""
    found = file_descriptor(text)
    if found is None:
        raise InvalidPipeline(
            f"descriptors: expected the file {name!r} in base64, as the schema that imports it, found text.",
            hint="register both in the same form.",
        )
    return found


def protobuf_content(columns: Sequence[Column], schema: FrozenSchema) -> ContentDecoder | Reason:
    """Return the decoder of a registered schema's values, or the reason why they cannot be read into the columns."""
    if schema.kind != "PROTOBUF":
        detail = f"expected a Protobuf schema, found {schema.kind} as schema {schema.id}"
        return Reason(kind="schema", detail=detail)
    if not schema.compiled:
        detail = f"schema {schema.id} ({schema.subject} version {schema.version}) is not valid"
        return Reason(kind="schema", detail=detail)
    return _IndexedContent(columns, schema)


def protobuf_misfit(declared: Format, schema: FrozenSchema) -> Reason | None:
    """Return why no message of a registered schema can be read into the columns; None if one can."""
    content = protobuf_content(declared.columns, schema)
    if isinstance(content, Reason):
        return content
    assert isinstance(content, _IndexedContent)
    return content.misfit()


class MessageContent:
    """A decoder of the values of one message.

    Raises InvalidPipeline if the descriptors do not have it, and UnboundError if the columns do not fit it.
    """

    def __init__(self, columns: Sequence[Column], descriptors: bytes, message: str) -> None:
        self._reader = ProtobufReader(descriptors, message, wanted(columns))
        self._bound = Bound(columns, self._reader.schema)

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its content."""
        content = without_prefix(values, np.full(len(values), prefix)) if prefix else values
        return in_halves(
            content, lambda part: self._bound.decoded(self._reader.read(part)), self._bound.empty
        )


class _IndexedContent:
    """A decoder of the values of one registered schema, each with the indexes of its message."""

    def __init__(self, columns: Sequence[Column], schema: FrozenSchema) -> None:
        self._columns = columns
        self._schema = schema
        self._descriptors = base64.b64decode(schema.compiled)
        self._messages: dict[Indexes, MessageContent | Reason] = {}

    def decode(self, values: pa.BinaryArray, *, prefix: int) -> Decoded:
        """Decode values without null; `prefix` is the number of bytes of each value before its indexes."""
        others, ends = _indexes(values, prefix)
        content = self._message((0,))
        if not others and not isinstance(content, Reason):
            return content.decode(without_prefix(values, ends), prefix=0)
        groups: dict[Indexes | None, list[int]] = {(0,): []}
        for row, indexes in others.items():
            groups.setdefault(indexes, []).append(row)
        groups[(0,)] += np.delete(np.arange(len(values)), list(others)).tolist()
        parts = BatchParts(len(values), arrow_schema(self._columns))
        for found, members in groups.items():
            rows = np.array(sorted(members), np.int64)
            content = self._message(found)
            if isinstance(content, Reason):
                parts.refuse(rows, content)
            elif len(rows):
                taken = without_prefix(values.take(pa.array(rows)), ends[rows])
                parts.add(rows, content.decode(taken, prefix=0))
        return parts.joined()

    def misfit(self) -> Reason | None:
        """Return why the first message cannot be read into the columns; None if it can."""
        found = self._message((0,))
        return found if isinstance(found, Reason) else None

    def _message(self, indexes: Indexes | None) -> MessageContent | Reason:
        if indexes is None:
            return Reason(
                kind="message", detail="expected the indexes of a message, found other bytes"
            )
        if indexes in self._messages:
            return self._messages[indexes]
        found = self._opened(indexes)
        # A value can have any indexes, so those of no message are not kept.
        if not isinstance(found, Reason) or found.kind == "schema":
            self._messages[indexes] = found
        return found

    def _opened(self, indexes: Indexes) -> MessageContent | Reason:
        schema = self._schema
        named = f"schema {schema.id} ({schema.subject} version {schema.version})"
        name = message_at(self._descriptors, indexes)
        if name is None:
            detail = f"{named} has no message at {list(indexes)}"
            return Reason(kind="message", detail=detail)
        try:
            return MessageContent(self._columns, self._descriptors, name)
        except UnboundError as error:
            detail = f"{named}, message {name}: {error.reason.detail}"
            return Reason(kind="schema", field=error.reason.field, detail=detail)


def without_prefix(values: pa.BinaryArray, sizes: Array) -> pa.BinaryArray:
    """Return values without their first bytes, `sizes` of each."""
    _, offsets, content = values.buffers()
    if not len(values):
        return values
    starts = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
    text = np.frombuffer(content, np.uint8) if content else np.empty(0, np.uint8)
    first, last = int(starts[0]), int(starts[-1])
    keep = np.ones(last - first, np.bool_)
    begins = starts[:-1].astype(np.int64) - first
    for byte in range(int(sizes.max())):
        places = begins[sizes > byte] + byte
        keep[places] = False
    kept = text[first:last][keep]
    ends = np.concatenate([[0], np.cumsum(np.diff(starts) - sizes)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(kept)]
    )


def _indexes(values: pa.BinaryArray, prefix: int) -> tuple[dict[int, Indexes | None], Array]:
    """Return the indexes of the values that are not of the first message, and the bytes before each value's content.

    The indexes are None if a value has none.
    """
    _, offsets, content = values.buffers()
    ends = np.full(len(values), prefix + 1, np.int64)
    if offsets is None or not len(values):
        return {}, ends
    starts = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
    text = np.frombuffer(content, np.uint8) if content else np.empty(0, np.uint8)
    large = np.diff(starts) > prefix
    first = np.ones(len(values), np.uint8)
    first[large] = text[starts[:-1][large] + prefix]
    found: dict[int, Indexes | None] = {}
    for row in np.flatnonzero(first).tolist():
        found[row], ends[row] = _parsed(values[row].as_py(), prefix)
    return found, ends


def _parsed(value: bytes, at: int) -> tuple[Indexes | None, int]:
    begin, numbers = at, list[int]()
    count = 1
    while len(numbers) < count + 1:
        number, shift = 0, 0
        while True:
            if at >= len(value) or shift > 28:
                return None, begin
            number |= (value[at] & 127) << shift
            shift += 7
            at += 1
            if value[at - 1] < 128:
                break
        number = number >> 1 ^ -(number & 1)
        if number < 0 or (not numbers and not 0 < number <= INDEXES_MAX):
            return None, begin
        numbers.append(number)
        count = numbers[0]
    return tuple(numbers[1:]), at
