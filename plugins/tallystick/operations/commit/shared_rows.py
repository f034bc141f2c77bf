"""The rows of a replaced commit that compactions have moved: what its replacement drops and deletes in shared files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.format import keys
from tallystick.format.compaction import Compaction
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.lake import Lake, Snapshot
from tallystick.lake.snapshot import ObjectGoneError
from tallystick.protocol.compacting import Positions, in_place, shared_change


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRows:
    """The removal of a replaced commit's rows from one table: files to drop, and new deleted positions by shared file."""

    drop: tuple[str, ...] = ()
    delete: Mapping[str, Positions]


def removed_rows(
    lake: Lake,
    snapshot: Snapshot,
    before: Entry,
    after: Entry,
    files: Mapping[str, tuple[str, ...]],
) -> dict[str, RemovedRows]:
    """Return the removal of the rows of the entry's commit, by table. `files`: those that its report listed.

    It follows from this one root, so it is found again for each root that is read: shared files change with other commits
    (C14). Raises ObjectGoneError if a compaction or a row order is gone: the root has moved, or the lake is damaged.
    """
    assert before.committed is not None
    removed = {name: RemovedRows(drop=keys_, delete={}) for name, keys_ in files.items()}
    for table, number in before.committed.compactions.items():
        compaction = lake.compaction_of(keys.compaction(table, number))
        entries = entries_of(snapshot, compaction)
        change = shared_change(compaction, entries, {**entries, after.interval: after})
        removed[table] = RemovedRows(
            drop=(*in_place(files.get(table, ()), compaction), *change.drop),
            delete=positions_of(lake, compaction, change.deleted),
        )
    return removed


def positions_of(
    lake: Lake, compaction: Compaction, numbers: Mapping[str, Positions]
) -> dict[str, Positions]:
    """Return the positions in each shared file of some row numbers: they differ if the file is sorted.

    Reads one row order per sorted file. Raises ObjectGoneError if it is gone, and Corrupt if it is another one.
    """
    # Imported here, because most commits replace no moved rows.
    from tallystick.tables.row_order import read_places

    shared = {one.file.key: one for one in compaction.files}
    found: dict[str, Positions] = {}
    for key, ranges in numbers.items():
        places = read_places(lake.store, shared[key])
        if places is None:
            order = shared[key].order
            assert order is not None  # only then can it be gone
            raise ObjectGoneError(order.key)
        found[key] = places.ranges(ranges)
    return found


def entries_of(snapshot: Snapshot, *compactions: Compaction) -> dict[Interval, Entry | None]:
    """Return the ledger's entry of each interval of the compactions."""
    intervals = frozenset[Interval]().union(*(c.intervals for c in compactions))
    ledger = snapshot.around(intervals)
    return {interval: ledger.entry(interval) for interval in intervals}
