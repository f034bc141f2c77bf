"""Values in the wire format of a schema registry (a zero byte, the id of the schema, the content), also broken ones.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

UNKNOWN_ID = 2_000_000_000
_HEAD_BYTES = 5


def packed(value: bytes) -> str:
    """Return bytes as a `Record` has them."""
    return base64.b64encode(value).decode()


def unknown_id(value: bytes) -> bytes:
    """Return the value with an id that the registry does not have."""
    return value[:1] + UNKNOWN_ID.to_bytes(4, "big") + value[_HEAD_BYTES:]


def truncated(value: bytes) -> bytes:
    """Return the value without its last byte."""
    return value[:-1]


def not_framed(value: bytes) -> bytes:
    """Return the content alone, after a byte that is not zero."""
    return b"{" + value[_HEAD_BYTES:]


def unknown_message(value: bytes) -> bytes:
    """Return the content of a Protobuf value, after the position of a message that no schema has."""
    # [99] as the zigzag varints of Confluent: how many positions there are, then each of them.
    return value[:_HEAD_BYTES] + b"\x02\xc6\x01" + value[_HEAD_BYTES + 1 :]


BREAKS: Mapping[str, Callable[[bytes], bytes]] = {
    "schema_id": unknown_id,
    "truncated": truncated,
    "magic": not_framed,
}
"""What breaks a value, by the kind of its dead letter."""
