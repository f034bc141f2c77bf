"""Protobuf from outside this project: Google's own .proto files, each as the message that protoc makes of it.

google.protobuf.FileDescriptorSet is nested, recursive, and has enums, presence, lists in lists and extensions. The files
are those of the package googleapis-common-protos. The rows are compared with google.protobuf, value by value.
"""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import google
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tallystick.engine.decode.followed import followed_columns
from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.engine.decode.protobuf.rows import MessageContent
from tallystick.format.schemas import FrozenSchema, schema_digest
from tallystick.pipeline import Column, Protobuf

SCHEMA = "google/protobuf/descriptor.proto"
OWN = files("grpc_tools") / "_proto" / SCHEMA


@cache
def descriptors() -> bytes:
    """Return the compiled schema of the records: how a .proto file is described."""
    return compiled_descriptors({SCHEMA: OWN.read_text()}, SCHEMA)


@cache
def real_files() -> tuple[FileDescriptorProto, ...]:
    """Return all .proto files of the package, with those that they import, as protoc describes them."""
    (folder,) = [path for path in map(Path, google.__path__) if (path / "rpc").is_dir()]
    protos = {
        str(path.relative_to(folder.parent)): path.read_text() for path in folder.rglob("*.proto")
    }
    root = 'syntax = "proto3";\n' + "".join(f'import "{name}";\n' for name in sorted(protos))
    found = FileDescriptorSet.FromString(
        compiled_descriptors({**protos, "all.proto": root}, "all.proto")
    )
    return tuple(found.file)


def rows(columns: tuple[Column, ...], message: str, values: list[bytes]) -> list[dict[str, Any]]:
    decoded = MessageContent(columns, descriptors(), f"google.protobuf.{message}").decode(
        pa.array(values, pa.binary()), prefix=0
    )
    assert not decoded.reasons
    found: list[dict[str, Any]] = decoded.rows.to_pylist(maps_as_pydicts="strict")
    return found


def part(column: Column, message: Any) -> Any:
    """Return what a column has of a message, as Protobuf's own runtime reads it."""
    name = str(column.path[0])
    known = message.DESCRIPTOR.fields_by_name[name]
    if known.is_repeated:
        return [_value(column.fields[0], known, value) for value in getattr(message, name)]
    if not column.required and not message.HasField(name):
        return None
    return _value(column, known, getattr(message, name))


def _value(column: Column, known: Any, value: Any) -> Any:
    if known.enum_type is not None:
        return known.enum_type.values_by_number[value].name
    if known.message_type is None:
        return value
    return {field.name: part(field, value) for field in column.fields}


def depth(column: Column) -> int:
    return 1 + max(map(depth, column.fields), default=0)


def test_each_file_of_google_is_read_as_its_runtime_reads_it() -> None:
    text = OWN.read_text()
    schema = FrozenSchema(
        id=1,
        subject="files-value",
        version=1,
        kind="PROTOBUF",
        text=text,
        references=(),
        sha256=schema_digest("PROTOBUF", text, ()),
        compiled=base64.b64encode(descriptors()).decode(),
    )
    columns = followed_columns(Protobuf(registry="default", schema="follow"), [schema]).columns
    assert [column.name for column in columns] == ["file"]
    assert depth(columns[0]) > 8
    records = [FileDescriptorSet(file=[one]) for one in real_files()]
    assert len(records) > 50
    found = rows(columns, "FileDescriptorSet", [one.SerializeToString() for one in records])
    assert found == [{column.name: part(column, one) for column in columns} for one in records]


def test_paths_into_the_files_are_read_as_its_runtime_reads_them() -> None:
    declared = (
        Column("name", "string"),
        Column("java_package", "string", required=False, source="options.java_package"),
        Column("first", "string", required=False, source="message_type[0].name"),
        Column("dependency", "list<string>"),
    )
    found = rows(declared, "FileDescriptorProto", [f.SerializeToString() for f in real_files()])
    assert found == [
        {
            "name": file.name,
            "java_package": file.options.java_package or None,
            "first": file.message_type[0].name if file.message_type else None,
            "dependency": list(file.dependency),
        }
        for file in real_files()
    ]
