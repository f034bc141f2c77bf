"""The use case `gc`: the only thing that deletes.

In this order: LIST; swap a root that drops the grants to be cancelled, always, even with none, for that invalidates every
swap in flight; mark from that root what it reaches, what the retained versions reach and what a granted plan owns; delete
what was listed and is not marked. No clock decides about safety: age only chooses which grants are given up and which
versions readers may still read.

    listing     the lake's objects, in a file and not in memory
    marking     what a root needs, and whether it was set back
    collecting  the order of the steps
    result      what was found, kept and deleted, as values
"""

from tallystick.operations.gc.collecting import CANCEL_AFTER, READER_GRACE, collect
from tallystick.operations.gc.marking import TableReach
from tallystick.operations.gc.result import CancelledGrant, Collection, Heap

__all__ = [
    "CANCEL_AFTER",
    "READER_GRACE",
    "CancelledGrant",
    "Collection",
    "Heap",
    "TableReach",
    "collect",
]
