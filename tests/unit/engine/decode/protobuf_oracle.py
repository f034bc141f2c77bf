"""The values of a Protobuf message as its own runtime reads them, and random bytes that are messages or nearly so.

The runtime refuses text that is not UTF-8 while it parses, also if a later value replaces it. To compare which records
are refused, it reads with descriptors that switch this check off (`unchecked_text`), and the texts are checked later.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FeatureSet, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.engine.decode.protobuf.descriptors import message_type
from tallystick.engine.decode.source import Wanted

PROTOS = Path(__file__).parent / "protos"
WRAPPERS = tuple(
    f"google.protobuf.{k}Value"
    for k in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
TIMESTAMP = "google.protobuf.Timestamp"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_S, END_S = -62_135_596_800, 253_402_300_800
EDGES = (0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2, 300)


def compiled(root: str) -> bytes:
    """Return the descriptors of one of the files in `protos`."""
    found: bytes = compiled_descriptors(
        {str(p.relative_to(PROTOS)): p.read_text() for p in PROTOS.rglob("*.proto")}, root
    )
    return found


def _all_messages(files: FileDescriptorSet) -> list[Any]:
    found = [m for file in files.file for m in file.message_type]
    for one in found:
        found += one.nested_type
    return found


def without(descriptors: bytes, *fields: str) -> bytes:
    """Return the descriptors without some fields, each named as `Message.field`."""
    files = FileDescriptorSet.FromString(descriptors)
    left = set(fields)
    for message in _all_messages(files):
        for field in list(message.field):
            if f"{message.name}.{field.name}" in left:
                message.field.remove(field)
                left.remove(f"{message.name}.{field.name}")
    assert not left, left
    return bytes(files.SerializeToString())


def unchecked_text(descriptors: bytes) -> bytes:
    """Return the descriptors of the same messages, but the runtime does not check the text in them while it parses."""
    files = FileDescriptorSet.FromString(descriptors)
    for file in files.file:
        if file.syntax == "proto3":
            file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
            file.options.features.field_presence = FeatureSet.IMPLICIT
        if file.syntax == "editions":
            file.options.features.utf8_validation = FeatureSet.NONE
    for message in _all_messages(files):
        for field in message.field:
            if field.proto3_optional:
                field.options.features.field_presence = FeatureSet.EXPLICIT
                # The oneofs of optional fields follow all others.
                del message.oneof_decl[-1]
                field.ClearField("oneof_index")
                field.ClearField("proto3_optional")
    return bytes(files.SerializeToString())


def runtime_class(descriptors: bytes, message: str) -> Any:
    """Return the runtime's class of a message."""
    return GetMessageClass(message_type(descriptors, message))


def everything(message: Descriptor, depth: int) -> Wanted:
    """Return a Wanted of all fields of a message, down to `depth` messages inside of each other."""
    found = Wanted()
    for field in message.fields:
        kind = field.message_type
        is_map = kind is not None and kind.GetOptions().map_entry
        if is_map:
            kind = kind.fields_by_name["value"].message_type
        part = Wanted()
        if kind is None or kind.full_name in (*WRAPPERS, TIMESTAMP):
            part.whole = True
        elif depth:
            part.add(everything(kind, depth - 1))
        else:
            continue
        place = found.field(field.name)
        (place.elements() if field.is_repeated else place).add(part)
    return found


# ---------------------------------------------------------------- what the runtime reads


class Oracle:
    """The rows of a message's values, with the kinds of all problems in it.

    `has_left_out`: the runtime left out an entry of a map because the entry has an unknown field. Other runtimes (C++,
    Java, Go) keep it, and so does the reader.
    """

    def __init__(self, types: Descriptor, fields: Wanted) -> None:
        self._types = types
        self._fields = fields
        self.problems: set[str] = set()
        self.has_left_out = False

    def row(self, message: Any) -> dict[str, Any]:
        """Return one message, of a class of `unchecked_text`, as Arrow returns it."""
        self.problems, self.has_left_out = set(), False
        return self._message(message, self._types, self._fields)

    def _message(self, message: Any, types: Descriptor, fields: Wanted) -> dict[str, Any]:
        return {
            field.name: self._field(message, field, fields.fields[field.name])
            for field in types.fields
            if field.name in fields.fields
        }

    def _field(self, message: Any, field: FieldDescriptor, read: Wanted) -> Any:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
            self._find_left_out(message, message.DESCRIPTOR.fields_by_name[field.name])
            try:
                return {
                    self._value(k, key, read): self._value(v, value, read.entry)
                    for k, v in getattr(message, field.name).items()
                }
            except UnicodeDecodeError:
                # The runtime returns no entry of a map of which one key is not UTF-8.
                self.problems |= {"utf8", "enum", "range", "inexact", "missing"}
                return {}
        if field.is_repeated:
            assert read.inside is not None
            return [self._value(v, field, read.inside) for v in getattr(message, field.name)]
        if field.has_presence and not message.HasField(field.name):
            if field.is_required:
                self.problems.add("missing")
                return None
            if not field.has_default_value or field.containing_oneof is not None:
                return None
        return self._value(getattr(message, field.name), field, read)

    def _find_left_out(self, message: Any, field: FieldDescriptor) -> None:
        enum = field.message_type.fields_by_name["value"].enum_type
        # An unknown value of a closed enum is the reason that all runtimes have to leave an entry out.
        allowed = {(2, 0)} if enum is not None and enum.is_closed else set()
        for one in UnknownFieldSet(message):
            if one.field_number == field.number and one.wire_type == 2:
                entry = GetMessageClass(field.message_type).FromString(one.data)
                unknown = {(part.field_number, part.wire_type) for part in UnknownFieldSet(entry)}
                self.has_left_out |= not unknown <= allowed

    def _value(self, value: Any, field: FieldDescriptor, read: Wanted) -> Any:
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            if known is None:
                self.problems.add("enum")
                return None
            return known.name
        if field.type == FieldDescriptor.TYPE_STRING:
            # The runtime returns text as bytes if it is not UTF-8.
            if isinstance(value, bytes):
                self.problems.add("utf8")
            return value
        kind = field.message_type
        if kind is None:
            return value
        if kind.full_name in WRAPPERS:
            return self._value(value.value, kind.fields_by_name["value"], read)
        if kind.full_name == TIMESTAMP:
            return self._moment(value.seconds, value.nanos)
        return self._message(value, kind, read)

    def _moment(self, seconds: int, nanos: int) -> datetime | None:
        if not FIRST_S <= seconds < END_S or not 0 <= nanos < 10**9:
            self.problems.add("range")
        elif nanos % 1000:
            self.problems.add("inexact")
        else:
            return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
        return None


