"""A store in the memory of this process: linearizable, thread-safe, and the reference for the contract tests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Stored
from tallystick.store.address import check_key, check_list_prefix, parse_memory_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredBytes:
    body: bytes
    etag: ETag
    modified: datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryStore:
    """Objects in a dictionary under one lock, so that each call takes effect at one moment.

    By default no ETag ever repeats. With `content_etags=True` an ETag is the hash of the body, as for plain objects in
    S3. If the same body is written again, its ETag then returns, and a stale `replace` succeeds (ABA). For this reason
    every body that a swap writes contains a fresh id. `now` returns the modification time of a written object.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        content_etags: bool = False,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._uri = f"memory://{parse_memory_uri(f'memory://{name}')}"
        self._content_etags = content_etags
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[str, _StoredBytes] = {}
        self._writes = 0

    def __repr__(self) -> str:
        return f"MemoryStore({self._uri})"

    @property
    def uri(self) -> str:
        return self._uri

    def get(self, key: str) -> Stored | None:
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
        return None if found is None else Stored(body=found.body, etag=found.etag)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Implement `Store.create`. Safe to repeat: the second try finds the object of the first and returns `exists`."""
        check_key(key)
        content = body.read_bytes() if isinstance(body, Path) else bytes(body)
        with self._lock:
            if key in self._objects:
                return NotApplied(because="exists")
            return Applied(etag=self._put(key, content))

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Implement `Store.replace`. Safe to repeat: the second try finds another ETag and returns `changed`."""
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
            if found is None:
                return NotApplied(because="missing")
            if found.etag != expected:
                return NotApplied(because="changed")
            return Applied(etag=self._put(key, bytes(body)))

    def list(self, prefix: str) -> Iterator[Listed]:
        check_list_prefix(prefix)
        with self._lock:
            found = [(key, at) for key, at in self._objects.items() if key.startswith(prefix)]
        # Code point order is the order of the UTF-8 bytes, which is S3's.
        found.sort(key=lambda pair: pair[0])
        return iter(
            [
                Listed(key=key, size_bytes=len(at.body), etag=at.etag, modified=at.modified)
                for key, at in found
            ]
        )

    def delete(self, keys: Iterable[str]) -> None:
        """Implement `Store.delete`. Safe to repeat: an absent object is no error."""
        for key in [check_key(key) for key in keys]:
            with self._lock:
                self._objects.pop(key, None)

    def _put(self, key: str, body: bytes) -> ETag:
        self._writes += 1
        token = (
            hashlib.md5(body, usedforsecurity=False).hexdigest()
            if self._content_etags
            else f"{self._writes:x}"
        )
        etag = ETag(f'"{token}"')
        self._objects[key] = _StoredBytes(body=body, etag=etag, modified=self._now())
        return etag
