"""Reports a store that does not answer: a command names it on standard error after seconds, and ends after a minute.

This is for a person or a script that calls `tally`. Tasks wait longer, and for more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import count
from pathlib import Path

from tallystick.cli.errors import note
from tallystick.errors import InvalidRequest
from tallystick.store import ETag, Listed, Outcome, Store, Stored

TIMEOUT_ENV = "TALLYSTICK_TIMEOUT"
TIMEOUT_S = 60.0
NOTICE_S = 5.0
LIMIT_S: ContextVar[float] = ContextVar("limit_s", default=TIMEOUT_S)


def seconds(text: str) -> float:
    """Return the seconds that a command waits for one answer of the store; raises InvalidRequest if not 1 to 86400."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1 <= found <= 86_400:
        raise InvalidRequest(
            f"the time limit (--timeout, {TIMEOUT_ENV}): expected 1 to 86400 seconds, found {text!r}.",
            hint="set seconds, from 1 to 86400; without it the limit is 60.",
        )
    return found


class WatchedStore:
    """A wrapper of a store that names a call on standard error if it takes long. It changes nothing else."""

    def __init__(self, store: Store, *, notice_s: float) -> None:
        self._store = store
        self._notice_s = notice_s
        self._numbers = count()
        self._lock = threading.Lock()
        # The calls in progress, by number: the start, and the description, which is None after the call was named.
        self._calls: dict[int, tuple[float, str | None]] = {}
        self._watching = False

    def __repr__(self) -> str:
        return repr(self._store)

    @property
    def uri(self) -> str:
        """The URI of the wrapped store."""
        return self._store.uri

    def get(self, key: str) -> Stored | None:
        """Read an object from the wrapped store."""
        with self._watched(f"reading {key}"):
            return self._store.get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Create an object in the wrapped store. Safe to repeat: its `create` is."""
        with self._watched(f"writing {key}"):
            return self._store.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Replace an object in the wrapped store. Safe to repeat: its `replace` is."""
        with self._watched(f"writing {key}"):
            return self._store.replace(key, body, expected=expected)

    def list(self, prefix: str) -> Iterator[Listed]:
        """List the wrapped store."""
        found = iter(self._store.list(prefix))
        while True:
            with self._watched(f"listing {prefix or 'all objects'}"):
                listed = next(found, None)
            if listed is None:
                return
            yield listed

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects from the wrapped store. Safe to repeat: its `delete` is."""
        with self._watched("deleting objects"):
            self._store.delete(keys)

    @contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        number = next(self._numbers)
        with self._lock:
            self._calls[number] = (time.monotonic(), what)
            if not self._watching:
                self._watching = True
                # The context of this thread determines if notes are shown.
                threading.Thread(
                    target=copy_context().run, args=(self._watch,), daemon=True
                ).start()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def _watch(self) -> None:
        """Name each call once if it takes long. End when no call is in progress."""
        while True:
            time.sleep(self._notice_s / 4)
            with self._lock:
                if not self._calls:
                    self._watching = False
                    return
                now = time.monotonic()
                late = {
                    number: (since, what)
                    for number, (since, what) in self._calls.items()
                    if what is not None and now - since >= self._notice_s
                }
                self._calls.update({number: (since, None) for number, (since, _) in late.items()})
            for _, what in late.values():
                note(f"still waiting for {self._store!r}: {what}.")
