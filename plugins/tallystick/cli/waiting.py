"""Reports a server that does not answer: a command names it on standard error after seconds, and ends after a minute.

This is for a person or a script that calls `tally`. Tasks wait longer, and for more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from tallystick.cli.errors import REQUESTS, note
from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import InvalidRequest, KafkaUnavailable
from tallystick.store import ETag, Listed, Outcome, Store, Stored

T = TypeVar("T")
TIMEOUT_ENV = "TALLYSTICK_TIMEOUT"
TIMEOUT_S = 60.0
NOTICE_S = 3.0
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


def notice_s() -> float:
    """Return the seconds after which a command names what it waits for."""
    # One try of a listing or of a write ends after a sixth of the limit: the notice must come earlier.
    return min(NOTICE_S, LIMIT_S.get() / 8)


class ServerCalls:
    """The calls to one server that are in progress. A call that takes long is named once on standard error."""

    def __init__(self, server: str, *, notice_s: float) -> None:
        self._server = server
        self._notice_s = notice_s
        self._numbers = count()
        self._lock = threading.Lock()
        # By number: the start, and the description, which is None after the call was named.
        self._calls: dict[int, tuple[float, str | None]] = {}
        self._watching = False

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Name the call on standard error if it takes longer than `notice_s`."""
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
                note(f"still waiting for {self._server}: {what}.")


class WatchedStore:
    """A wrapper of a store that counts requests, and names one on standard error if it takes long. It changes nothing."""

    def __init__(self, store: Store, *, notice_s: float) -> None:
        self._store = store
        endpoint = getattr(store, "endpoint_url", None)
        server = store.uri if endpoint is None else f"{store.uri} at {endpoint}"
        self.calls = ServerCalls(server, notice_s=notice_s)

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
            with self.calls.watched(f"listing {prefix or 'all objects'}"):
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
        REQUESTS.sent += 1
        with self.calls.watched(what):
            yield


def limited(settings: KafkaSettings) -> KafkaSettings:
    """Return Kafka settings whose requests end within the command's time limit."""
    limit_ms = int(LIMIT_S.get() * 1000)
    return replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, limit_ms),
        bootstrap_timeout_ms=min(settings.bootstrap_timeout_ms, limit_ms),
        empty_fetch_timeout_ms=min(settings.empty_fetch_timeout_ms, limit_ms),
    )


def kafka_calls(connection: str) -> ServerCalls:
    """Return the calls to the brokers of a connection, to be named if they take long."""
    return ServerCalls(f"Kafka (connection {connection})", notice_s=notice_s())


def kafka_within(limit_s: float, connection: str, read: Callable[[], T], *, hint: str) -> T:
    """Call `read` in a thread, and wait `limit_s` at most: name look-ups and logins have other limits.

    It must only read: after the limit, the thread goes on until its own limits end it, or until the process ends. Raises
    KafkaUnavailable after the limit, and what `read` raises.
    """
    found: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(read())
        except Exception as error:  # noqa: BLE001 - raised again below, in the waiting thread
            failed.append(error)

    thread = threading.Thread(target=run, name="tally-kafka", daemon=True)
    with kafka_calls(connection).watched("reading the topic's identity and offsets"):
        thread.start()
        thread.join(limit_s)
    if failed:
        raise failed[0]
    if not found:
        raise KafkaUnavailable(
            f"Kafka (connection {connection}) did not answer within {limit_s:g} s.", hint=hint
        )
    return found[0]
