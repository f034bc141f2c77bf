"""The object store as the protocol sees it: five verbs, and writes with three outcomes.

A write is `Applied`, `NotApplied` or `Unknown`. Unknown is an answer, not an error: the caller decides, and
until it knows it deletes nothing. There is no `exists()`: it would invite check-then-act.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NewType, Protocol

ETag = NewType("ETag", str)
"""An opaque token for one version of one object. Never computed, only taken from the store's answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object as it was read in one request: its bytes and the token of exactly those bytes."""

    body: bytes
    etag: ETag


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a listing."""

    key: str
    size_bytes: int
    etag: ETag
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The write landed; `etag` names what is there now."""

    etag: ETag


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplied:
    """The write did not land and never will.

    `exists`: create found an object. `changed`: replace found another version. `missing`: replace found nothing.
    """

    because: Literal["exists", "changed", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The write may have landed, may land later, or not at all (timeout, reset, 409, 5xx)."""

    because: str


Outcome = Applied | NotApplied | Unknown


class Store(Protocol):
    """Objects under one prefix (the lake root). Keys are relative to it, with `/` between parts.

    Reads raise `StoreUnavailable` when the store does not answer. Writes raise it only where this very request provably
    never left (no connection came up): that says nothing about an earlier try whose outcome is `Unknown`. Both raise
    `SettingsError` when the store refuses the caller, `InvalidPipeline` for a key that is not allowed.
    """

    @property
    def uri(self) -> str:
        """The prefix as `s3://bucket/prefix` or `memory://name`, without a slash at its end."""
        ...

    def get(self, key: str) -> Stored | None:
        """Read one whole object; None where there is none."""
        ...

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Write an object where none is (If-None-Match: *), in one request and one attempt; a path is streamed.

        The file of a large path may go in parts, which become the object in one request and one attempt.

        Safe to repeat: with the same bytes under a key that nobody else writes, `exists` after `Unknown` means that
        an earlier try landed.
        """
        ...

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Replace the version `expected` (If-Match), in one request and one attempt.

        Safe to repeat with the same bytes and the same `expected`: once it answers `changed`, the token has moved for
        good and no delayed copy of this request can land.
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, in key order."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; absent ones are no error. Only gc calls this: writers delete nothing."""
        ...
