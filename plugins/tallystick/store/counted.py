"""Counts the requests to a store by verb and outcome, for the metrics of a task."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from tallystick.store import Applied, ETag, Listed, NotApplied, Outcome, Store, Stored, Unknown

Verb = Literal["get", "create", "replace", "list", "delete"]
Ending = Literal["applied", "not_applied", "unknown", "found", "missing", "error"]


class RequestCounts:
    """The requests of several threads by verb and outcome, and the swaps of one object that did not certainly land.

    `swap_key`: the key of that object, the root of a lake.
    """

    def __init__(self, *, swap_key: str) -> None:
        self._swap_key = swap_key
        self._lock = threading.Lock()
        self._requests: Counter[tuple[Verb, Ending]] = Counter()
        self._swap_retries = 0

    @property
    def requests(self) -> Mapping[tuple[Verb, Ending], int]:
        """The number of requests by verb and outcome, as a copy."""
        with self._lock:
            return dict(self._requests)

    @property
    def swap_retries(self) -> int:
        """The number of swaps whose outcome was not `applied`: each is followed by another try, or by an error."""
        return self._swap_retries

    def add(self, verb: Verb, ending: Ending, key: str | None = None) -> None:
        """Count one request."""
        is_retry = verb == "replace" and key == self._swap_key and ending != "applied"
        with self._lock:
            self._requests[verb, ending] += 1
            self._swap_retries += is_retry


class CountedStore:
    """A wrapper of a store that counts its requests. It changes nothing.

    A request is one call of the store: the tries that boto3 makes, the pages of a listing and the batches of a delete are
    not counted separately.
    """

    def __init__(self, store: Store, counts: RequestCounts) -> None:
        self._store = store
        self._counts = counts

    def __repr__(self) -> str:
        return repr(self._store)

    @property
    def uri(self) -> str:
        """The URI of the wrapped store."""
        return self._store.uri

    def get(self, key: str) -> Stored | None:
        """Read an object from the wrapped store."""
        ending: Ending = "error"
        try:
            found = self._store.get(key)
            ending = "missing" if found is None else "found"
            return found
        finally:
            self._counts.add("get", ending)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create an object in the wrapped store. Safe to repeat: its `create` is."""
        ending: Ending = "error"
        try:
            outcome = self._store.create(key, body)
            ending = _ending(outcome)
            return outcome
        finally:
            self._counts.add("create", ending)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Replace an object in the wrapped store. Safe to repeat: its `replace` is."""
        ending: Ending = "error"
        try:
            outcome = self._store.replace(key, body, expected=expected)
            ending = _ending(outcome)
            return outcome
        finally:
            self._counts.add("replace", ending, key)

    def list(self, prefix: str) -> Iterator[Listed]:
        """List the wrapped store. The listing is counted when the caller has read as much of it as it needs."""
        ending: Ending = "missing"
        try:
            for listed in self._store.list(prefix):
                ending = "found"
                yield listed
        except Exception:
            ending = "error"
            raise
        finally:
            self._counts.add("list", ending)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects from the wrapped store. Safe to repeat: its `delete` is."""
        ending: Ending = "error"
        try:
            self._store.delete(keys)
            ending = "applied"
        finally:
            self._counts.add("delete", ending)


def _ending(outcome: Outcome) -> Ending:
    match outcome:
        case Applied():
            return "applied"
        case NotApplied():
            return "not_applied"
        case Unknown():
            return "unknown"
