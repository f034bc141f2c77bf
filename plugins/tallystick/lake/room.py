"""Room for a slow swap: who needs it writes a marker, and publishers pause before their next swap until it is gone.

A publisher changes the root twice per interval, and each change voids the work of a commit that is under way. Without
room a commit of many tables loses to a backlog until the backlog ends.

Politeness only. No promise rests on a marker: one that is lost, left behind, or written and never seen costs time and
nothing else. A marker ends in three ways: its writer deletes it, a publisher has paused for it long enough, or it is old.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from tallystick.errors import TallystickError
from tallystick.format import keys
from tallystick.format.root import Root
from tallystick.runtime import Runtime
from tallystick.store import Store

log = logging.getLogger(__name__)

# A pause is never longer: neither for one marker, nor before one swap. Longer than a commit of several hundred tables.
PAUSE_MAX_S = 120.0
POLL_S = 0.5
# By the clocks of the store and of this machine, which may differ: a clock that is wrong costs a pause, or a lost swap.
OLD = timedelta(minutes=10)
_BODY = (
    b"A swap of root.json is being made ready. Publishers pause before theirs. Safe to delete.\n"
)


class Turn(Protocol):
    """What a writer of the root does before, during and after its swap, for the sake of other writers."""

    def before(self) -> None:
        """Before each try, ahead of the look at the root."""
        ...

    def looked(self, root: Root, lost: int) -> None:
        """After each look at the root, `lost` swaps having been lost."""
        ...

    def after(self) -> None:
        """After the last try, whatever came of it. Not called when the process is killed."""
        ...


@dataclass(slots=True, kw_only=True)
class Asking:
    """Asks publishers for room once `after_losses` swaps were lost: 0 for a swap that takes long to make ready."""

    store: Store
    runtime: Runtime
    after_losses: int = 1
    marker: str | None = None

    def before(self) -> None:
        """Nothing."""

    def looked(self, root: Root, lost: int) -> None:
        """Write the marker, when the root says that publishers have something to do.

        Safe to repeat: one marker per swap, under a key of its own. What the store says to it does not matter.
        """
        if self.marker is not None or not root.pending or lost < self.after_losses:
            return
        self.marker = keys.room(self.runtime.uuid())
        try:
            self.store.create(self.marker, _BODY)
        except TallystickError as error:
            log.debug("no marker for publishers: %s", error)

    def after(self) -> None:
        """Delete the marker. Safe to repeat: what is gone stays so, and what stays expires."""
        if self.marker is None:
            return
        try:
            self.store.delete([self.marker])
        except TallystickError as error:
            log.debug("%s stays: %s", self.marker, error)
        self.marker = None


@dataclass(slots=True, kw_only=True)
class Giving:
    """Gives room: waits before each try until no marker is there, or each has been waited for long enough.

    One object serves all swaps of a publisher, so that a marker which a killed writer has left holds it up once.
    """

    store: Store
    runtime: Runtime
    seen_s: dict[str, float] = field(default_factory=dict)

    def before(self) -> None:
        """Wait while room is asked for, at most `PAUSE_MAX_S`. Safe to repeat: it only reads."""
        began_s = self.runtime.monotonic_s()
        paused = False
        while self._asked(now_s := self.runtime.monotonic_s()):
            if now_s - began_s >= PAUSE_MAX_S:
                return
            if not paused:
                log.info(
                    "pausing: another task is about to change %s/%s", self.store.uri, keys.ROOT
                )
                paused = True
            self.runtime.sleep(POLL_S)

    def looked(self, root: Root, lost: int) -> None:
        """Nothing."""

    def after(self) -> None:
        """Nothing."""

    def _asked(self, now_s: float) -> bool:
        oldest = self.runtime.now() - OLD
        try:
            markers = [
                one.key for one in self.store.list(keys.ROOM_PREFIX) if one.modified >= oldest
            ]
        except TallystickError as error:
            log.debug("no look for markers: %s", error)
            return False
        self.seen_s = {key: self.seen_s.get(key, now_s) for key in markers}
        return any(now_s - since_s < PAUSE_MAX_S for since_s in self.seen_s.values())
