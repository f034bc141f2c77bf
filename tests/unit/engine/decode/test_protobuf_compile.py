"""Compiling .proto files: self-contained descriptors, and protoc's messages in errors."""

from __future__ import annotations

import pytest

from tallystick.engine.decode.protobuf import compile as compiler
from tallystick.engine.decode.protobuf.compile import compiled_descriptors
from tallystick.engine.decode.protobuf.descriptors import message_type
from tallystick.errors import InvalidPipeline

ORDER = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "shop/v1/item.proto";
message Order { google.protobuf.Timestamp at = 1; repeated Item items = 2; }
"""
ITEM = 'syntax = "proto3"; package shop.v1; message Item { string sku = 1; }'
FILES = {"shop/v1/order.proto": ORDER, "shop/v1/item.proto": ITEM}


def test_the_descriptors_contain_all_imports_and_are_the_same_each_time() -> None:
    found = compiled_descriptors(FILES, "shop/v1/order.proto")
    message = message_type(found, "shop.v1.Order")
    assert [field.name for field in message.fields] == ["at", "items"]
    assert message.fields_by_name["items"].message_type.full_name == "shop.v1.Item"
    assert compiled_descriptors(dict(reversed(FILES.items())), "shop/v1/order.proto") == found


@pytest.mark.parametrize(
    ("files", "root", "message"),
    [
        ({}, "a.proto", "file 'a.proto': expected one of no files"),
        (FILES, "order.proto", "expected one of shop/v1/item.proto, shop/v1/order.proto"),
        ({"a.proto": ORDER}, "a.proto", r"found: shop/v1/item\.proto: File not found"),
        (
            {"a.proto": "syntax = 'proto3'; message A { int32 a = 0; }"},
            "a.proto",
            r"a\.proto:1:42: ",
        ),
        ({"a.proto": "message {"}, "a.proto", r"found: a\.proto:1:9: Expected message name"),
        ({"../a.proto": ITEM}, "../a.proto", "expected a relative path"),
        ({"/a.proto": ITEM}, "/a.proto", "expected a relative path"),
        ({"b/./a.proto": ITEM}, "b/./a.proto", "expected a relative path"),
        ({"": ITEM}, "", "expected a relative path"),
    ],
)
def test_files_that_do_not_compile_are_refused(
    files: dict[str, str], root: str, message: str
) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        compiled_descriptors(files, root)


@pytest.mark.parametrize("name", ["-I.proto", "@a.proto", "--help"])
def test_a_file_name_is_no_option_of_protoc(name: str) -> None:
    found = compiled_descriptors({name: ITEM}, name)
    assert message_type(found, "shop.v1.Item").full_name == "shop.v1.Item"


def test_an_installation_without_protoc_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_spec", lambda _: None)
    with pytest.raises(InvalidPipeline, match="grpcio-tools") as found:
        compiled_descriptors(FILES, "shop/v1/order.proto")
    assert "tallystick[protobuf]" in found.value.hint
