"""Room for a slow swap: its writer creates a marker, and publishers pause before their next swap until it is gone.

A publisher changes the root twice per interval, and each change voids the work of a commit in progress. Without room, a
commit of many tables loses each race until the publishers' backlog is done.

Markers only save time; no guarantee depends on them. If a marker is lost, left behind, or never read, that costs time and
nothing more. A marker has no effect any more after its writer deletes it, after a publisher has paused for it for
`PAUSE_MAX_S`, or when it is older than `OLD`.
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

# The longest pause for one marker, and before one swap. A commit of several hundred tables takes less time.
PAUSE_MAX_S = 120.0
POLL_S = 0.5
# Compares the clocks of the store and of this machine, which may differ. A wrong clock costs a pause or a lost swap.
OLD = timedelta(minutes=10)
_BODY = (
    b"A swap of root.json is being made ready. Publishers pause before theirs. Safe to delete.\n"
)


class Turn(Protocol):
    """The hooks of a swap that coordinate it with other writers of the root."""

    def before(self) -> None:
        """Run before each try, before the root is read."""
        ...

    def after_read(self, root: Root, lost: int) -> None:
        """Run after each read of the root; `lost` swaps have been lost so far."""
        ...

    def after(self) -> None:
        """Run after the last try, regardless of its outcome. It does not run if the process is killed."""
        ...


@dataclass(slots=True, kw_only=True)
class RoomRequest:
    """A turn that requests room from publishers after `after_losses` lost swaps; use 0 if the swap is slow to prepare."""

    store: Store
    runtime: Runtime
    after_losses: int = 1
    marker: str | None = None

    def before(self) -> None:
        """Do nothing."""

    def after_read(self, root: Root, lost: int) -> None:
        """Write the marker if the root has pending outputs and enough swaps were lost.

        Safe to repeat: each swap writes one marker, under its own key. Errors of the store are ignored.
        """
        if self.marker is not None or not root.pending or lost < self.after_losses:
            return
        self.marker = keys.room(self.runtime.uuid())
        try:
            self.store.create(self.marker, _BODY)
        except TallystickError as error:
            log.debug("no marker for publishers: %s", error)

    def after(self) -> None:
        """Delete the marker. Safe to repeat: a deleted marker stays deleted, and one that is not deleted expires."""
        if self.marker is None:
            return
        try:
            self.store.delete([self.marker])
        except TallystickError as error:
            log.debug("%s was not deleted: %s", self.marker, error)
        self.marker = None


@dataclass(slots=True, kw_only=True)
class RoomGiver:
    """A turn that gives room: it waits before each try until there is no marker, or each has been waited for long enough.

    Use one object for all swaps of a publisher: then a marker that a killed writer left delays the publisher only once.
    """

    store: Store
    runtime: Runtime
    seen_s: dict[str, float] = field(default_factory=dict)

    def before(self) -> None:
        """Wait while there is a marker, at most `PAUSE_MAX_S`. Safe to repeat: it only reads."""
        began_s = self.runtime.monotonic_s()
        paused = False
        while self._is_requested(now_s := self.runtime.monotonic_s()):
            if now_s - began_s >= PAUSE_MAX_S:
                return
            if not paused:
                log.info(
                    "pausing: another task is about to change %s/%s", self.store.uri, keys.ROOT
                )
                paused = True
            self.runtime.sleep(POLL_S)

    def after_read(self, root: Root, lost: int) -> None:
        """Do nothing."""

    def after(self) -> None:
        """Do nothing."""

    def _is_requested(self, now_s: float) -> bool:
        oldest = self.runtime.now() - OLD
        try:
            markers = [
                one.key for one in self.store.list(keys.ROOM_PREFIX) if one.modified >= oldest
            ]
        except TallystickError as error:
            log.debug("markers were not listed: %s", error)
            return False
        self.seen_s = {key: self.seen_s.get(key, now_s) for key in markers}
        return any(now_s - since_s < PAUSE_MAX_S for since_s in self.seen_s.values())
