"""One lake: its root, read and swapped.

lake       reads the root and the objects that it names, and swaps it
snapshot   one root as it was read, with the ledger pages that a query needs
update     the parts of the next root
room       markers with which a slow swap makes publishers pause
"""

from __future__ import annotations

from tallystick.lake.lake import CONTENDED_S, Lake
from tallystick.lake.snapshot import Snapshot
from tallystick.lake.update import NoUpdate, Update

__all__ = ["CONTENDED_S", "Lake", "NoUpdate", "Snapshot", "Update"]
