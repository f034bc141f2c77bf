"""Races for one object, with a count that detects lost and doubled writes.

Every writer increments a counter that is stored per writer. If an acknowledged increment is lost later, or if one counts
twice, the numbers differ, regardless of which writer wins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier

from tallystick.store import Applied, NotApplied, Outcome, Store, Unknown
from tallystick.store.open import open_store

_BARRIER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """The results of one writer: acknowledged increments, lost swaps, and responses that it did not get."""

    writer: str
    acked: int
    lost: int
    unknown: int


class LostUpdateError(AssertionError):
    """An error that means that the counter differs from the acknowledged increments."""


def start_counter(store: Store, key: str) -> None:
    """Create a counter at zero. Safe to repeat: no; the key must be new."""
    outcome = store.create(key, json.dumps({"by": {}, "id": "start"}).encode())
    assert isinstance(outcome, Applied), outcome


def read_counter(store: Store, key: str) -> dict[str, int]:
    """Return the number of increments of each writer in the counter."""
    found = store.get(key)
    assert found is not None
    by: dict[str, int] = json.loads(found.body)["by"]
    return by


def increment(store: Store, key: str, *, writer: str, times: int) -> Increments:
    """Increment the counter `times` times by compare-and-swap, as the protocol swaps roots.

    Raises LostUpdateError as soon as an acknowledged increment is missing. Safe to repeat: no; each call increments
    again, so each needs a `writer` of its own.
    """
    acked, lost, unknown = 0, 0, 0
    while acked < times:
        found = store.get(key)
        assert found is not None
        counter = json.loads(found.body)
        mine = counter["by"].get(writer, 0)
        if mine != acked:
            raise LostUpdateError(
                f"{writer} had {acked} acknowledged, and the counter holds {mine}"
            )
        counter["by"][writer] = mine + 1
        # The id is fresh, so that no body and no ETag ever repeats.
        counter["id"] = f"{writer}-{acked}-{lost}-{unknown}"
        body = json.dumps(counter).encode()
        outcome, doubts = _until_certain(partial(store.replace, key, body, expected=found.etag))
        unknown += doubts
        if isinstance(outcome, Applied) or (
            doubts and read_counter(store, key).get(writer, 0) == acked + 1
        ):
            acked += 1
        else:
            lost += 1
    return Increments(writer=writer, acked=acked, lost=lost, unknown=unknown)


def increment_in_process(uri: str, key: str, writer: str, times: int) -> Increments:
    """Call `increment` in a process pool, with a store of its own, because clients must not be shared across a fork.

    Safe to repeat: no, as `increment`.
    """
    return increment(open_store(uri), key, writer=writer, times=times)


def create_race(store: Store, key: str, *, writers: int) -> Sequence[Outcome]:
    """Create one object from several threads at once, each with the body `writer <n>`; return the outcomes by writer.

    Safe to repeat: with another key.
    """
    start = Barrier(writers, timeout=_BARRIER_S)

    def create(writer: int) -> Outcome:
        body = f"writer {writer}".encode()
        start.wait()
        return _until_certain(partial(store.create, key, body))[0]

    with ThreadPoolExecutor(writers) as pool:
        return [*pool.map(create, range(writers))]


def _until_certain(send: Callable[[], Outcome]) -> tuple[Applied | NotApplied, int]:
    """Send the same request until its outcome is known; return it and the number of unknown outcomes before it."""
    for doubts in range(1000):
        outcome = send()
        if not isinstance(outcome, Unknown):
            return outcome, doubts
    raise AssertionError("the outcome stayed unknown for 1000 tries")