# ---------------------------------------------------------------- bytes


def varint(number: int, *, longer: int = 0) -> bytes:
    """Return a number as a varint, with up to `longer` bytes more than necessary."""
    found = bytearray()
    number &= 2**64 - 1
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    for _ in range(min(longer, 10 - len(found))):
        found[-1] |= 128
        found.append(0)
    return bytes(found)


def tag(number: int, wire: int) -> bytes:
    """Return the tag of a field."""
    return varint(number << 3 | wire)


def chunk(number: int, content: bytes) -> bytes:
    """Return a field of bytes."""
    return tag(number, 2) + varint(len(content)) + content


def _longer(random: Random) -> int:
    return random.randrange(1, 9) if random.random() < 0.02 else 0


def random_bytes(random: Random, message: Descriptor, *, depth: int) -> bytes:
    """Return a message with some fields, in any order and repeatedly, and with unknown fields between them."""
    parts: list[bytes] = []
    for _ in range(random.choice((0, 1, 2, 3, 5, 9))):
        if random.random() < 0.05 or not message.fields:
            parts.append(_unknown(random, message))
            continue
        field = random.choice(message.fields)
        for _ in range(random.choice((1, 1, 1, 2, 20 if field.is_repeated else 2))):
            parts.append(_field_bytes(random, field, depth))
    if random.random() < 0.8:
        parts += [
            _field_bytes(random, field, depth) for field in message.fields if field.is_required
        ]
    return b"".join(parts)


def _unknown(random: Random, message: Descriptor) -> bytes:
    number = random.choice((99, 500, 3000, 2**29 - 1, *(f.number for f in message.fields)))
    wire = random.choice((0, 1, 2, 3, 5))
    head = tag(number, wire)
    if wire == 3:
        inside = _unknown(random, message) if random.random() < 0.5 else b""
        return head + inside + tag(number, 4)
    return head + _scalar(random, wire)


def _scalar(random: Random, wire: int) -> bytes:
    if wire == 0:
        return varint(random.choice((*EDGES, random.getrandbits(64))), longer=_longer(random))
    if wire == 1:
        return struct.pack("<d", random.choice((0.0, -0.0, 1.5, float("inf"), float("nan"))))
    if wire == 5:
        return random.randbytes(4)
    content = random.choice((b"", b"abc", "é€𐍈".encode(), random.randbytes(3), b"x" * 200))
    return varint(len(content), longer=0) + content


def _field_bytes(random: Random, field: FieldDescriptor, depth: int) -> bytes:
    kind = field.message_type
    types = FieldDescriptor
    if kind is not None:
        if kind.full_name == TIMESTAMP:
            content = tag(1, 0) + varint(random.choice((0, 5, FIRST_S, END_S, END_S - 1, -1)))
            content += tag(2, 0) + varint(random.choice((0, 1000, 999_999_000, 1, 10**9, -1)))
        else:
            content = random_bytes(random, kind, depth=depth - 1) if depth else b""
        if field.type == types.TYPE_GROUP:
            return tag(field.number, 3) + content + tag(field.number, 4)
        return chunk(field.number, content)
    wire = {1: 1, 6: 1, 16: 1, 2: 5, 7: 5, 15: 5, 9: 2, 12: 2}.get(field.type, 0)
    if wire == 2:
        return tag(field.number, 2) + _text(random, field)
    if field.enum_type is not None and random.random() < 0.95:
        values = [
            varint(random.choice(field.enum_type.values).number) for _ in range(random.randrange(4))
        ]
    else:
        values = [_scalar(random, wire) for _ in range(random.choice((0, 1, 2, 5)))]
    if field.is_repeated and random.random() < 0.6:
        return chunk(field.number, b"".join(values))
    return b"".join(tag(field.number, wire) + value for value in values)


def _text(random: Random, field: FieldDescriptor) -> bytes:
    if random.random() < 0.03:
        return _scalar(random, 2)
    content = random.choice((b"", b"a", b"b", "é€𐍈".encode(), b"x" * random.randrange(300)))
    return varint(len(content)) + content


def edited(random: Random, content: bytes, edits: int) -> bytes:
    """Return the bytes with some of them changed, removed or doubled."""
    found = bytearray(content)
    for _ in range(edits):
        at = random.randrange(len(found) + 1)
        what = random.randrange(5)
        if what == 0:
            found[at:at] = random.randbytes(1)
        elif what == 1:
            del found[at : at + random.randrange(1, 4)]
        elif what == 2:
            del found[at:]
        elif what == 3:
            end = min(len(found), at + random.randrange(1, 30))
            found[at:at] = found[at:end]
        elif at < len(found):
            found[at] ^= 1 << random.randrange(8)
    return bytes(found)
