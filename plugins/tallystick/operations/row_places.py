"""Finds where the rows of committed intervals are: in the files of their reports, or in shared files of compactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.errors import Corrupt
from tallystick.format import keys
from tallystick.format.compaction import Compaction, RowOrder
from tallystick.format.interval import Interval
from tallystick.format.page import Entry
from tallystick.format.report import FileReport
from tallystick.lake import Lake
from tallystick.protocol.compacting import is_living
from tallystick.store import Store

if TYPE_CHECKING:
    from tallystick.tables.row_order import RowPlaces


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The rows with the numbers `first <= number < first + rows` of a stored file.

    A number is a position in the file, unless it is a sorted shared file: then `order` and `runs`, the number of rows of
    each of its runs, give the position of each row.
    """

    key: str
    etag: str
    first: int
    rows: int
    order: RowOrder | None = None
    runs: tuple[int, ...] = ()


def places_of(store: Store, rows: FileRows) -> RowPlaces:
    """Return where the rows of a file are. Raises Corrupt if the row order of a sorted file is gone or is another one."""
    # Imported here, because a plan or a commit that reads no sorted file needs no Arrow.
    from tallystick.tables.row_order import RowPlaces, stored_places

    if rows.order is None:
        return RowPlaces()
    found = stored_places(store, rows.order, rows=rows.runs)
    if found is None:
        raise Corrupt(
            f"{store.uri}/{rows.order.key} is gone, and without it the rows of {rows.key} are not found.",
            hint="clear the task: it reads what is committed now. If the error comes back, restore it from a bucket "
            "version.",
        )
    return found


def rows_of_report(files: Iterable[FileReport]) -> tuple[FileRows, ...]:
    """Return the rows of files as they were staged."""
    return tuple(FileRows(key=f.key, etag=f.etag, first=0, rows=f.rows) for f in files)


def rows_of_commit(
    lake: Lake, entry: Entry, table: str, files: Iterable[FileReport]
) -> tuple[FileRows, ...]:
    """Return where the rows of the entry's commit are in one table, in the order of its report.

    `files`: those that the report lists for the table. Raises ObjectGoneError if the compaction that the entry names is
    gone: the root has moved, or the lake is damaged.
    """
    assert entry.committed is not None
    number = entry.committed.compactions.get(table)
    if number is None:
        return rows_of_report(files)
    moved = _moved(lake.compaction_of(keys.compaction(table, number)), {entry.interval: entry})
    return tuple(moved.get(f.key) or rows_of_report([f])[0] for f in files)


def _moved(compaction: Compaction, entries: Mapping[Interval, Entry]) -> dict[str, FileRows]:
    """Return where the rows of each living run are, by the reported file."""
    return {
        placed.run.key: FileRows(
            key=shared.file.key,
            etag=shared.file.etag,
            first=placed.first,
            rows=placed.run.rows,
            order=shared.order,
            runs=tuple(run.rows for run in shared.runs) if shared.order is not None else (),
        )
        for shared in compaction.files
        for placed in shared.placed()
        if is_living(compaction, entries.get(placed.run.interval), placed.run)
    }


def rows_by_interval(
    lake: Lake, table: str, live: Mapping[str, FileRows], entries: Iterable[Entry]
) -> list[tuple[Interval, FileRows]]:
    """Return where the rows of these entries' commits are, with their interval, by time.

    `live`: the files that the table lists, as rows of the whole file. Reads a compaction per shared file, and no report.
    """
    by_interval = {e.interval: e for e in entries}
    found: list[tuple[Interval, FileRows]] = []
    compactions: set[keys.CompactionId] = set()
    for key, rows in live.items():
        if keys.kind(key) == "shared file":
            compactions.add(keys.shared_file_parts(key)[1])
            continue
        start, end = keys.part_interval(keys.data_file_parts(key)[1])
        interval = Interval(start=start, end=end)
        if interval in by_interval:
            found.append((interval, rows))
    for number in sorted(compactions):
        compaction = lake.compaction_of(keys.compaction(table, number))
        intervals = {run.key: run.interval for run in compaction.runs}
        moved = _moved(compaction, by_interval)
        found += [(intervals[key], rows) for key, rows in moved.items() if rows.key in live]
    return sorted(found, key=lambda one: (one[0].start, one[1].key, one[1].first))
