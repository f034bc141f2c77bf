"""Finds a message in a serialized FileDescriptorSet. The only module that imports the Protobuf runtime.

The runtime resolves names, editions and their features; it decodes no record.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tallystick.errors import InvalidPipeline, listed

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

# The runtime has no types: a Descriptor, FieldDescriptor and EnumDescriptor of google.protobuf.descriptor.
MessageType = Any
FieldType = Any
EnumType = Any


def message_type(descriptors: bytes, message: str) -> MessageType:
    """Return the descriptor of the message with the full name `message`, in a pool of its own.

    `descriptors`: a serialized FileDescriptorSet with all files that it imports. Raises InvalidPipeline if it cannot be
    read, if a file is missing, or if it has no such message.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(descriptors).file
    except DecodeError as error:
        raise InvalidPipeline(
            f"descriptors: expected a serialized FileDescriptorSet, found {len(descriptors)} bytes of another kind.",
            hint="compile the .proto files with --descriptor_set_out and --include_imports.",
        ) from error
    pool = DescriptorPool()
    for file in _imports_first(list(files)):
        try:
            pool.Add(file)
        except TypeError as error:
            raise InvalidPipeline(
                f"descriptors: file {file.name!r}: expected valid definitions, found: {error}.",
                hint="compile the .proto files again, with --include_imports.",
            ) from error
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError as error:
        raise InvalidPipeline(
            f"message {message!r}: expected a message of the descriptors, one of {_some(_messages(files))}.",
            hint="use the full name, with its package: `shop.v1.Order`.",
        ) from error


def own_descriptors() -> bytes:
    """Return the FileDescriptorSet of google/protobuf/struct.proto, which is part of the runtime."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.struct_pb2 import DESCRIPTOR

    found = FileDescriptorSet()
    DESCRIPTOR.CopyToProto(found.file.add())
    content: bytes = found.SerializeToString()
    return content


def _imports_first(files: list[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files in an order in which each follows those that it imports."""
    by_name = {file.name: file for file in files}
    order: dict[str, FileDescriptorProto] = {}
    entered: set[str] = set()
    for file in files:
        waiting = [file]
        while waiting:
            top = waiting[-1]
            entered.add(top.name)
            missing = [n for n in top.dependency if n not in by_name]
            if missing:
                raise InvalidPipeline(
                    f"descriptors: file {top.name!r}: expected the imported file {missing[0]!r}, found {_some(by_name)}.",
                    hint="compile the .proto files with --include_imports.",
                )
            inner = [n for n in top.dependency if n not in order and n not in entered]
            if inner:
                waiting.append(by_name[inner[0]])
            else:
                order[top.name] = waiting.pop()
    return list(order.values())


def _messages(files: list[FileDescriptorProto]) -> list[str]:
    """Return the full names of all messages, except those of Protobuf's own files."""
    found: list[str] = []
    for file in files:
        if file.name.startswith("google/protobuf/"):
            continue
        prefix = f"{file.package}." if file.package else ""
        waiting = [(prefix, m) for m in file.message_type]
        while waiting:
            above, one = waiting.pop()
            if not one.options.map_entry:
                found.append(f"{above}{one.name}")
                waiting += [(f"{above}{one.name}.", m) for m in one.nested_type]
    return sorted(found)


def _some(names: Iterable[str]) -> str:
    """Return the first names of many, sorted."""
    known = sorted(names)
    return listed(known[:10]) + (f" and {len(known) - 10} others" if len(known) > 10 else "")


def message_at(descriptors: bytes, indexes: Sequence[int]) -> str | None:
    """Return the full name of the message at a position in the last file of the descriptors; None if there is none.

    `indexes`: the number of the outermost message in the file, of the one inside of it, and so on.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file = FileDescriptorSet.FromString(descriptors).file[-1]
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def file_descriptor(text: str) -> FileDescriptorProto | None:
    """Return the FileDescriptorProto that a text is in base64; None for any other text, such as that of a .proto file.

    Confluent's serializer for Python registers schemas in this form. Some registries return them unchanged.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (ValueError, DecodeError):
        return None
    return found if found.name and (found.message_type or found.enum_type) else None


def descriptor_set(root: FileDescriptorProto, others: Mapping[str, FileDescriptorProto]) -> bytes:
    """Return the serialized FileDescriptorSet of `root`, the last one, and of all files that it imports.

    `others`: the files by the path that imports name; those of google/protobuf are known. Raises InvalidPipeline if one
    is missing.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files: dict[str, FileDescriptorProto] = {}

    def add(file: FileDescriptorProto, path: str) -> None:
        if path in files:
            return
        files[path] = file
        for name in file.dependency:
            add(others[name] if name in others else _known_file(name), name)

    add(root, root.name)
    del files[root.name]
    ordered = [*files.values(), root]
    for path, file in files.items():
        file.name = path
    content: bytes = FileDescriptorSet(file=ordered).SerializeToString()
    return content


def _known_file(path: str) -> FileDescriptorProto:
    """Return a file of google/protobuf, which is part of the runtime."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import Default

    name = path.removeprefix("google/protobuf/").removesuffix(".proto")
    if f"google/protobuf/{name}.proto" == path and name.isidentifier():
        with suppress(ImportError):
            importlib.import_module(f"google.protobuf.{name}_pb2")
    try:
        known = Default().FindFileByName(path)
    except KeyError as error:
        raise InvalidPipeline(
            f"descriptors: expected the file {path!r}, which another one imports, found none.",
            hint="register it as a reference of the schema.",
        ) from error
    found = FileDescriptorProto()
    known.CopyToProto(found)
    return found
