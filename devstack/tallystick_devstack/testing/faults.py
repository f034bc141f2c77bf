"""A store with injected faults, at calls that the test chooses by number (`script`) or by a seed (`seeded`).

Around a `MemoryStore`, it simulates all faults of a network and of a dying process, without a network or processes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

from tallystick.errors import StoreUnavailable
from tallystick.store import ETag, Listed, Outcome, Store, Stored, Unknown

T = TypeVar("T")
Verb = Literal["get", "create", "replace", "list", "delete"]


class Fault(StrEnum):
    """The fault of one call."""

    LOSE_REPLY = "lose_reply"  # it takes effect, and the caller gets no response
    DROP = "drop"  # it never takes effect, and the caller gets no response
    DELAY = "delay"  # the caller gets no response; it takes effect when the test releases it
    DUPLICATE = (
        "duplicate"  # sent twice, as by a proxy that retries: the caller gets the second response
    )
    ECHO = "echo"  # the usual response; a copy of the call takes effect when the test releases it
    CONFLICT = "conflict"  # 409: it has no effect, and proves nothing to the caller
    UNAVAILABLE = "unavailable"  # no connection is made
    KILL_BEFORE = "kill_before"  # the caller dies before the call
    KILL_AFTER = "kill_after"  # the caller dies after the call took effect


_ANY: frozenset[Fault] = frozenset({Fault.UNAVAILABLE, Fault.KILL_BEFORE, Fault.KILL_AFTER})
APPLICABLE: Mapping[Verb, frozenset[Fault]] = {
    "get": _ANY,
    "list": _ANY,
    "delete": _ANY | {Fault.LOSE_REPLY},
    "create": frozenset(Fault),
    "replace": frozenset(Fault),
}
"""The faults that each operation can have."""


class Killed(BaseException):
    """The simulated death of the caller's process. It is a BaseException, so that no `except Exception` catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the store. `index` counts from 0. `key` is the prefix for a listing, the first key for a deletion."""

    index: int
    verb: Verb
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A fault that took place."""

    call: Call
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWrite:
    """A conditional write in progress. Its condition is checked when it lands, not when it is sent."""

    call: Call
    body: bytes
    expected: ETag | None


Plan = Callable[[Call], Fault | None]


def no_faults(call: Call) -> Fault | None:
    """Return None: the plan without faults."""
    del call
    return None


def script(faults: Mapping[int, Fault]) -> Plan:
    """Return a plan that fails the calls with these numbers. It raises ValueError if a fault does not fit its call."""

    def plan(call: Call) -> Fault | None:
        fault = faults.get(call.index)
        if fault is not None and fault not in APPLICABLE[call.verb]:
            raise ValueError(
                f"call {call.index} is {call.verb} {call.key}, and {fault} does not apply to it"
            )
        return fault

    return plan


def seeded(seed: int, *, rate: float, faults: Iterable[Fault] = tuple(Fault)) -> Plan:
    """Return a plan that fails each call with probability `rate`. The same seed and calls give the same faults."""
    # The generator is private: other users of the shared one must not change the faults.
    chance = random.Random(seed)
    allowed = sorted(set(faults))

    def plan(call: Call) -> Fault | None:
        drawn, choice = chance.random(), chance.random()
        fitting = [fault for fault in allowed if fault in APPLICABLE[call.verb]]
        return fitting[int(choice * len(fitting))] if fitting and drawn < rate else None

    return plan


class FaultyStore:
    """The store of one simulated process, with faults. It is thread-safe if the inner store is.

    `calls` and `fired` have the calls and faults so far, `held` the writes that may still land. After a kill, every call
    raises Killed: a dead process sends no requests, not even from a `finally`. To simulate another process, create
    another FaultyStore around the same store.
    """

    def __init__(self, inner: Store, plan: Plan = no_faults) -> None:
        self._inner = inner
        self._plan = plan
        self._lock = threading.Lock()
        self._dead = False
        self._calls: list[Call] = []
        self._fired: list[Fired] = []
        self._held: list[HeldWrite] = []

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def calls(self) -> Sequence[Call]:
        """All calls so far, with the failed ones."""
        return tuple(self._calls)

    @property
    def fired(self) -> Sequence[Fired]:
        """All faults that took place. A test that scripts a fault checks here that it did."""
        return tuple(self._fired)

    @property
    def held(self) -> Sequence[HeldWrite]:
        """The writes that may still land, oldest first."""
        return tuple(self._held)

    def release(self, position: int = 0) -> Outcome:
        """Send one held write to the store now, and return its outcome, which the original caller never gets.

        Safe to repeat: no; each call sends another held write. Raises IndexError if there is none.
        """
        with self._lock:
            held = self._held.pop(position)
        return self._send(held.call, held.body, held.expected)

    def get(self, key: str) -> Stored | None:
        return self._other("get", key, lambda: self._inner.get(key))

    def list(self, prefix: str) -> Iterator[Listed]:
        return self._other("list", prefix, lambda: self._inner.list(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Implement `Store.delete` with the plan's faults. Safe to repeat, as for the inner store."""
        deleted = [*keys]
        self._other("delete", deleted[0] if deleted else "", lambda: self._inner.delete(deleted))

    def create(self, key: str, body: bytes | Path) -> Outcome:
        """Implement `Store.create` with the plan's faults. Safe to repeat, as for the inner store."""
        return self._write("create", key, body, None)

    def replace(self, key: str, body: bytes, *, expected: ETag) -> Outcome:
        """Implement `Store.replace` with the plan's faults. Safe to repeat, as for the inner store."""
        return self._write("replace", key, body, expected)

    def _begin(self, verb: Verb, key: str) -> tuple[Call, Fault | None]:
        with self._lock:
            if self._dead:
                raise Killed(f"{verb} {key}: this process is dead")
            call = Call(index=len(self._calls), verb=verb, key=key)
            self._calls.append(call)
            fault = self._plan(call)
            if fault is not None:
                self._fired.append(Fired(call=call, fault=fault))
            self._dead = fault in {Fault.KILL_BEFORE, Fault.KILL_AFTER}
        if fault is Fault.KILL_BEFORE:
            raise Killed(f"before call {call.index}: {verb} {key}")
        if fault is Fault.UNAVAILABLE:
            raise _unavailable(call)
        return call, fault

    def _other(self, verb: Verb, key: str, send: Callable[[], T]) -> T:
        call, fault = self._begin(verb, key)
        answer = send()
        if fault is Fault.KILL_AFTER:
            raise Killed(f"after call {call.index}: {verb} {key}")
        if fault is Fault.LOSE_REPLY:
            raise _unavailable(call)
        return answer

    def _write(self, verb: Verb, key: str, body: bytes | Path, expected: ETag | None) -> Outcome:
        call, fault = self._begin(verb, key)
        # A path is read now: the body of a delayed request is the body at the time of sending.
        content = body.read_bytes() if isinstance(body, Path) else bytes(body)
        if fault is Fault.DROP:
            return Unknown(because="timeout (dropped on purpose)")
        if fault is Fault.CONFLICT:
            return Unknown(because="HTTP 409 ConditionalRequestConflict (on purpose)")
        if fault in {Fault.DELAY, Fault.ECHO}:
            with self._lock:
                self._held.append(HeldWrite(call=call, body=content, expected=expected))
            if fault is Fault.DELAY:
                return Unknown(because="timeout (delayed on purpose)")
        outcome = self._send(call, content, expected)
        if fault is Fault.DUPLICATE:
            outcome = self._send(call, content, expected)
        if fault is Fault.KILL_AFTER:
            raise Killed(f"after call {call.index}: {verb} {key}")
        if fault is Fault.LOSE_REPLY:
            return Unknown(because="connection reset (reply lost on purpose)")
        return outcome

    def _send(self, call: Call, body: bytes, expected: ETag | None) -> Outcome:
        if expected is None:
            return self._inner.create(call.key, body)
        return self._inner.replace(call.key, body, expected=expected)


def _unavailable(call: Call) -> StoreUnavailable:
    return StoreUnavailable(
        f"call {call.index}, {call.verb} {call.key}, fails by injection.",
        hint="do nothing: a test injected this fault.",
    )
