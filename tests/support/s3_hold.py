"""An S3 proxy in which a test stops one lake's swap of the root, performs a user action, and lets the swap continue.

Every request of Airflow's tasks and of their Spark jobs passes through it; only swaps that a test holds are stopped.
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
    """The stopped swaps of one lake, the oldest first. `room`: the maximum number of stopped swaps."""

    path: str
    room: int
    _stopped: list[tuple[Seen, threading.Event]] = field(default_factory=list)
    _ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, seen: Seen) -> threading.Event | None:
        """Stop a request if it is a swap of this lake. Return the event that lets it continue, or None."""
        with self._lock:
            is_swap = seen.method == "PUT" and seen.path.split("?")[0] == self.path
            if not is_swap or self._ended or len(self._stopped) >= self.room:
                return None
            go = threading.Event()
            self._stopped.append((seen, go))
            return go

    @property
    def bodies(self) -> list[bytes]:
        """The different roots of the stopped swaps: a client that waits too long sends the same root again."""
        return list(dict.fromkeys(seen.body for seen, _ in self._stopped))

    def wait_for(self, count: int = 1) -> None:
        """Wait until that many different roots have been stopped."""
        wait_until(
            lambda: len(self.bodies) >= count,
            deadline_s=HELD_S,
            what=f"swap {count} of {self.path}",
        )

    def land(self, number: int = 0) -> int:
        """Let one stopped request reach the server, and return the answer: 200, or 412 if it came too late."""
        seen, go = self._stopped[number]
        go.set()
        wait_until(
            lambda: bool(seen.upstream_statuses), deadline_s=HELD_S, what="the server's answer"
        )
        return seen.upstream_statuses[0]

    def end(self) -> None:
        """Let the stopped requests continue, and stop no more. Safe to repeat: a set event stays set."""
        with self._lock:
            self._ended = True
            for _, go in self._stopped:
                go.set()


class HoldingProxy(FaultProxy):
    """A proxy without faults; swaps that `holding` names wait until the test lets them continue."""

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
        """Forward a request, at once or when its test lets it continue."""
        for held in tuple(self._holds):
            if (go := held.stop(seen)) is not None:
                go.wait(HELD_S)
                break
        super().handle(seen, reply)
