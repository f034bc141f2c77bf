"""The proxy between S3 and all tasks and executors of a chaos run: it can hold any of their requests.

The requests are the observable steps of a run: the first read of the root, the PUT of a plan, the upload of a file, the
swap. A trap waits for one request. While it holds the request, the sender is blocked, so that a fault can be injected
right before a write, or between a write and its reply.
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
COMMAND = "tally-"
"""The beginning of the application in the user agent of a command, which distinguishes its requests from a run's."""
Sender = Literal["run", "compact", "gc", "verify"]
_SENDER = re.compile(rf"\bapp/{COMMAND}(compact|gc|verify)\b")


def sender_of(seen: Seen) -> Sender:
    """Return who sent a request: a run (its tasks, drivers and executors), or a command of `tally`."""
    agent = next((v for k, v in seen.headers.items() if k.lower() == "user-agent"), "")
    found = _SENDER.search(agent)
    return found[1] if found else "run"  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment: the `nth` request of its kind, before it reaches the server or after it landed. `sender` None: of any."""

    name: str
    method: str
    path: str
    nth: int = 1
    when: Literal["before", "after"] = "before"
    sender: Sender | None = "run"

    def __str__(self) -> str:
        return f"{self.when} {self.name} {self.nth}"

    def matches(self, seen: Seen, lake: str) -> bool:
        """Return True if a request is of this kind and of this lake."""
        below = seen.path.partition("?")[0].removeprefix(f"/{BUCKET}/{lake}/")
        return (
            seen.method == self.method
            and below != seen.path.partition("?")[0]
            and re.match(self.path, below) is not None
            and self.sender in (None, sender_of(seen))
        )


@dataclass(slots=True, kw_only=True)
class Trap:
    """Waits for one point of one lake; `holder` is the process that sent the request, None if it has ended."""

    point: Point
    lake: str
    hold: bool
    counted: int = 0
    holder: int | None = None
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def spring(self, client: tuple[str, int]) -> None:
        """Record the sender, and block its request until the trap is released, or HOLD_S are over."""
        self.holder = holder_of(client)
        self.sprung.set()
        if self.hold:
            self.released.wait(HOLD_S)


Rule = Callable[[Seen], HttpFault]


class Tap(FaultProxy):
    """The proxy: traps hold requests, a rule chooses faults. Without them it forwards everything."""

    def __init__(self, upstream_url: str) -> None:
        super().__init__(upstream_url, method=None, remember=False)
        self._traps: list[Trap] = []
        self._rule: Rule | None = None
        self._guard = threading.Lock()
        self._client = threading.local()

    @contextmanager
    def trap(self, point: Point, lake: str, *, hold: bool) -> Iterator[Trap]:
        """Set a trap; at the end of the block a held request is released."""
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
        """Let a rule choose the fault of each request during the block; it is called by one thread at a time."""
        self._rule = rule
        try:
            yield
        finally:
            self._rule = None

    def choose(self, seen: Seen) -> HttpFault:
        """Return the fault that the rule chooses."""
        return NO_FAULT if self._rule is None else self._rule(seen)

    def handle(self, seen: Seen, reply: Handler) -> None:
        """Hold the request if a trap waits for its arrival, then forward it."""
        self._client.address = reply.client_address
        self._spring(seen, "before")
        super().handle(seen, reply)

    def forward(self, seen: Seen) -> Reply:
        """Forward the request, and hold its answer if a trap waits for its success."""
        answer = super().forward(seen)
        if answer.status < 300:
            self._spring(seen, "after")
        return answer

    def _spring(self, seen: Seen, when: str) -> None:
        for trap in self._due(seen, when):
            trap.spring(getattr(self._client, "address", ("", 0)))

    def _due(self, seen: Seen, when: str) -> list[Trap]:
        due = []
        with self._guard:
            for trap in self._traps:
                if trap.point.when == when and trap.point.matches(seen, trap.lake):
                    trap.counted += 1
                    if trap.counted == trap.point.nth:
                        due.append(trap)
        return due


def holder_of(client: tuple[str, int]) -> int | None:
    """Return the process at the other end of a loopback connection, None if it has ended."""
    for connection in psutil.net_connections(kind="tcp4"):
        if connection.laddr and tuple(connection.laddr) == client and connection.pid:
            return int(connection.pid)
    return None
