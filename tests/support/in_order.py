"""Gives the units of support/units.py to the workers of pytest-xdist in the order of collection, and survives a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

from support.units import unit_of

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class InOrder(LoadFileScheduling):
    """`--dist loadfile` with our units. A test whose worker crashed has failed, and does not run again.

    pytest-xdist 3.8 gives everything that a crashed worker ever had to the next workers: they run the crashed test once
    more, and at the end they wait without limit for the result of a unit that has no test left, or for the second test
    that a worker needs to run its first one (pytest-dev/pytest-xdist#1327, #1364, #1371, #1378).
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test during which a worker crashed, if any; put its other tests back, first in the queue."""
        pending = {
            unit: {nodeid: False for nodeid, is_done in tests.items() if not is_done}
            for unit, tests in self.assigned_work.pop(node).items()
        }
        crashed = next((nodeid for tests in pending.values() for nodeid in tests), None)
        for unit, tests in reversed(pending.items()):
            tests.pop(crashed, None)
            if tests:
                self.workqueue[unit] = tests
                self.workqueue.move_to_end(unit, last=False)
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # a worker that took the place of a crashed one, and still collects
        super()._reschedule(node)
        # A worker runs a test when it has the next one, or when it is to end.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
