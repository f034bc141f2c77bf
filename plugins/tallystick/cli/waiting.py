"""A store that does not answer: a command names it on standard error after some seconds, and ends after a minute.

Tasks wait longer, and for more: this is for a person or a script that asks.
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
    """Return how long a command waits for one answer of the store; raises InvalidRequest if it is no such time."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1 <= found <= 86_400:
        raise InvalidRequest(
            f"the time limit (--timeout, {TIMEOUT_ENV}) is {text!r}.",
            hint="give seconds, from 1 to 86400; without it the limit is 60.",
        )
    return found


class WatchedStore:
    """A store whose calls are named on standard error once they take long; it is otherwise the store that it has."""

    def __init__(self, store: Store, *, notice_s: float) -> None:
        self._store = store
        self._notice_s = notice_s
        self._numbers = count()
        self._lock = threading.Lock()
        # What is under way, by number: since when, and what it is until it was named.
        self._calls: dict[int, tuple[float, str | None]] = {}
        self._watching = False

    def __repr__(self) -> str:
        return repr(self._store)

    @property
    def uri(self) -> str:
        """The store's own."""
        return self._store.uri

    def get(self, key: str) -> Stored | None:
        """As the store does."""
        with self._watched(f"reading {key}"):
            return self._store.get(key)

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """As the store does. Safe to repeat: as the store's."""
        with self._watched(f"writing {key}"):
            return self._store.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """As the store does. Safe to repeat: as the store's."""
        with self._watched(f"writing {key}"):
            return self._store.replace(key, body, expected=expected)

    def list(self, prefix: str) -> Iterator[Listed]:
        """As the store does."""
        found = iter(self._store.list(prefix))
        while True:
            with self._watched(f"listing {prefix or 'all objects'}"):
                listed = next(found, None)
            if listed is None:
                return
            yield listed

    def delete(self, keys: Iterable[str]) -> None:
        """As the store does. Safe to repeat: as the store's."""
        with self._watched("deleting objects"):
            self._store.delete(keys)

    @contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        number = next(self._numbers)
        with self._lock:
            self._calls[number] = (time.monotonic(), what)
            if not self._watching:
                self._watching = True
                # Whether notes are shown is in this thread's context.
                threading.Thread(
                    target=copy_context().run, args=(self._watch,), daemon=True
                ).start()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def _watch(self) -> None:
        """Name each call once that takes long; end when a while has passed without any."""
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
