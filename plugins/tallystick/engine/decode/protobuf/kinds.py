"""The kinds of Protobuf's fields: how each is encoded, what the kernel stores of it, and the array that it becomes."""

from __future__ import annotations

import pyarrow as pa

# The wire types of the encoding (protobuf.dev/programming-guides/encoding).
VARINT, FIXED64, LEN, GROUP, END_GROUP, FIXED32 = range(6)
# What is stored of a value: its 64 bits, a conversion of them, or where its bytes are. A message has only its fields.
BITS, INT32, UINT32, SINT32, SINT64, BOOL, CLOSED_ENUM, SPAN, MESSAGE = range(9)
# The array that a node becomes. An ENTRY is one of a map. A CHOICE is the number of the member that a oneof has,
# and becomes no array.
NUMBER, BOOLEAN, TEXT, BINARY, ENUM, STRUCT, TIMESTAMP, WRAPPER, LIST, MAP, ENTRY, CHOICE = range(
    12
)

_NESTED_TYPE = pa.null()
_KINDS: tuple[tuple[int, int, int, pa.DataType], ...] = (
    (FIXED64, BITS, NUMBER, pa.float64()),  # TYPE_DOUBLE = 1 of FieldDescriptorProto.Type
    (FIXED32, UINT32, NUMBER, pa.float32()),
    (VARINT, BITS, NUMBER, pa.int64()),
    (VARINT, BITS, NUMBER, pa.uint64()),
    (VARINT, INT32, NUMBER, pa.int32()),
    (FIXED64, BITS, NUMBER, pa.uint64()),  # TYPE_FIXED64
    (FIXED32, UINT32, NUMBER, pa.uint32()),
    (VARINT, BOOL, BOOLEAN, pa.bool_()),
    (LEN, SPAN, TEXT, pa.string()),
    (GROUP, MESSAGE, STRUCT, _NESTED_TYPE),
    (LEN, MESSAGE, STRUCT, _NESTED_TYPE),
    (LEN, SPAN, BINARY, pa.binary()),
    (VARINT, UINT32, NUMBER, pa.uint32()),
    (VARINT, INT32, ENUM, pa.string()),
    (FIXED32, INT32, NUMBER, pa.int32()),  # TYPE_SFIXED32
    (FIXED64, BITS, NUMBER, pa.int64()),
    (VARINT, SINT32, NUMBER, pa.int32()),
    (VARINT, SINT64, NUMBER, pa.int64()),
)


def kind_of(number: int) -> tuple[int, int, int, pa.DataType]:
    """Return (wire type, what is stored, array, Arrow type) of a type by its number in FieldDescriptorProto.Type.

    The Arrow type of a message depends on its fields.
    """
    return _KINDS[number - 1]
