"""An S3 endpoint at which a test stops one lake's swap of the root in mid-air, presses a button, and decides its fate.

Every request of Airflow's tasks and of their Spark jobs passes through it; only a root that a test holds is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystick_devstack.process import wait_until
from tallystick_devstack.testing.fault_proxy import FaultProxy, Handler, Seen

HELD_S = 1500.0


@dataclass
class HeldSwaps:
    """The swaps of one lake that were stopped on their way, the oldest first. `room`: how many are stopped at most."""

    path: str
    room: int
    _stopped: list[tuple[Seen, threading.Event]] = field(default_factory=list)
    _over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, seen: Seen) -> threading.Event | None:
        """Stop a request where it is one of those that are wanted; the event lets it go on."""
        with self._lock:
            wanted = seen.method == "PUT" and seen.path.split("?")[0] == self.path
            if not wanted or self._over or len(self._stopped) >= self.room:
                return None
            go = threading.Event()
            self._stopped.append((seen, go))
            return go

    @property
    def bodies(self) -> list[bytes]:
        """The different roots that are on their way: a client that waits too long sends the same one again."""
        return list(dict.fromkeys(seen.body for seen, _ in self._stopped))

    def wait_for(self, count: int = 1) -> None:
        """Wait until that many different roots have been stopped."""
        wait_until(
            lambda: len(self.bodies) >= count,
            deadline_s=HELD_S,
            what=f"swap {count} of {self.path}",
        )

    def land(self, number: int = 0) -> int:
        """Let one stopped request reach the server, and return the answer: 200, or 412 where it came too late."""
        seen, go = self._stopped[number]
        go.set()
        wait_until(
            lambda: bool(seen.upstream_statuses), deadline_s=HELD_S, what="the server's answer"
        )
        return seen.upstream_statuses[0]

    def end(self) -> None:
        """Let go on what is still stopped, and stop nothing more. Safe to repeat: a set event stays set."""
        with self._lock:
            self._over = True
            for _, go in self._stopped:
                go.set()


class HoldingProxy(FaultProxy):
    """A proxy that harms nothing; what `holding` names waits until the test lets it go on."""

    def __init__(self, upstream_url: str) -> None:
        super().__init__(upstream_url)
        self._holds: list[HeldSwaps] = []

    @contextmanager
    def holding(self, root: str, *, room: int = 1000) -> Iterator[HeldSwaps]:
        """Stop the swaps of the root at `root` (/bucket/prefix/root.json) until the end of the block."""
        held = HeldSwaps(root, room)
        self._holds.append(held)
        try:
            yield held
        finally:
            held.end()
            self._holds.remove(held)

    def handle(self, seen: Seen, reply: Handler) -> None:
        """Pass a request on, at once or when its test says so."""
        for held in tuple(self._holds):
            if (go := held.stop(seen)) is not None:
                go.wait(HELD_S)
                break
        super().handle(seen, reply)
