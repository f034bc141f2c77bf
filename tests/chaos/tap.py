"""The proxy through which every task and every executor of a chaos run reaches S3: it sees each moment, and can hold it.

What a run does to its lake is what can be observed of it: the first look at the root, the PUT of a plan, the upload of a
file, the swap. A trap waits for one such request; while it holds the request, its sender stands still, and what must
strike right before a write, or between a write and its reply, has the time to do so.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import psutil

from tallystick_devstack.testing.fault_proxy import (
    NO_FAULT,
    FaultProxy,
    Handler,
    HttpFault,
    Reply,
    Seen,
)

HOLD_S = 600.0
BUCKET = "lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment in a run: the `nth` request of its kind, before it reaches the server or after it landed."""

    name: str
    method: str
    path: str
    nth: int = 1
    when: Literal["before", "after"] = "before"

    def __str__(self) -> str:
        return f"{self.when} {self.name} {self.nth}"

    def fits(self, seen: Seen, lake: str) -> bool:
        """Whether a request is of this kind, and of this lake."""
        below = seen.path.partition("?")[0].removeprefix(f"/{BUCKET}/{lake}/")
        return (
            seen.method == self.method
            and below != seen.path.partition("?")[0]
            and re.match(self.path, below) is not None
        )


@dataclass(slots=True, kw_only=True)
class Trap:
    """Waits for one point of one lake; `holder` is the process that sent the request, None where it is gone."""

    point: Point
    lake: str
    hold: bool
    counted: int = 0
    holder: int | None = None
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def spring(self, client: tuple[str, int]) -> None:
        """Note who asks, and stand in his way until the trap is released (a deadline keeps this proxy alive)."""
        self.holder = holder_of(client)
        self.sprung.set()
        if self.hold:
            self.released.wait(HOLD_S)


Rule = Callable[[Seen], HttpFault]


class Tap(FaultProxy):
    """The proxy: traps hold requests, a rule chooses faults. Without either everything passes."""

    def __init__(self, upstream_url: str) -> None:
        super().__init__(upstream_url, method=None, remember=False)
        self._traps: list[Trap] = []
        self._rule: Rule | None = None
        self._guard = threading.Lock()
        self._client = threading.local()

    @contextmanager
    def trap(self, point: Point, lake: str, *, hold: bool) -> Iterator[Trap]:
        """Set a trap; whatever it holds is released at the end."""
        trap = Trap(point=point, lake=lake, hold=hold)
        with self._guard:
            self._traps.append(trap)
        try:
            yield trap
        finally:
            with self._guard:
                self._traps.remove(trap)
            trap.released.set()

    @contextmanager
    def rule(self, rule: Rule) -> Iterator[None]:
        """Let a rule choose the fault of each request for a while; it is asked by one thread at a time."""
        self._rule = rule
        try:
            yield
        finally:
            self._rule = None

    def choose(self, seen: Seen) -> HttpFault:
        """What the rule says."""
        return NO_FAULT if self._rule is None else self._rule(seen)

    def handle(self, seen: Seen, reply: Handler) -> None:
        """Hold the request where a trap waits for it to come, then pass it on."""
        self._client.address = reply.client_address
        self._meet(seen, "before")
        super().handle(seen, reply)

    def forward(self, seen: Seen) -> Reply:
        """Pass the request on, and hold its answer where a trap waits for it to have landed."""
        answer = super().forward(seen)
        if answer.status < 300:
            self._meet(seen, "after")
        return answer

    def _meet(self, seen: Seen, when: str) -> None:
        for trap in self._due(seen, when):
            trap.spring(getattr(self._client, "address", ("", 0)))

    def _due(self, seen: Seen, when: str) -> list[Trap]:
        due = []
        with self._guard:
            for trap in self._traps:
                if trap.point.when == when and trap.point.fits(seen, trap.lake):
                    trap.counted += 1
                    if trap.counted == trap.point.nth:
                        due.append(trap)
        return due


def holder_of(client: tuple[str, int]) -> int | None:
    """The process at the other end of a loopback connection; None where there is none any more."""
    for connection in psutil.net_connections(kind="tcp4"):
        if connection.laddr and tuple(connection.laddr) == client and connection.pid:
            return int(connection.pid)
    return None
