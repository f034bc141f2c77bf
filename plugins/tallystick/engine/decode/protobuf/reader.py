"""Reads batches of serialized Protobuf messages into Arrow arrays of Protobuf's own types."""

from __future__ import annotations

import pyarrow as pa

from tallystick.engine.decode.json.parsed import VALUE_BYTES_MAX
from tallystick.engine.decode.protobuf.arrays import MessageArrays
from tallystick.engine.decode.protobuf.descriptors import message_type, own_descriptors
from tallystick.engine.decode.protobuf.parse import parse
from tallystick.engine.decode.protobuf.program import program_of
from tallystick.engine.decode.protobuf.tree import MessageTree
from tallystick.engine.decode.source import SourceRows, Wanted


class ProtobufReader:
    """A reader of one message type. `schema` is the Arrow type of its rows, with the fields that are read."""

    def __init__(self, descriptors: bytes, message: str, fields: Wanted) -> None:
        """Find the fields; raises InvalidPipeline if the descriptors do not have the message.

        `descriptors`: a serialized FileDescriptorSet with all imports. `message`: the full name, `shop.v1.Order`.
        Fields that the message does not have are not in `schema`.
        """
        self._tree = MessageTree(message_type(descriptors, message), fields)
        self._program = program_of(self._tree)
        self.schema: pa.StructType = self._tree.root.type

    def read(self, values: pa.BinaryArray) -> SourceRows:
        """Read one message per value; `values` has no null. Invalid values raise no error.

        Raises ManySlotsError if the values together have too many elements: then each half is to be read by itself.
        """
        text, offsets, slots = parse(self._program, values, bytes_max=VALUE_BYTES_MAX)
        return MessageArrays(self._tree, text, offsets, slots).rows()


def warm() -> None:
    """Compile all kernels, so that no task waits for it. Safe to repeat: the code is cached."""
    fields = Wanted()
    fields.field("fields").elements().field("string_value").whole = True
    reader = ProtobufReader(own_descriptors(), "google.protobuf.Struct", fields)
    # A map with one entry, of the key `a` and the text `b`.
    reader.read(pa.array([b"\x0a\x08\x0a\x01a\x12\x03\x1a\x01b"], pa.binary()))
