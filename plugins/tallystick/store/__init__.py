"""The interface of an object store: five operations, and three outcomes of a write.

A write is `Applied`, `NotApplied` or `Unknown`. `Unknown` is a return value, not an error: the caller decides what to do,
and deletes nothing until the outcome is certain. There is no `exists()`, because code that checks before it writes has a
race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NewType, Protocol

ETag = NewType("ETag", str)
"""An opaque token for one version of one object. It is never computed, only taken from the store's responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object, read in one request: its bytes and the ETag of exactly those bytes."""

    body: bytes
    etag: ETag


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One object of a listing."""

    key: str
    size_bytes: int
    etag: ETag
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The write landed. `etag` is the ETag of the object that it wrote."""

    etag: ETag


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplied:
    """The write did not land and never will.

    `exists`: create found an object. `changed`: replace found another version. `missing`: replace found no object.
    """

    because: Literal["exists", "changed", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The write may have landed, may land later, or may never land (timeout, reset, 409, 5xx)."""

    because: str


Outcome = Applied | NotApplied | Unknown


class Store(Protocol):
    """Objects under one prefix (the lake URI). Keys are relative to it, with `/` between parts.

    Reads raise `StoreUnavailable` if the store does not respond. Writes raise it only if this request was provably never
    sent (no connection was made); an earlier try with the outcome `Unknown` may still land. Both raise `SettingsError` if
    the store refuses the caller, `InvalidPipeline` if a key is not allowed.
    """

    @property
    def uri(self) -> str:
        """The lake URI, `s3://bucket/prefix` or `memory://name`, without a slash at its end."""
        ...

    def get(self, key: str) -> Stored | None:
        """Read one whole object; None if there is none."""
        ...

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Write an object if there is none (If-None-Match: *), in one request and one attempt. A path is streamed.

        A large file may be uploaded in parts. One request in one attempt then makes them the object.

        Safe to repeat: if no other process writes this key, and the bytes are the same, `exists` after `Unknown` means
        that an earlier try landed.
        """
        ...

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Replace the version `expected` (If-Match), in one request and one attempt.

        Safe to repeat with the same bytes and the same `expected`: if it returns `changed`, the ETag has changed and
        never returns, so no delayed copy of this request can land.
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield every object whose key begins with `prefix`, in key order."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; an absent object is no error. Only gc calls this: writers delete nothing."""
        ...
