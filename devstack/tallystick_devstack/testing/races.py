"""Races for one object, and the count that shows whether each success was real and none was lost.

Every writer adds its ones to a counter that also says how many each writer has added. An acknowledged one that later
disappears, or one that counts twice, shows in the numbers whoever wins.
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
    """What one writer saw: its acknowledged ones, the swaps it lost, and the replies it never got."""

    writer: str
    acked: int
    lost: int
    unknown: int


class LostUpdate(AssertionError):
    """The counter does not hold what was acknowledged."""


def start_counter(store: Store, key: str) -> None:
    """Write a counter at zero. Safe to repeat: no; the key must be new."""
    outcome = store.create(key, json.dumps({"by": {}, "id": "start"}).encode())
    assert isinstance(outcome, Applied), outcome


def read_counter(store: Store, key: str) -> dict[str, int]:
    """How many ones of each writer the counter holds."""
    found = store.get(key)
    assert found is not None
    by: dict[str, int] = json.loads(found.body)["by"]
    return by


def increment(store: Store, key: str, *, writer: str, times: int) -> Increments:
    """Add `times` ones by compare-and-swap, as the protocol swaps roots; raises LostUpdate as soon as one is missing.

    Safe to repeat: no; each call adds anew, so each needs a `writer` of its own.
    """
    acked, lost, unknown = 0, 0, 0
    while acked < times:
        found = store.get(key)
        assert found is not None
        counter = json.loads(found.body)
        mine = counter["by"].get(writer, 0)
        if mine != acked:
            raise LostUpdate(f"{writer} had {acked} acknowledged, and the counter holds {mine}")
        counter["by"][writer] = mine + 1
        # A fresh id, so that no body and no ETag ever repeats.
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
    """`increment` for a process pool: opens its own store, as clients must not cross a fork.

    Safe to repeat: no, as `increment`.
    """
    return increment(open_store(uri), key, writer=writer, times=times)


def create_race(store: Store, key: str, *, writers: int) -> Sequence[Outcome]:
    """Let threads create one object at once, each with the body `writer <n>`; return their outcomes in that order.

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
    """Send the same request until the answer is no longer unknown; return it and how many times it was."""
    for doubts in range(1000):
        outcome = send()
        if not isinstance(outcome, Unknown):
            return outcome, doubts
    raise AssertionError("the outcome stayed unknown for 1000 tries")
