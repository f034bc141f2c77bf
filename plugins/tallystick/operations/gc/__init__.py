"""The use case `gc`: the only code that deletes objects.

The steps, in this order:

1. LIST the lake.
2. Swap in a root without the grants to cancel. The swap is always made, also if there is no grant to cancel, because it
   invalidates every swap in flight.
3. Mark everything that this root reaches, that the retained versions reach, and that a granted plan owns.
4. Delete every listed object that is not marked.

Safety does not depend on a clock: age only decides which grants are cancelled and which versions stay readable.

    listing     the lake's objects, in a file and not in memory
    marking     which objects a root needs, and the check that root.json was not set back
    collecting  the order of the steps
    result      the result types: what was found, kept and deleted
"""

from tallystick.operations.gc.collecting import CANCEL_AFTER, collect
from tallystick.operations.gc.marking import TableReach
from tallystick.operations.gc.result import CancelledGrant, Collection, Heap

__all__ = [
    "CANCEL_AFTER",
    "CancelledGrant",
    "Collection",
    "Heap",
    "TableReach",
    "collect",
]
