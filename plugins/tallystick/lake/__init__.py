"""One lake: its root, read and swapped.

lake       reads the root and the objects that it names, and swaps it
snapshot   one root as it was read, with the pages of the ledger that a question needs
update     what a swap makes of a root
room       how a slow swap asks the publishers for room
"""

from __future__ import annotations

from tallystick.lake.lake import CONTENDED_S, Lake
from tallystick.lake.snapshot import Snapshot
from tallystick.lake.update import NoUpdate, Update

__all__ = ["CONTENDED_S", "Lake", "NoUpdate", "Snapshot", "Update"]
