"""Writes immutable objects: under a given key until the outcome is certain, or under a fresh key per try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tallystick.errors import StoreUnavailable
from tallystick.runtime import Runtime
from tallystick.store import Applied, ETag, NotApplied, Store, Unknown
from tallystick.store.tries import UNKNOWN_S, WriteTries

TRIES_MAX = 6
# Longer than between swaps: an upload has few tries, and a store that throttles needs seconds.
FRESH_PAUSE_S = 0.2


def create_once(
    store: Store, key: str, body: bytes, *, runtime: Runtime, unknown_s: float = UNKNOWN_S
) -> bool:
    """Create an object; return True if it contains `body` now, False if it contains other bytes, which are not changed.

    Safe to repeat: `exists` may mean that an earlier try landed and its response was lost, so the bytes are compared.
    Raises OutcomeUnknown if no outcome is certain after `unknown_s` seconds, StoreUnavailable if the first try was never
    sent.
    """
    tries = WriteTries(runtime, f"{store.uri}/{key}", unknown_s=unknown_s)
    while True:
        match tries.send(lambda: store.create(key, body)):
            case Applied():
                return True
            case NotApplied():
                found = store.get(key)
                if found is not None:
                    return found.body == body
                # C13: an earlier try landed, and gc has deleted the object since. The swap that would name it gets a 412.
                # A store that returns this again and again is unreliable, so the tries are limited.
                tries.wait_or_raise(
                    "the store answered that the object exists, but a read found none"
                )
            case Unknown(because=why):
                tries.wait_or_raise(why)


def create_fresh(
    store: Store, key_of: Callable[[str], str], body: bytes | Path, *, runtime: Runtime, what: str
) -> tuple[str, ETag]:
    """Create an object under `key_of(uuid)` with a fresh uuid per try; return its key and ETag.

    Safe to repeat: nothing refers to a key before the caller does, so a try with an unknown outcome is left for gc (C4).
    Raises StoreUnavailable if no try is known to have landed; `what` is for its message.
    """
    why = ""
    for tries in range(TRIES_MAX):
        key = key_of(runtime.uuid())
        outcome = store.create(key, body)
        if isinstance(outcome, Applied):
            return key, outcome.etag
        why = outcome.because
        if isinstance(outcome, Unknown):
            runtime.sleep(FRESH_PAUSE_S * 2**tries * runtime.chance())
    raise StoreUnavailable(
        f"{what} did not succeed in {TRIES_MAX} tries ({why}).",
        hint="check that the store answers (AWS_ENDPOINT_URL_S3, network, credentials); then try again.",
    )
